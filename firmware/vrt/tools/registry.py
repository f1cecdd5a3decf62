# The device's tools: what is declared, which call runs, and its one result (vRT §6.2, §7; decisions 8, 16-18).
#
#   confirm = Confirm(); journal = Journal(board.storage + "calls")
#   registry = Registry(journal, confirm, event=log.event, voice=False)
#   registry.load(board)               once, before hello: imports the user's module `tools`, calls its setup(board)
#   registry.tools, .queue_limit       what is declared, and hello.limits.queuedCalls
#   registry.context() -> dict         for hello.context and `context`: {"state": ..., "unknownCalls": [...]}
#
#   registry.begin(session_id)         `ready` of a new session: forgets the session before it
#   registry.resumed()                 `ready` with resumedFrom, the first after a reboot (none other): journal answers
#       after a reboot, hello takes journal.session_id (None: open a new session) and resumeFrom = journal.rx;
#       the stream goes on at ready.resumedFrom + 1: all that is resent are results, and they get new numbers
#   registry.drop()                    the session is lost (RESUME_FAILED ...): ends the running call, no results
#
#   journal.mark(tx, rx, epoch)        whenever they changed, before call() and step(); a few stores, no flash
#   registry.call(msg, now)            a valid tool.call (decoded dict); True: one that waits came again, for the same result
#   registry.close_epoch(closed)       the closed epoch rose, by interruption or `interrupted` (before sending anything)
#   registry.step(now, down, waiting)  every loop; `down` is the button's debounced level; advances at most one tool;
#                                      waiting: starts none, since the server may have closed its epoch unread
#   registry.results                   of each the members of a tool.result (callId, epoch, ok, ...): pop what is sent
#
#   registry.confirm.asking            a call awaits the button: LED "confirm", the button is ours until it is up again
#   registry.queue                     calls that are running, asking or queued
#   registry.uncertain                 a call with an effect was cut or failed: send `context`, then set it to False
#
# Nothing here is on the audio path; all of it may allocate. One loop calls it; no interrupt handler may. A MemoryError may
# leave step() and close_epoch() at any point: no tool runs twice for it, and the next step() ends what should have ended.
import json

from micropython import const

from vrt import diff, forget, once, tools
from vrt.errors import VrtError
from vrt.tools.arguments import canonical, kind
from vrt.tools.call import Call, digest_of, explain, output
from vrt.tools.journal import answer

_QUEUED_CALLS = const(8)
_QUEUED_BYTES = const(4096)  # of arguments, so that a full queue fits a small heap
_TEXT = const(200)  # characters of a message to the model
_LATE = const("interrupted before it started")
_FULL = const('{"ok":false,"code":"FAILED","message":"the memory is full; whether it was done is unknown"}')
_EVERY = const(1 << 32)  # above every epoch


class Registry:
    def __init__(self, journal, confirm, event, voice=False):
        # event(kind, **fields): the device's log. Every call ends with a `result`, and what was asked with a `confirm`.
        # voice: whether the configuration lets the host ask for confirmations (confirm="voice").
        self.queue_limit = _QUEUED_CALLS
        self.uncertain = False
        self.journal = journal
        self.confirm = confirm
        self._event = event
        self._voice = voice
        self.tools = []
        self.shelf = None  # the file with their declarations, see shelf.py
        self._state = None
        self._closed = -1
        self.queue = []  # calls without a result; the first one asks or runs once its `since` is set
        journal.queue = self.queue
        self.results = []

    # --- what the device offers

    def load(self, board):
        # The user's module `tools`: its declarations, setup(board) and, if there is one, state().
        module = __import__("tools")
        self.add(tools.declared)
        if hasattr(module, "setup"):
            module.setup(tools.Guarded(board))
        self._state = getattr(module, "state", None)
        # A third of this package; who needs it loads it again.
        forget("vrt.tools.declaration", "vrt.tools.recovery", "vrt.tools.rules")

    def add(self, declared):
        if not self._voice:
            from vrt.tools.declaration import forbid_voice  # noqa: PLC0415  (forgotten by load)

            forbid_voice(declared)
        self.tools.extend(declared)

    def context(self):
        return once("vrt.tools.report").context(self, self._state)

    # --- sessions

    def begin(self, session_id):
        self.drop()
        self.journal.begin(session_id)

    def resumed(self):
        # A restart interrupts: what was asked before it and has not started does not start now. The server still has the
        # turn, so only tools are closed to it, and it hears what became of its calls.
        self._closed = self.journal.epoch
        self.results.extend(once("vrt.tools.report").settle(self.journal))
        self.uncertain = True

    def drop(self):
        self.close_epoch(_EVERY)
        self._closed = -1
        self.results.clear()

    # --- calls

    def call(self, message, now):  # noqa: PLR0912  (a branch for each refusal)
        call = Call(message)
        shown = call.problem or call.arguments  # the log is JSON, and 1e999 is not
        self._event("call", call=call.call_id, name=call.name, epoch=call.epoch, arguments=shown)
        waiting = call.size
        for one in self.queue:
            if one.call_id == call.call_id:
                return True  # its one result is still to come
            if one.since is None:
                waiting += one.size
        kept = self.journal.find(call.call_id)
        if kept:
            digest, epoch, result = kept
            if digest != call.digest:
                epoch, result = call.epoch, _no("INVALID", "this callId had another call")
            self.results.append(answer(call.call_id, epoch, result))
            return False
        for one in self.tools:
            if one.name == call.name:
                call.tool = one
        code = "FAILED"
        if call.epoch <= self._closed:  # §6.2, also calls that come late or again
            code = "INTERRUPTED"
            text = _LATE
        elif call.tool is None:
            text = f"this device has no tool {call.name!r}"
        elif len(self.queue) + len(self.results) >= self.queue_limit or waiting > max(
            _QUEUED_BYTES, call.size
        ):  # one alone may be larger
            text = "not run: too many calls are waiting"
        else:
            code = "INVALID"
            text = call.problem
            if not text:
                text = once("vrt.tools.shelf").problem(self, call.tool, call.arguments)
        if text:
            self._end(call, _no(code, text))
        else:
            self.queue.append(call)
        return False

    def close_epoch(self, closed):
        # The epoch gate (§6.2): what is not running never starts, what runs is cut.
        self._closed = max(self._closed, closed)
        for call in list(self.queue):
            if call.epoch <= self._closed:
                self._interrupt(call)

    def step(self, now, down=False, waiting=False):
        if tools.running or not self.queue:  # running: a tool that runs the loop itself
            return
        call = self.queue[0]
        if call.result:  # there was no memory to end it
            call.close()
            self.uncertain = True
            self._end(call, _FULL)
        elif call.epoch <= self._closed:
            self._interrupt(call)
        elif call.paused is not None or not waiting:
            self._go_on(call, now, down)

    # --- the call at the head

    def _go_on(self, call, now, down):
        timeout_ms = call.tool.timeout_ms
        if call.since is None:
            call.since = now
            if call.tool.asks(call.arguments):
                self.confirm.ask(call.call_id, call.digest, call.epoch, now, timeout_ms)
                call.asked = True
                self._event("confirm_asked", call=call.call_id, name=call.name, arguments=call.arguments)
        if self.confirm.asking:
            outcome = self.confirm.poll(down, now)
            if outcome != "confirmed":
                if outcome:
                    text = "nobody confirmed it in time" if outcome == "expired" else "the user refused it"
                    self._end(call, _no("REJECTED", text))
                return
        if diff(now, call.since) >= timeout_ms:  # decisions 8
            self._cut(call, "TIMEOUT", f"it took longer than {timeout_ms} ms")
        elif call.paused is None:
            self._start(call, now)
        elif diff(now, call.paused) >= call.wait_ms:
            self._advance(call, now)

    def _start(self, call, now):
        digest = digest_of(call.name, call.arguments)[0]
        result = None
        call.result = _FULL  # unless there is memory to do it, and to say more
        if call.tool.asks(call.arguments) and not self.confirm.use(call.call_id, digest, call.epoch, now):
            result = _no("REJECTED", "what was confirmed is not this call")
        elif call.tool.effect == "irreversible":
            try:
                self.journal.started(call.call_id, digest, call.name, canonical(call.arguments), call.epoch)
            except OSError as error:
                result = _no("FAILED", f"not run: the journal cannot be written ({explain(error)})")
        if result:
            self._end(call, result)
            return
        if call.asked:
            call.asked = False
            self._event("confirm", call=call.call_id, outcome="confirmed")
        self._event("call_start", call=call.call_id, name=call.name)
        self._advance(call, now)

    def _advance(self, call, now):
        # Runs the function, or the generator up to its next yield.
        tools.running = call
        call.paused = now
        call.wait_ms = 0
        call.result = _FULL
        try:
            value = call.generator or call.tool.function(**call.arguments)
            if hasattr(value, "throw"):
                call.generator = value
                try:
                    value = next(value)
                    call.result = None
                except StopIteration as stop:
                    value = stop.value
            if call.result:
                call.result = '{"ok":true,"output":' + output(value) + "}"
            elif isinstance(value, str):
                self._event("progress", call=call.call_id, name=call.name, text=value)
            elif kind(value) == "integer":
                call.wait_ms = value
            elif value is not None:
                raise VrtError(  # noqa: TRY301  (like any other fault of the tool's)
                    f"a tool yields None, whole milliseconds or text, not {value!r}"
                )
        except Exception as error:
            call.result = _FULL
            if call.tool.effect != "none":
                self.uncertain = True
            call.result = _no("FAILED", explain(error))
        finally:
            tools.running = None
        if call.result or call.cancelled:
            call.close()
        if (
            call.result and not call.cancelled
        ):  # else cancelled by what the tool itself did, its result is given
            self._end(call, call.result)

    def _interrupt(self, call):
        self._cut(call, "INTERRUPTED", _LATE if call.paused is None else "its turn was interrupted")

    def _cut(self, call, code, why):
        # The call ends here, whatever its tool still does (§7.2).
        call.cancelled = True
        if call.paused is not None and call.tool.effect != "none":
            self.uncertain = True
        self._end(call, _no(code, why))
        if tools.running is not call:
            call.close()

    def _end(self, call, result):
        # The one result of a call, kept for whoever asks again.
        self.journal.done(call.call_id, call.digest, call.name, call.epoch, result)
        result = answer(call.call_id, call.epoch, result)
        self.results.append(result)
        if call in self.queue:
            if call is self.queue[0]:
                self.confirm.cancel()
            self.queue.remove(call)
        code = result.get("code")
        try:
            if call.asked:
                self._event("confirm", call=call.call_id, outcome=code, message=result.get("message"))
            self._event(
                "result", call=call.call_id, name=call.name, ok=result["ok"], code=code, result=result
            )
        except MemoryError:  # it is answered all the same
            pass


def _no(code, message):
    return json.dumps({"ok": False, "code": code, "message": message[:_TEXT]})
