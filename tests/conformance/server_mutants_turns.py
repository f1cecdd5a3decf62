"""Mutants of turns, calls, tool streams and items (vRT §6, §7, §8)."""

import uuid
from types import SimpleNamespace

from server_mutants import mutant
from server_mutants_wire import NOTHING, members, transients
from vrt_host import runner
from vrt_host.agents.base import Call, Tool
from vrt_host.agents.scripted import ScriptedAgent
from vrt_host.calls import CallDisplay, CallQueue, Calls
from vrt_host.playout import Segment
from vrt_host.protocol import wire
from vrt_host.session import Session
from vrt_host.tools import DeclaredTools
from vrt_host.turns import TurnManager


def states(patch, change):
    """Every turn.state goes through `change(members) -> members, or None to send nothing`."""
    members(patch, "turn.state", change)


def settled_without_display(patch):
    """A call may be settled after its turn, when there is nothing left to show of it."""
    real = Calls._settled
    patch.setattr(
        Calls,
        "_settled",
        lambda self, call, result: (
            real(self, call, result) if call.key in self._displays else self._answer(self._turn, result)
        ),
    )


# --- turns and epochs

NEXT = (
    "turns.new-turn",
    "resume.epoch-carried-over",
    "turns.next-turn-is-open",
    "turns.silent-after-interrupt",
)


@mutant("turns.first-epoch", may=("turns.silent-after-interrupt",))
def epochs_begin_at_0(patch):
    real = TurnManager.__init__

    def init(self, *args, **options):
        real(self, *args, **options)
        self.epoch = -1

    patch.setattr(TurnManager, "__init__", init)


@mutant(
    "turns.epoch-rises",
    "turns.new-turn",
    may=(*NEXT, "turns.interrupted-epoch", "turns.late-interrupt-ignored"),
)
def turns_do_not_raise_the_epoch(patch):
    real = TurnManager._on_turn_begin

    def on_turn_begin(self, event):
        self.epoch -= self.epoch > 0
        real(self, event)

    patch.setattr(TurnManager, "_on_turn_begin", on_turn_begin)


@mutant("turns.epoch-never-falls", may=("turns.silent-after-interrupt",))
def acting_is_of_the_epoch_before(patch):
    states(patch, lambda said: {**said, "epoch": said["epoch"] - 1} if said["state"] == "acting" else said)


@mutant("turns.silent-after-interrupt")
def text_follows_the_interruption(patch):
    real = TurnManager._interrupt

    def interrupt(self, reason):
        turn = self._turn
        real(self, reason)
        if turn is not None:
            self._out.send("text", text="one more thing", final=True, turnId=turn.id, epoch=turn.epoch)

    patch.setattr(TurnManager, "_interrupt", interrupt)


@mutant(
    "turns.silent-after-interrupt",
    may=("turns.truncated-to-playback", "turns.playback-at-most-sent", "turns.playback-of-unknown-item"),
)
def audio_follows_the_interruption(patch):
    real = TurnManager._interrupt

    def interrupt(self, reason):
        real(self, reason)
        for _ in range(3):
            self._session.send_audio(bytes(160))

    patch.setattr(TurnManager, "_interrupt", interrupt)


@mutant("turns.idle-is-last")
def text_follows_idle(patch):
    real = TurnManager._set_state

    def set_state(self, turn, state):
        real(self, turn, state)
        if state == "idle":
            self._out.send("text", text="", final=True, turnId=turn.id, epoch=turn.epoch)

    patch.setattr(TurnManager, "_set_state", set_state)


@mutant("turns.ends-idle", may=("turns.text-answered", "turns.new-turn", "turns.acting"))
def turns_of_calls_do_not_end(patch):
    real = TurnManager._finish

    def finish(self):
        second = (
            self._turn is not None
            and self._turn.epoch == 2
            and "tool-stream-v1" not in self._session.capabilities
        )
        if not (second and self._calls.issued):
            real(self)

    patch.setattr(TurnManager, "_finish", finish)


@mutant("turns.text-answered")
def texts_are_answered_by_silence(patch):
    members(patch, "text", lambda said: {**said, "text": ""} if said["text"] == "ok" else said)


@mutant("turns.acting")
def nobody_acts(patch):
    states(patch, lambda said: None if said["state"] == "acting" else said)


@mutant("turns.listening")
def nobody_listens(patch):
    states(patch, lambda said: {**said, "state": "thinking"} if said["state"] == "listening" else said)


@mutant("turns.speech-interrupts")
def nobody_hears(patch):
    patch.setattr("vrt_host.agents.scripted._Ear.hear", lambda self, level, ms: False)


# --- interruption

STUCK = ("turns.interrupted-epoch", "turns.next-turn-is-open", "turns.idle-interrupt-ignored")


@mutant("turns.interrupt-answered", may=STUCK)
def interrupts_by_keyboard_are_ignored(patch):
    real = TurnManager._interrupt
    patch.setattr(
        TurnManager, "_interrupt", lambda self, reason: None if reason == "keyboard" else real(self, reason)
    )


@mutant(
    "turns.interrupted-epoch",
    "turns.text-interrupts-first",
    may=("turns.silent-after-interrupt", "turns.speech-interrupts", "tools.timeout-closes-epoch"),
)
def interrupted_names_the_epoch_before(patch):
    members(patch, "interrupted", lambda said: {**said, "epoch": said["epoch"] - 1})


@mutant(
    "turns.next-turn-is-open",
    may=(
        "turns.silent-after-interrupt",
        "turns.interrupted-epoch",
        "turns.epoch-rises",
        "turns.new-turn",
        "turns.late-interrupt-ignored",
    ),
)
def the_next_turn_is_of_the_closed_epoch(patch):
    real = TurnManager._interrupt

    def interrupt(self, reason):
        flying = self._turn is not None
        real(self, reason)
        self.epoch -= 2 * flying

    patch.setattr(TurnManager, "_interrupt", interrupt)


@mutant("turns.idle-interrupt-ignored", may=("turns.late-interrupt-ignored",))
def every_interrupt_is_answered(patch):
    real = TurnManager.receive

    def receive(self, message, now):
        if message["type"] == "interrupt" and self._turn is None:
            self._out.send("interrupted", epoch=message["epoch"], reason="user")
        real(self, message, now)

    patch.setattr(TurnManager, "receive", receive)


@mutant("turns.late-interrupt-ignored", may=("errors.invalid-not-acted-on",))
def late_interrupts_count(patch):
    real = TurnManager.receive

    def receive(self, message, now):
        if message["type"] == "interrupt":
            message = {**message, "epoch": 1_000_000}
        real(self, message, now)

    patch.setattr(TurnManager, "receive", receive)


@mutant("turns.text-interrupts-first", may=("turns.text-reason", "turns.idle-text-interrupts-nothing"))
def texts_do_not_interrupt(patch):
    """The next turn does, but what is told is that it came first."""
    send, receive = Session.send, TurnManager.receive
    by_text, held = [], {}

    def received(self, message, now):
        by_text.append(message["type"] == "text")
        receive(self, message, now)
        by_text.pop()

    def sent(self, type_, /, **said):
        if type_ == "interrupted" and by_text and by_text[-1]:
            held[self] = said
            return True
        done = send(self, type_, **said)
        if self in held:
            send(self, "interrupted", **held.pop(self))
        return done

    patch.setattr(TurnManager, "receive", received)
    patch.setattr(Session, "send", sent)


@mutant("turns.text-reason")
def texts_interrupt_for_the_server_s_reason(patch):
    members(patch, "interrupted", lambda said: {**said, "reason": "server"})


@mutant(
    "turns.idle-text-interrupts-nothing",
    may=(
        "turns.text-interrupts-first",
        "turns.text-reason",
        "errors.invalid-not-acted-on",
        "turns.idle-interrupt-ignored",
    ),
)
def every_text_interrupts(patch):
    real = TurnManager.receive

    def receive(self, message, now):
        if message["type"] == "text" and self._turn is None:
            self._out.send("interrupted", epoch=self.epoch, reason="user")
            self.epoch += 1
        real(self, message, now)

    patch.setattr(TurnManager, "receive", receive)


@mutant("tools.pending-call-settled-by-interrupt")
def interruptions_do_not_settle_calls(patch):
    real = ScriptedAgent.tool_result
    patch.setattr(
        ScriptedAgent,
        "tool_result",
        lambda self, turn, result: None if result.code == "INTERRUPTED" else real(self, turn, result),
    )


@mutant(
    "tools.late-result-ignored",
    may=(
        "tools.result-after-timeout-ignored",
        "tools.second-result-ignored",
        "tools.unknown-result-ignored",
        "tools.earlier-result-ignored",
    ),
)
def late_results_count(patch):
    settle_all, answered = CallQueue.settle_all, CallQueue.answered
    late = {}

    def keep(self):
        settled = settle_all(self)
        late.update({call.id: call for call in settled})
        return settled

    def any_of_them(self, call_id, now):
        return answered(self, call_id, now) or late.get(call_id)

    patch.setattr(CallQueue, "settle_all", keep)
    patch.setattr(CallQueue, "answered", any_of_them)
    settled_without_display(patch)


@mutant("turns.truncated-to-playback", "turns.playback-of-unknown-item")
def playback_is_not_believed(patch):
    patch.setattr(Segment, "played", lambda self, now: self.sent)


@mutant("turns.playback-at-most-sent")
def playback_is_believed_without_limit(patch):
    patch.setattr(Segment, "played", lambda self, now: self.sent if self.reported is None else self.reported)


@mutant("turns.playback-of-unknown-item", "turns.truncated-to-playback")
def playback_of_any_item_counts(patch):
    real = TurnManager._on_playback

    def on_playback(self, item_id, seconds):
        if self._turn is not None and self._turn.items:
            item_id = next(iter(self._turn.items.values())).current_id
        real(self, item_id, seconds)

    patch.setattr(TurnManager, "_on_playback", on_playback)


# --- calls


@mutant("tools.call-names-turn", "streams.same-identifiers")
def calls_are_of_no_turn(patch):
    members(patch, "tool.call", lambda said: {**said, "turnId": str(uuid.uuid4())})


@mutant("tools.output-arrives")
def null_outputs_are_lost(patch):
    real = Calls.result

    def result(self, message, now):
        if message.get("output", 0) is None:
            message = {**message, "output": ""}
        real(self, message, now)

    patch.setattr(Calls, "result", result)


@mutant("tools.failure-arrives", may=("streams.settled-tells-code",))
def every_failure_is_failed(patch):
    real = Calls.result
    patch.setattr(
        Calls,
        "result",
        lambda self, message, now: real(
            self, message if message["ok"] else {**message, "code": "FAILED"}, now
        ),
    )


@mutant("tools.unknown-result-ignored", "tools.second-result-ignored", "tools.earlier-result-ignored")
def any_result_will_do(patch):
    real = CallQueue.answered
    patch.setattr(
        CallQueue, "answered", lambda self, call_id, now: real(self, next(iter(self._calls), ""), now)
    )


@mutant("tools.second-result-ignored", may=("tools.unknown-result-ignored",))
def the_last_result_counts(patch):
    agents = {}
    start, real = ScriptedAgent.start, Calls.result

    async def started(self, session, port):
        agents[port.id] = self
        await start(self, session, port)

    def result(self, message, now):
        real(self, message, now)
        if message.get("output") == "second":
            agents[self._session.id]._known["outcome"] = 'ok "second"'

    patch.setattr(ScriptedAgent, "start", started)
    patch.setattr(Calls, "result", result)


@mutant("tools.wrong-epoch-ignored")
def results_of_any_epoch_count(patch):
    """As our own host does it; it is a MAY."""


@mutant("tools.calls-declared-tools", "tools.undeclared-not-called")
def any_tool_is_called(patch):
    real = DeclaredTools.get
    patch.setattr(DeclaredTools, "get", lambda self, name: real(self, name) or Tool(name))
    patch.setattr(DeclaredTools, "arguments", lambda self, tool, given: dict(given))


@mutant("tools.timeout", may=("tools.timeout-closes-epoch", "tools.result-after-timeout-ignored"))
def calls_never_time_out(patch):
    patch.setattr(CallQueue, "overdue", lambda self, now: None)


@mutant("tools.timeout-closes-epoch")
def timeouts_leave_the_epoch_open(patch):
    def time_out(self):
        self._calls.time_out(self._now)

    patch.setattr(TurnManager, "_time_out", time_out)
    tool_result = ScriptedAgent.tool_result

    def told(self, turn, result):
        if result.code == "TIMEOUT":  # or the script would think that its turn is over
            self._known["outcome"] = "TIMEOUT"
            self._tools.pop(result.call, None)
            self._run.calls[result.call].set_result(result)
        else:
            tool_result(self, turn, result)

    patch.setattr(ScriptedAgent, "tool_result", told)


@mutant("tools.result-after-timeout-ignored", may=("tools.timeout-closes-epoch",))
def results_after_a_timeout_count(patch):
    time_out, answered = Calls.time_out, CallQueue.answered
    late = {}

    def keep(self, now):
        call = self._queue.overdue(now)
        late[call.id] = call
        time_out(self, now)

    patch.setattr(Calls, "time_out", keep)
    patch.setattr(
        CallQueue, "answered", lambda self, call_id, now: answered(self, call_id, now) or late.get(call_id)
    )
    settled_without_display(patch)


@mutant(
    "tools.preview-alone-calls-nothing",
    "streams.failed-when-not-issued",
    may=("tools.previews-make-arguments",),
)
def broken_calls_are_repaired(patch):
    real = ScriptedAgent._call

    def call(self, run, turn, action):
        real(self, run, turn, action)
        if action.unfinished:
            self._port.emit(Call(turn, f"call-{next(self._keys)}", action.tool, action.arguments))

    patch.setattr(ScriptedAgent, "_call", call)


@mutant("tools.previews-make-arguments", "streams.deltas-make-arguments")
def the_first_fragment_is_lost(patch):
    real = CallDisplay.delta

    def delta(self, fragment):
        if fragment.startswith("{"):
            return
        real(self, fragment)

    patch.setattr(CallDisplay, "delta", delta)


# --- tool streams


def phases(patch, change):
    """Every `tool.stream` message of a call: `change(self, phase, members, send)` sends what it wants."""
    real = CallDisplay._stream

    def stream(self, phase, **said):
        change(self, phase, said, lambda name, **other: real(self, name, **other))

    patch.setattr(CallDisplay, "_stream", stream)


@mutant("streams.only-when-negotiated", may=("tools.previews-make-arguments",))
def streams_for_everybody(patch):
    real = CallDisplay.__init__

    def init(self, *args, streams):
        real(self, *args, streams=True)

    patch.setattr(CallDisplay, "__init__", init)
    patch.setattr("vrt_host.session.wire", SimpleNamespace(**{**vars(wire), "gated": dict}))


@mutant("streams.no-call-deltas", may=("streams.deltas-make-arguments",))
def deltas_beside_the_streams(patch):
    real = CallDisplay.delta

    def delta(self, fragment):
        real(self, fragment)
        if self._streams:
            self._out.send("tool.call.delta", **self._members, preview={"argumentsDelta": fragment})

    patch.setattr(CallDisplay, "delta", delta)


@mutant(
    "streams.every-call",
    may=(
        "streams.one-terminal",
        "streams.complete-arguments",
        "streams.deltas-make-arguments",
        "streams.settled-tells-code",
        "streams.cancelled-by-interrupt",
        "streams.failed-when-not-issued",
        "streams.own-tools",
        "streams.start-first",
    ),
)
def no_streams(patch):
    patch.setattr(CallDisplay, "_stream", NOTHING)


@mutant("streams.start-first", may=("streams.own-tools",))
def streams_without_a_start(patch):
    phases(patch, lambda self, phase, said, send: phase == "start" or send(phase, **said))


@mutant("streams.arguments-once", "streams.complete-arguments", may=("streams.own-tools",))
def arguments_complete_twice(patch):
    def change(self, phase, said, send):
        send(phase, **said)
        if phase == "arguments-complete":
            send(phase, **said)

    phases(patch, change)


@mutant("streams.progress-in-between", "streams.own-tools")
def progress_before_the_arguments(patch):
    def change(self, phase, said, send):
        if phase == "arguments-complete" and self._members["name"] == "test.work":
            send("progress", progress=0)
        send(phase, **said)

    phases(patch, change)


@mutant("streams.nothing-after-the-end", "streams.one-terminal", may=("streams.cancelled-by-interrupt",))
def settled_twice(patch):
    def change(self, phase, said, send):
        send(phase, **said)
        if phase == "settled" and self._members["name"] == "test.echo":
            send(phase, **said)

    phases(patch, change)


@mutant(
    "streams.one-terminal",
    may=(
        "streams.complete-arguments",
        "streams.deltas-make-arguments",
        "streams.settled-tells-code",
        "streams.every-call",
    ),
)
def streams_without_an_end(patch):
    phases(
        patch,
        lambda self, phase, said, send: (
            None if phase == "settled" and self._members["name"] == "test.echo" else send(phase, **said)
        ),
    )


@mutant("streams.complete-arguments")
def arguments_are_left_out(patch):
    phases(
        patch,
        lambda self, phase, said, send: send(
            phase, **({**said, "arguments": {}} if "arguments" in said else said)
        ),
    )


@mutant("streams.settled-tells-code")
def streams_always_succeed(patch):
    phases(
        patch, lambda self, phase, said, send: send(phase, **({"ok": True} if phase == "settled" else said))
    )


@mutant("streams.cancelled-by-interrupt")
def cancelled_is_called_settled(patch):
    def change(self, phase, said, send):
        if phase == "cancelled":
            phase, said = "settled", {"ok": False, "code": "INTERRUPTED"}
        send(phase, **said)

    phases(patch, change)


@mutant("streams.failed-when-not-issued")
def broken_calls_are_called_cancelled(patch):
    phases(
        patch,
        lambda self, phase, said, send: send("cancelled") if phase == "failed" else send(phase, **said),
    )


@mutant("streams.own-tools")
def own_tools_have_no_progress(patch):
    phases(patch, lambda self, phase, said, send: phase == "progress" or send(phase, **said))


@mutant("streams.settled-without-output")
def settled_tells_the_output(patch):
    phases(
        patch,
        lambda self, phase, said, send: send(
            phase, **({**said, "output": 7} if phase == "settled" else said)
        ),
    )


@mutant("streams.same-identifiers")
def streams_are_of_another_turn(patch):
    def change(self, phase, said, send):
        if phase != "start":
            self._members = {**self._members, "turnId": str(uuid.uuid4())}
        send(phase, **said)

    phases(patch, change)


@mutant("streams.supported", may=("streams.only-when-negotiated",))
def no_streams_supported(patch):
    patch.setattr(runner, "CAPABILITIES", ("global-tool-ids-v1",))


@mutant("tools.global-ids-supported")
def no_global_ids_supported(patch):
    patch.setattr(runner, "CAPABILITIES", ("tool-stream-v1",))


# --- items


@mutant("audio.item-of-turn")
def items_are_of_another_epoch(patch):
    transients(patch, "audio.start", lambda said: {**said, "epoch": said["epoch"] + 1})


@mutant("audio.output-format")
def ready_tells_another_format(patch):
    real = runner.to_json
    patch.setattr(
        runner,
        "to_json",
        lambda format_: (
            {"encoding": "pcm16", "sampleRate": 24000} if format_.encoding == "pcmu" else real(format_)
        ),
    )


@mutant(
    "audio.default-format",
    "audio.otherwise-pcm16",
    may=(
        "audio.output-format",
        "turns.playback-at-most-sent",
        "turns.truncated-to-playback",
        "turns.speech-interrupts",
    ),
)
def ready_tells_mu_law(patch):
    pcmu = {"encoding": "pcmu", "sampleRate": 8000}
    transients(patch, "ready", lambda said: {**said, "input": pcmu, "output": pcmu})
