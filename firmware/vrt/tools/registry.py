# The device's tools: what is declared, which call runs, and its one result (vRT §6.2, §7; decisions 8, 16-18).
#
#   confirm = Confirm(); journal = Journal(board.storage + "calls")
#   registry = Registry(journal, confirm, report=board.event, voice=False)
#   registry.load(board)               once, before hello: imports the user's module `tools`, calls its setup(board)
#   registry.declare() -> list         for hello.tools       registry.queue_limit -> hello.limits.queuedCalls
#   registry.context() -> dict         for hello.context and `context`: {"state": ..., "unknownCalls": [...]}
#
#   registry.begin(session_id)         `ready` of a new session: forgets the session before it
#   registry.resumed()                 `ready` with resumedFrom, the first after a reboot (none other): journal answers
#       after a reboot, hello takes journal.session_id (None: open a new session) and resumeFrom = journal.rx;
#       the stream goes on at ready.resumedFrom + 1: all that is resent are results, and they get new numbers
#   registry.drop()                    the session is lost (RESUME_FAILED ...): ends the running call, no results
#
#   journal.mark(tx, rx, epoch)        whenever they changed, before call() and step(): last client seq given out,
#                                      last server seq handled, observed epoch; a few stores, no flash
#   registry.call(msg, now)            a valid tool.call (decoded dict); ask `registry.room` first: False = stop reading
#   registry.close_epoch(closed)       the closed epoch rose, by interruption or `interrupted` (before sending anything)
#   registry.step(now, down)           every loop; `down` is the button's debounced level; advances at most one tool
#   registry.next_result() -> dict     members of the next tool.result (callId, epoch, ok, ...), None when there is none
#
#   registry.asking                    a call awaits the button: LED "confirm", the button is ours until it is up again
#   registry.busy                      a call is running, asking or queued
#   registry.uncertain                 a call with an effect was cut or failed: send `context`, then set it to False
#
# Nothing here is on the audio path; all of it may allocate. One loop calls it; no interrupt handler may.
import json

from micropython import const

from vrt import tools
from vrt.errors import ConfigError, VrtError
from vrt.ticks import diff
from vrt.tools.arguments import canonical, problem
from vrt.tools.call import Call, digest_of, explain
from vrt.tools.confirm import CONFIRMED, EXPIRED
from vrt.tools.journal import answer
from vrt.tools.outputs import ToolBoard

_QUEUED_CALLS = const(8)
_QUEUED_BYTES = const(4096)  # of arguments, so that a full queue fits a small heap
_RESULT_BYTES = const(1024)
_TEXT = const(200)  # characters of a message to the model


class Registry:
    def __init__(self, journal, confirm, report=None, voice=False):
        # report(event, **fields): the event log; call.queued, call.ask, call.start, call.progress, call.end.
        # voice: whether the configuration lets the host ask for confirmations (confirm="voice").
        self.queue_limit = _QUEUED_CALLS
        self.result_bytes = (
            _RESULT_BYTES  # JSON text of an output; to be lowered for a server that takes less
        )
        self.uncertain = False
        self._journal = journal
        self._confirm = confirm
        self._report = report or (lambda event, **fields: None)
        self._voice = voice
        self._tools = []
        self._state = None
        self._clear()

    def _clear(self):
        self._closed = -1
        self._head = None  # the call that asks or runs
        self._queue = []
        self._results = []

    # --- what the device offers

    def load(self, board):
        # The user's module `tools`: its declarations, setup(board) and, if there is one, state().
        module = __import__("tools")
        self.add(tools.declared)
        if hasattr(module, "setup"):
            module.setup(ToolBoard(board))
        self._state = getattr(module, "state", None)
        tools.seal()

    def add(self, declared):
        for tool in declared:
            if tool.confirm == "voice" and not self._voice:
                raise ConfigError(f"tool {tool.name} has confirm='voice', which the configuration forbids")
            self._tools.append(tool)

    def declare(self):
        return [tool.declaration() for tool in self._tools]

    def context(self):
        # What the device reports of itself (§5.5): the true state, and what nobody knows since a restart.
        made = {}
        if self._state:
            try:
                made["state"] = json.loads(self._text(self._state()))
            except Exception as error:
                made["state"] = {"error": explain(error)}
        unknown = self._journal.unknown()
        if unknown:
            made["unknownCalls"] = unknown
        if self._journal.damaged:
            made["journal"] = "damaged: calls of the last session may have run without a result"
        return made

    # --- sessions

    def begin(self, session_id):
        self.drop()
        self._journal.begin(session_id)

    def resumed(self):
        # A restart interrupts: what was asked before it and has not started does not start now. The server still has the
        # turn, so only tools are closed to it, and it hears what became of its calls.
        self._closed = self._journal.epoch
        self._results.extend(self._journal.settle())
        self.uncertain = True

    def drop(self):
        if self._head:
            self._cut(self._head, "INTERRUPTED", "the session ended")
        self._clear()

    # --- calls

    @property
    def asking(self):
        return self._confirm.asking

    @property
    def busy(self):
        return self._head is not None or len(self._queue) > 0

    @property
    def room(self):
        # A call owns its place until its result is handed over (decisions 17).
        return len(self._queue) + len(self._results) + (self._head is not None) < self.queue_limit

    def next_result(self):
        return self._results.pop(0) if self._results else None

    def call(self, message, now):
        call_id, epoch = message["callId"], message["epoch"]
        if any(one.call_id == call_id for one in self._queue) or (
            self._head and self._head.call_id == call_id
        ):
            return  # its one result is still to come
        digest, size, improper = digest_of(message["name"], message["arguments"])
        kept = self._journal.find(call_id)
        if kept and kept[0] == digest:
            self._results.append(answer(call_id, kept[1], kept[2]))
        elif kept:
            self._results.append(
                answer(call_id, epoch, _no("INVALID", "this callId stood for another call before"))
            )
        else:
            self._take(message, digest, size, improper)

    def _take(self, message, digest, size, improper):
        # A call not seen before: refused at once, or queued.
        tool = None
        for one in self._tools:
            if one.name == message["name"]:
                tool = one
        refusal = None
        if message["epoch"] <= self._closed:  # §6.2, also calls that come late or again
            refusal = "INTERRUPTED", "its turn was interrupted before it came"
        elif tool is None:
            refusal = "FAILED", f"this device has no tool {message['name']!r}"
        elif not self.room or (
            self._queue and size + sum([call.size for call in self._queue]) > _QUEUED_BYTES
        ):
            refusal = "FAILED", f"not run: too many calls are waiting (at most {self.queue_limit})"
        else:
            improper = improper or problem(tool.parameters, message["arguments"])
            if improper:
                refusal = "INVALID", improper
        if refusal:
            self._settle(message["callId"], digest, message["name"], message["epoch"], _no(*refusal))
        else:
            self._queue.append(Call(message, tool, digest, size))
            self._report("call.queued", call=message["callId"], name=message["name"])

    def close_epoch(self, closed):
        # The epoch gate (§6.2): what is not running never starts, what runs is cut.
        if closed <= self._closed:
            return
        self._closed = closed
        if self._head and self._head.epoch <= closed:
            self._cut(self._head, "INTERRUPTED", "its turn was interrupted")
        queue, self._queue = self._queue, []
        for call in queue:
            if call.epoch <= closed:
                self._end(call, _no("INTERRUPTED", "its turn was interrupted before it started"))
            else:
                self._queue.append(call)

    def step(self, now, down=False):
        if tools.running:  # a tool that runs the loop itself
            return
        if not self._head and self._queue:
            self._head = call = self._queue.pop(0)
            call.since = now
            if call.asks:
                self._confirm.ask(call.call_id, call.digest, call.epoch, now, call.tool.timeout_ms)
                self._report("call.ask", call=call.call_id, name=call.tool.name, arguments=call.arguments)
        call = self._head
        if not call or (self.asking and not self._answered(call, down, now)):
            return
        if diff(now, call.since) >= call.tool.timeout_ms:  # decisions 8
            self._cut(call, "TIMEOUT", f"it took longer than {call.tool.timeout_ms} ms")
        elif not call.started:
            self._start(call, now)
        elif diff(now, call.paused) >= call.wait_ms:
            self._advance(call, now)

    # --- the call at the head

    def _answered(self, call, down, now):
        # True once the user has confirmed.
        outcome = self._confirm.poll(down, now)
        if outcome and outcome != CONFIRMED:
            why = "nobody confirmed it in time" if outcome == EXPIRED else "the user refused it"
            self._end(call, _no("REJECTED", why))
        return outcome == CONFIRMED

    def _start(self, call, now):
        tool = call.tool
        digest = digest_of(tool.name, call.arguments)[0]
        if call.epoch <= self._closed:  # the gate, at the very moment of the start
            return self._end(call, _no("INTERRUPTED", "its turn was interrupted before it started"))
        if call.asks and not self._confirm.use(call.call_id, digest, call.epoch, now):
            return self._end(call, _no("REJECTED", "what was confirmed is not this call"))
        if tool.effect == "irreversible":
            try:
                self._journal.started(call.call_id, digest, tool.name, canonical(call.arguments), call.epoch)
            except OSError as error:
                return self._end(
                    call, _no("FAILED", f"not run: the journal cannot be written ({explain(error)})")
                )
        call.started = True
        self._report("call.start", call=call.call_id, name=tool.name)
        return self._advance(call, now)

    def _advance(self, call, now):
        result = None
        try:
            ended, value = call.resume()
            if ended:
                result = '{"ok":true,"output":' + self._text(value) + "}"
            else:
                progress = call.pause(value, now)
                if progress:
                    self._report("call.progress", call=call.call_id, name=call.tool.name, text=progress)
        except Exception as error:
            result = _no("FAILED", explain(error))
            self.uncertain = self.uncertain or call.tool.effect != "none"
        if result or call.cancelled:
            call.close()
        if result and not call.cancelled:  # else cancelled by what the tool itself did, its result is given
            self._end(call, result)

    def _cut(self, call, code, why):
        # The call ends here, whatever its tool still does (§7.2).
        call.cancelled = True
        if call.started and call.tool.effect != "none":
            self.uncertain = True
        self._end(call, _no(code, why))
        if tools.running is not call:
            call.close()

    def _end(self, call, result):
        if call is self._head:
            self._head = None
            self._confirm.cancel()
        self._settle(call.call_id, call.digest, call.tool.name, call.epoch, result)

    def _settle(self, call_id, digest, name, epoch, result):
        # The one result of a call, kept for whoever asks again.
        self._journal.done(call_id, digest, name, epoch, result)
        members = answer(call_id, epoch, result)
        self._results.append(members)
        self._report("call.end", call=call_id, name=name, result=members)

    def _text(self, value):
        # The JSON text of what a tool returned; also a copy that the tool can no longer change.
        try:
            text = canonical(value)
        except ValueError as error:
            raise VrtError(f"it ran, but its result is not JSON: {error}") from None
        size = len(text.encode())
        if size > self.result_bytes:
            raise VrtError(f"it ran, but: result too large ({size} bytes, at most {self.result_bytes})")
        return text


def _no(code, message):
    return json.dumps({"ok": False, "code": code, "message": message[:_TEXT]})
