"""Our firmware with one rule broken: calls, the gate, errors, the link, audio."""

import json
from types import SimpleNamespace

from mutation import breaks, heard, rewrite, wrap
from vrt.conversation import Conversation
from vrt.links import frames_plain
from vrt.links.websocket import WebSocket
from vrt.links.ws import WebSocketLink
from vrt.protocol import session
from vrt.protocol.session import Session
from vrt.sound import Sound
from vrt.tools import registry
from vrt.tools.registry import Registry

# --- calls


@breaks("client.tools.result-names-call", rare=True)
def results_of_the_next_epoch():
    def change(message):
        if message["type"] == "tool.result":
            message["epoch"] += 1
        return message

    rewrite(change)


@breaks("client.tools.identifiers-opaque", "client.tools.result-names-call", rare=True)
def identifiers_trimmed():
    def change(message):
        if message["type"] == "tool.result":
            message["callId"] = message["callId"].strip() or "none"
        return message

    rewrite(change)


@breaks(
    "client.tools.every-call-answered",
    also=["client.tools.in-order", "client.tools.one-at-a-time"],
    rare=True,
)
def one_result_is_forgotten():
    def end(method, self, call, result):
        method(self, call, result)
        if call.arguments == {"ms": 100}:
            self._results.pop()

    wrap(Registry, "_end", end)


@breaks("client.tools.one-result", also=["client.resume.handled-once"])  # when a cut falls between the two
def results_twice():

    def result(method, self, made):
        method(self, dict(made))
        self.pending += 1
        method(self, made)

    wrap(Session, "result", result)


@breaks(
    "client.tools.in-order",
    "client.tools.one-at-a-time",
    "client.interrupt.queued-call-interrupted",  # they run before the interruption, which is a call too
    "client.interrupt.queued-call-not-started",
    rare=True,
)
def the_newest_call_first():

    def call(method, self, message, now):
        method(self, message, now)
        if len(self.queue) > 1:
            self.queue.insert(1, self.queue.pop())

    wrap(Registry, "call", call)


@breaks(
    "client.tools.in-order",
    "client.tools.one-at-a-time",
    "client.gate.queued-call-interrupted",  # no call is queued
    "client.gate.queued-call-not-started",
)
def calls_side_by_side():

    def step(method, self, *arguments):
        for _ in range(len(self.queue)):
            method(self, *arguments)
            if self.queue:
                self.queue.append(self.queue.pop(0))

    wrap(Registry, "step", step)


@breaks("client.tools.unknown-tool-is-failed", "client.tools.exact-tool-names", rare=True)
def unknown_tools_are_rejected():
    def change(message):
        if message.get("code") == "FAILED" and "has no tool" in message["message"]:
            message["code"] = "REJECTED"
        return message

    rewrite(change)


@breaks("client.tools.exact-tool-names", rare=True)
def names_of_tools_in_any_case():

    def call(method, self, message, now):
        method(self, dict(message, name=message["name"].strip().lower()), now)

    wrap(Registry, "call", call)


@breaks("client.tools.failure-is-failed", "client.tools.failure-has-message", rare=True)
def a_failing_tool_kills():

    def explain(error):
        raise SystemExit(1)

    registry.explain = explain


@breaks("client.tools.invalid-arguments", "client.tools.invalid-runs-nothing")
def arguments_unchecked():

    def problem(registry, tool, arguments):
        return None

    once = registry.once
    registry.once = lambda name: SimpleNamespace(problem=problem) if name == "vrt.tools.shelf" else once(name)

    def advance(method, self, call, now):
        if type(call.arguments) is not dict or type(call.arguments.get("ms", 0)) is not int:
            call.arguments = {"ms": 0} if call.name == "test.slow" else {}
        method(self, call, now)

    wrap(Registry, "_advance", advance)


@breaks("client.tools.preview-runs-nothing", "client.tools.result-names-call", rare=True)
def previews_run():

    def handle(method, self, kind, event, now):
        method(self, kind, event, now)
        preview = event.get("preview") if kind == "tool.call.delta" else None
        if isinstance(preview, dict) and preview.get("done"):
            call = dict(event, type="tool.call", arguments=preview["arguments"])
            self.session.pending += 1
            method(self, "tool.call", call, now)

    wrap(Conversation, "_handle", handle)


# --- the gate


EVERY = 0xFFFFFFFF
"""Above every epoch that is used here."""


def _running(call):
    return call.paused is not None


def ungated(method, self, *arguments):
    """A method of the registry's for which no epoch is closed."""
    closed, self._closed = self._closed, -1
    method(self, *arguments)
    self._closed = max(closed, self._closed)


@breaks(
    "client.gate.running-call-interrupted",
    "client.gate.running-call-cancelled",
    "client.interrupt.running-call-interrupted",
)
def running_calls_run_on():

    def interrupt(method, self, call):
        if not _running(call):
            method(self, call)

    def step(method, self, *arguments):
        running = self.queue and _running(self.queue[0])
        return ungated(method, self, *arguments) if running else method(self, *arguments)

    wrap(Registry, "_interrupt", interrupt)
    wrap(Registry, "step", step)


@breaks(
    "client.gate.queued-call-not-started",
    "client.interrupt.queued-call-not-started",
    also=[
        "client.gate.queued-call-interrupted",
        "client.interrupt.queued-call-interrupted",
    ],  # cut once they run
)
def queued_calls_start():
    def interrupt(method, self, call):
        if _running(call):
            method(self, call)

    wrap(Registry, "_interrupt", interrupt)
    wrap(Registry, "step", ungated)


@breaks(
    "client.gate.queued-call-interrupted",
    "client.gate.queued-call-not-started",
    "client.gate.interrupted-behind-a-resent-call",
    "client.interrupt.queued-call-interrupted",
    "client.interrupt.queued-call-not-started",
    rare=True,
)
def queued_calls_run():
    def close_epoch(method, self, closed):
        for call in self.queue:
            if self._closed < closed < EVERY and call.epoch <= closed and not _running(call):
                call.epoch_said, call.epoch = call.epoch, EVERY
        method(self, closed)

    def end(method, self, call, result):
        call.epoch = getattr(call, "epoch_said", call.epoch)
        method(self, call, result)

    wrap(Registry, "close_epoch", close_epoch)
    wrap(Registry, "_end", end)


@breaks(
    "client.gate.late-call-interrupted",
    "client.gate.late-call-not-started",
    "client.gate.lower-epochs-closed",
    "client.gate.future-epoch-closed",
    "client.gate.second-interrupted-ignored",
    "client.gate.closed-over-a-resume",
    "client.gate.resent-call-interrupted",
    "client.gate.resent-call-not-started",
    "client.interrupt.closes-at-once",
    also=["client.interrupt.queued-call-not-started", "client.audio.closed-epoch-not-played"],
)
def interruptions_are_forgotten():
    def silence(method, self, *reason):
        method(self, *reason)
        self.session.closed = self.tools._closed = -1

    wrap(Conversation, "silence", silence)


@breaks(
    "client.gate.newer-epoch-runs",
    "client.gate.second-interrupted-ignored",
    "client.interrupt.echo-ignored",
)
def interrupted_cuts_everything():
    def close(self, epoch):
        self.closed = max(self.closed, epoch)
        return True

    def silence(method, self, *reason):
        for call in list(self.tools.queue):
            self.tools._cut(call, "INTERRUPTED", "all are cut")
        method(self, *reason)

    Session.close = close
    wrap(Conversation, "silence", silence)


@breaks("client.gate.second-interrupted-ignored", rare=True)
def interrupted_opens_what_is_above():

    def close(self, epoch):
        self.closed = epoch
        return True

    def close_epoch(method, self, closed):
        if closed < (1 << 32):
            self._closed = min(self._closed, closed)
        method(self, closed)

    Session.close = close
    wrap(Registry, "close_epoch", close_epoch)


@breaks("client.interrupt.names-observed-epoch")
def the_last_epoch_counts_as_observed():

    def apply(method, self, kind, message):
        fresh = method(self, kind, message)
        if "epoch" in message and kind != "interrupted":
            self.observed = message["epoch"]
        return fresh

    wrap(Session, "_apply", apply)


@breaks("client.interrupt.once", rare=True)
def interrupts_twice():

    def interrupt(method, self, epoch, reason):
        method(self, epoch, reason)
        method(self, epoch, reason)

    wrap(Session, "interrupt", interrupt)


@breaks(
    "client.interrupt.running-call-interrupted",
    "client.interrupt.queued-call-interrupted",
    "client.interrupt.queued-call-not-started",
    "client.interrupt.closes-at-once",
    "client.audio.playback-before-interrupt",
)
def the_server_is_asked_to_interrupt():

    def silence(method, self, reason=None):
        if reason:
            self.session.interrupt(self.session.observed, reason)
        else:
            method(self)

    wrap(Conversation, "silence", silence)


@breaks("client.gate.above-is-open", also=["client.gate.", "client.interrupt.", "client.audio."], rare=True)
def interrupted_closes_everything_to_come():
    def change(message):
        if message["type"] == "interrupted":
            message["epoch"] = 0xFFFFFFFF

    heard(change)


@breaks("client.streams.runs-nothing", also=["client.tools.result-names-call"], rare=True)
def streams_run_their_calls():
    offer_streams()

    def handle(method, self, kind, event, now):
        method(self, kind, event, now)
        if kind == "tool.stream" and event["phase"] == "arguments-complete":
            self.session.pending += 1
            method(self, "tool.call", dict(event, type="tool.call"), now)

    wrap(Conversation, "_handle", handle)


@breaks("client.streams.phases-survived", also=["client.streams.runs-nothing"], rare=True)
def cancelled_streams_kill():
    offer_streams()

    def change(message):
        if message.get("phase") == "cancelled":
            raise SystemExit(1)

    heard(change)


def offer_streams():
    def change(message):
        if message["type"] == "hello":
            message["capabilities"] = ["tool-stream-v1"]
        return message

    rewrite(change)


# --- errors


@breaks(
    "client.errors.unsupported-version",
    "client.errors.invalid-not-acted-on",
    # some of what is acted on ends a session, or is a call that was answered before
    also=["client.errors.invalid-survived", "client.errors.keeps-connection", "client.tools.one-result"],
    slow=True,
    rare=True,
)
def any_version():

    decode = session.decode

    def lax(buf, n):
        try:
            message = json.loads(bytes(buf[:n]))
        except ValueError:
            return decode(buf, n)
        if not isinstance(message, dict) or message.get("v") == 1:
            return decode(buf, n)
        data = json.dumps(dict(message, v=1)).encode()
        return decode(bytearray(data), len(data))

    session.decode = lax


@breaks("client.errors.inherited-names", "client.tools.result-names-call", rare=True)
def types_in_any_case():

    decode = session.decode

    def lax(buf, n):
        data = bytes(buf[:n]).replace(b'"TOOL.CALL"', b'"tool.call"').replace(b'"tool.call "', b'"tool.call"')
        return decode(bytearray(data), len(data))

    session.decode = lax


@breaks("client.errors.type-of-other-direction", "client.tools.result-names-call", rare=True)
def types_of_both_directions():

    decode = session.decode

    def lax(buf, n):
        data = bytes(buf[:n]).replace(b'"type": "tool.result"', b'"type": "tool.call"')
        return decode(bytearray(data), len(data))

    session.decode = lax


@breaks(
    "client.errors.invalid-survived",
    "client.errors.invalid-not-acted-on",
    "client.errors.keeps-connection",
    slow=True,
    rare=True,
)
def broken_json_kills():

    decode = session.decode

    def fragile(buf, n):
        json.loads(bytes(buf[:n]))
        return decode(buf, n)

    session.decode = fragile


@breaks("client.errors.valid-survived", also=["client.reliability.last-seq-survived"], slow=True, rare=True)
def long_identifiers_kill():
    def change(message):
        assert len(message.get("itemId", "")) < 256

    heard(change)


@breaks("client.errors.unknown-code-recoverable", "client.errors.unknown-code-final", rare=True)
def unknown_errors_are_final():

    def handle(method, self, kind, event, now):
        unknown = kind == "error" and event["code"] != "AGENT_ERROR" and self.session.state == "open"
        method(self, kind, dict(event, recoverable=False) if unknown else event, now)

    wrap(Conversation, "_handle", handle)


@breaks("client.errors.unknown-code-final", rare=True)
def errors_are_never_final():

    def handle(method, self, kind, event, now):
        method(self, kind, dict(event, recoverable=True) if kind == "error" else event, now)

    wrap(Conversation, "_handle", handle)


# --- the link


@breaks("client.link.pong-echoes")
def pongs_are_empty():

    def handle(method, self, got):
        if got == 9:
            self._state[12] = 0
        method(self, got)

    wrap(WebSocket, "_handle", handle)


@breaks("client.link.closing-handshake", also=["client.link.closes-with-its-code"], rare=True)
def close_frames_are_not_answered():
    def send_close(method, self, code):
        self.cannot_send()

    wrap(WebSocket, "_send_close", send_close)


@breaks("client.link.closes-with-its-code", rare=True)
def every_close_is_answered_by_1000():
    wrap(WebSocket, "_send_close", lambda method, self, code: method(self, 1000))


@breaks(
    "client.link.fragments", "client.link.ping-between-fragments", also=["client.link.slow-bytes"], rare=True
)
def fragments_are_dropped():
    begin = frames_plain._begin_payload

    def dropping(st):
        failed = begin(st)
        if st[6] < 0x80:
            st[10] = 1
        return failed

    frames_plain._begin_payload = dropping


@breaks("client.link.slow-bytes", rare=True)
def slow_messages_are_dropped():
    def next_event(method, self, n):
        self.short = self.short + 1 if n == 1 and self.want > 1 else 0
        if self.short > 20:
            self._state[10] = 1
        return method(self, n)

    WebSocket.short = 0
    wrap(WebSocket, "next_event", next_event)


@breaks("client.link.well-formed", also=["client.resume.beyond-last-sent", "client.link."], rare=True)
def a_last_frame_without_a_mask():
    def close(method, self, code):
        if self.sock:
            self.sock.write(b"\x81\x00", 0, 2)
        method(self, code)

    wrap(WebSocketLink, "close", close)


# --- audio


@breaks("client.audio.frame-layout", settings=("listen=open",), rare=True)
def audio_of_the_wrong_kind():

    def number(method, self, frame):
        method(self, frame)
        frame[0] = 2

    wrap(Session, "number", number)


@breaks("client.audio.seq", settings=("listen=open",), rare=True)
def audio_counts_by_two():

    def number(method, self, frame):
        method(self, frame)
        method(self, frame)

    wrap(Session, "number", number)


@breaks("client.audio.input-pcm16-24000", "client.audio.whole-samples", settings=("listen=open",), rare=True)
def one_input_format_for_all():

    def adopt(method, self, ready):
        method(self, dict(ready, input={"encoding": "pcmu", "sampleRate": 8000}))
        if self.mic:
            self.mic.n -= self.mic.n % 2

    wrap(Sound, "adopt", adopt)


@breaks("client.audio.input-format", settings=("listen=open",), rare=True)
def always_pcm16():
    def adopt(method, self, ready):
        method(self, dict(ready, input={"encoding": "pcm16", "sampleRate": 24000}))

    wrap(Sound, "adopt", adopt)


@breaks("client.audio.output-pcm16-24000", rare=True)
def plays_no_pcm16():
    def adopt(method, self, ready):
        method(self, ready)
        if self.output[0] == "pcm16":
            self.speaker.close()
            self.speaker = None

    wrap(Sound, "adopt", adopt)


@breaks("client.audio.playback-reports-part", rare=True)
def playback_is_never_reported():
    Session.playback = lambda self, item, played_ms: None


@breaks("client.audio.last-start-counts", also=["client.audio."], rare=True)
def a_second_item_belongs_to_the_first():
    def apply(method, self, kind, event, now):
        if kind != "audio.start" or not self.sound.speaker._queue:
            method(self, kind, event, now)

    wrap(Conversation, "_apply", apply)


@breaks("client.audio.closed-epoch-not-played")
def audio_of_closed_epochs():

    def apply(method, self, kind, message):
        fresh = method(self, kind, message)
        if kind == "audio.start":
            self._item_epoch = 1 << 32
            return True
        return fresh

    wrap(Session, "_apply", apply)


@breaks("client.audio.frames-without-item", "client.audio.played-of-sent")
def the_item_outlives_the_connection():

    def lost(method, self, now, code):
        epoch = self._item_epoch
        method(self, now, code)
        if self.id is not None:
            self._item_epoch = epoch

    wrap(Session, "lost", lost)


@breaks("client.audio.stops-when-listening", rare=True)
def the_user_is_talked_over():

    def apply(method, self, kind, event, now):
        if kind == "turn.state" and event["state"] == "listening":
            return
        method(self, kind, event, now)

    wrap(Conversation, "_apply", apply)


@breaks("client.audio.playback-before-interrupt", rare=True)
def interrupt_before_playback():

    def silence(method, self, reason=None):
        session = self.session
        waiting = []
        keep, session.playback = session.playback, lambda *part: waiting.append(part)
        method(self, reason)
        session.playback = keep
        for part in waiting:
            session.playback(*part)

    wrap(Conversation, "silence", silence)


@breaks("client.audio.played-of-sent", rare=True)
def twice_as_much_was_played():
    def change(message):
        if message["type"] == "playback":
            message["playedMs"] = 2 * message["playedMs"] + 500
        return message

    rewrite(change)


@breaks("client.audio.malformed-frame", "client.audio.valid-frames", rare=True)
def short_frames_kill():

    def receive(method, self, buf, n):
        assert n >= 5
        return method(self, buf, n)

    wrap(Session, "receive_audio", receive)
