"""The rules that hold for every frame of a server: each is seen to be kept, and each to be broken."""

import json

import pytest
from vrt_host.conformance.checks import Ledger, Outcome
from vrt_host.conformance.watch import ALWAYS, Watch

STREAMS = ["tool-stream-v1", "global-tool-ids-v1"]
PCMU = {"encoding": "pcmu", "sampleRate": 8000}
PCM16 = {"encoding": "pcm16", "sampleRate": 24000}


def message(type_, seq=0, **members):
    return json.dumps({"v": 1, "seq": seq, "type": type_, **members})


class Play:
    """Frames of a server, one after the other."""

    def __init__(self):
        self.ledger = Ledger(ALWAYS)
        self.watch = Watch(self.ledger)
        self.line = None
        self.seq = 0

    def connect(self, session="s-1", resume_from=None, resumed_from=None, **ready):
        """A connection with its hello and ready."""
        self.line = self.watch.line()
        hello = {"v": 1, "seq": 0, "type": "hello", "tools": [{"name": "lock"}]}
        if resume_from is not None:
            hello |= {"sessionId": session, "resumeFrom": resume_from}
            ready["resumedFrom"] = resumed_from or 0
        self.line.sent(hello)
        self.line.text(message("ready", sessionId=session, **{"input": PCMU, "output": PCMU, **ready}))
        return self

    def send(self, type_, **members):
        """The next sequenced message of the server."""
        self.seq += 1
        self.line.text(message(type_, self.seq, **members))
        return self

    def state(self, state, turn="t-1", epoch=1):
        return self.send("turn.state", turnId=turn, epoch=epoch, state=state)

    def call(self, call="c-1", turn="t-1", epoch=1, **members):
        return self.send(
            "tool.call",
            **{"callId": call, "name": "lock", "arguments": {}, "turnId": turn, "epoch": epoch, **members},
        )

    def stream(self, phase, call="c-1", **members):
        said = {"callId": call, "name": "lock", "turnId": "t-1", "epoch": 1, "phase": phase}
        return self.send("tool.stream", **{**said, **members})

    def raw(self, frame):
        self.line.text(frame)
        return self

    def audio(self, seq, payload=b"\0" * 160, kind=2):
        self.line.binary(bytes([kind]) + seq.to_bytes(4, "big") + payload)
        return self

    def outcomes(self):
        return {one.check.id.removeprefix("server."): one.outcome for one in self.ledger.findings()}


def start(play, epoch=1):
    return play.raw(message("audio.start", itemId="i", epoch=epoch, turnId="t-1"))


def turn(play):
    """A whole turn with a call, a stream, sound and an interruption, as it should be."""
    play.state("thinking").stream("start").stream("arguments-delta", delta="{").stream(
        "arguments-delta", delta="}"
    )
    play.stream("arguments-complete", arguments={}).call().stream("progress", progress=1).stream(
        "settled", ok=True
    )
    start(play).audio(0).audio(1)
    play.state("idle")
    play.state("thinking", "t-2", 2).send("interrupted", epoch=2)
    return play.stream("cancelled", "c-2", epoch=2, turnId="t-2").state("idle", "t-2", 2)


def test_server_that_keeps_all_rules_passes_them():
    play = Play().connect(capabilities=STREAMS, output=PCM16)
    play.line.sent({"type": "ping", "seq": 0})
    play.line.sent({"type": "context", "seq": 1})
    play.raw(message("pong")).raw(message("ack", upTo=1))
    turn(play)
    play.send("error", code="MALFORMED", recoverable=True)
    first = play.line
    play.connect(resume_from=play.seq, resumed_from=1, capabilities=STREAMS, output=PCM16)
    play.state("thinking", "t-3", 4)
    # Nothing but the call that was never begun is amiss; and a frame has to be sent again to be compared.
    play.connect(resume_from=play.seq - 1, resumed_from=1, capabilities=STREAMS, output=PCM16)
    play.seq -= 1
    play.state("thinking", "t-3", 4)
    assert first is not play.line
    bad = {check: outcome for check, outcome in play.outcomes().items() if outcome is not Outcome.PASSED}
    assert bad == {"streams.start-first": Outcome.FAILED}


BROKEN = [
    ("framing.schema", lambda play: play.raw("nonsense")),
    ("framing.schema", lambda play: play.raw(message("turn.state", 1, turnId="t", epoch=1))),
    ("framing.schema", lambda play: play.raw("[]")),
    ("framing.no-double-members", lambda play: play.raw('{"v":1,"v":1,"seq":0,"type":"pong"}')),
    ("framing.no-double-members", lambda play: play.raw('{"v":1,"seq":0,"type":"pong","x":{"a":1,"a":2}}')),
    ("framing.plain-integers", lambda play: play.raw('{"v":1.0,"seq":0,"type":"pong"}')),
    ("framing.plain-integers", lambda play: play.raw('{"v":1,"seq":0,"type":"ack","upTo":0e0}')),
    ("audio.frame-layout", lambda play: start(play).audio(0, kind=1)),
    ("audio.frame-layout", lambda play: play.line.binary(b"\x02\x00")),
    ("reliability.seq-classes", lambda play: play.raw(message("ack", 1, upTo=0))),
    ("reliability.seq-classes", lambda play: play.raw(message("interrupted", 0, epoch=1))),
    ("reliability.seq-contiguous", lambda play: (setattr(play, "seq", 1), play.state("idle"))),
    (
        "reliability.seq-contiguous",
        lambda play: (play.state("thinking"), setattr(play, "seq", 0), play.state("idle")),
    ),
    ("errors.seq", lambda play: play.raw(message("error", 0, code="MALFORMED", recoverable=True))),
    ("reliability.ack-not-ahead", lambda play: play.raw(message("ack", upTo=1))),
    ("sessions.ready-first", lambda play: play.raw(message("ready", sessionId="s", input=PCMU, output=PCMU))),
    ("resume.transient-not-resent", lambda play: play.raw(message("pong"))),
    (
        "resume.resent-unchanged",
        lambda play: (
            play.state("thinking"),
            play.connect(resume_from=0),
            setattr(play, "seq", 0),
            play.state("idle"),
        ),
    ),
    ("errors.flags", lambda play: play.send("error", code="MALFORMED", recoverable=False)),
    ("audio.start-before-frames", lambda play: play.audio(0)),
    (
        "audio.start-before-frames",
        lambda play: (start(play).audio(0), play.connect(resume_from=0), play.audio(1)),
    ),
    ("audio.seq", lambda play: start(play).audio(1)),
    ("audio.seq", lambda play: start(play).audio(0).audio(2)),
    ("audio.seq", lambda play: (start(play).audio(0).audio(1), start(play.connect(resume_from=0)).audio(1))),
    ("turns.epoch-never-falls", lambda play: play.state("thinking", epoch=2).state("speaking", epoch=1)),
    ("turns.epoch-rises", lambda play: play.state("thinking").state("idle").state("thinking", "t-2", 1)),
    ("turns.silent-after-interrupt", lambda play: play.send("interrupted", epoch=1).call()),
    ("turns.silent-after-interrupt", lambda play: play.send("interrupted", epoch=1).state("speaking")),
    ("turns.silent-after-interrupt", lambda play: start(play).audio(0).send("interrupted", epoch=1).audio(1)),
    (
        "turns.silent-after-interrupt",
        lambda play: play.send("interrupted", epoch=1).send("text", text="a", epoch=1),
    ),
    ("turns.idle-is-last", lambda play: play.state("idle").state("speaking")),
    ("tools.call-ids-unique", lambda play: play.call().call()),
    ("tools.calls-declared-tools", lambda play: play.call(name="reboot")),
]


@pytest.mark.parametrize(
    ("check", "act"), BROKEN, ids=[f"{one[0]}-{place}" for place, one in enumerate(BROKEN)]
)
def test_broken_rule_is_seen(check, act):
    play = Play().connect()
    act(play)
    assert play.outcomes()[check] is Outcome.FAILED


STREAMS_BROKEN = [
    ("streams.start-first", lambda play: play.stream("arguments-complete", arguments={})),
    ("streams.start-first", lambda play: play.stream("start").stream("start")),
    ("streams.arguments-once", lambda play: twice(play.stream("start"), "arguments-complete", arguments={})),
    (
        "streams.arguments-once",
        lambda play: (
            play.stream("start")
            .stream("arguments-complete", arguments={})
            .stream("arguments-delta", delta="x")
        ),
    ),
    ("streams.progress-in-between", lambda play: play.stream("start").stream("progress", progress=1)),
    ("streams.nothing-after-the-end", lambda play: twice(play.stream("start"), "cancelled")),
    ("streams.no-call-deltas", lambda play: play.send("tool.call.delta", callId="c", epoch=1, preview=1)),
    ("streams.same-identifiers", lambda play: play.stream("start").call(turn="t-9")),
    ("streams.same-identifiers", lambda play: play.stream("start").stream("cancelled", name="other")),
    ("turns.turn-ids-global", lambda play: (play.state("idle"), again(play).state("idle"))),
    ("tools.call-ids-global", lambda play: (play.call(), again(play).call(turn="t-9"))),
]


def twice(play, phase, **members):
    return play.stream(phase, **members).stream(phase, **members)


def again(play):
    """Another session."""
    play.seq = 0
    return play.connect("s-2", capabilities=STREAMS)


@pytest.mark.parametrize(
    ("check", "act"), STREAMS_BROKEN, ids=[f"{one[0]}-{place}" for place, one in enumerate(STREAMS_BROKEN)]
)
def test_broken_rule_of_a_capability_is_seen(check, act):
    play = Play().connect(capabilities=STREAMS)
    act(play)
    assert play.outcomes()[check] is Outcome.FAILED


def test_half_samples_are_warned_of():
    play = start(Play().connect(output=PCM16)).audio(0, b"\0" * 3)
    assert play.outcomes()["audio.whole-samples"] is Outcome.WARNED


def test_streams_without_the_capability_are_seen():
    assert Play().connect().stream("start").outcomes()["streams.only-when-negotiated"] is Outcome.FAILED


def test_two_sessions_may_share_ids_without_the_capability():
    play = Play().connect().state("idle")
    play.seq = 0
    play.connect("s-2").state("idle")
    assert play.outcomes()["turns.turn-ids-global"] is Outcome.NOT_TESTABLE


def test_a_message_before_ready_is_out_of_place():
    play = Play()
    play.line = play.watch.line()
    play.raw(message("pong")).raw(message("error", code="NO_SESSION", recoverable=False))
    assert "sessions.ready-first" not in {
        name for name, one in play.outcomes().items() if one is Outcome.FAILED
    }
    play.raw(message("ack", upTo=0))
    assert play.outcomes()["sessions.ready-first"] is Outcome.FAILED


def test_what_the_suite_sends_wrong_on_purpose_is_not_held_against_acks():
    play = Play().connect()
    play.line.sent_raw()
    assert play.raw(message("ack", upTo=9)).outcomes()["reliability.ack-not-ahead"] is Outcome.NOT_TESTABLE


def test_a_count_of_audio_that_begins_anew_or_goes_on_is_right_after_a_resume():
    for first in (0, 2, 7):
        play = start(Play().connect()).audio(0).audio(1)
        start(play.connect(resume_from=0)).audio(first)
        assert play.outcomes()["audio.seq"] is Outcome.PASSED


def test_the_count_of_audio_wraps():
    play = start(Play().connect())
    play.line._audio = 0xFFFF_FFFF
    assert play.audio(0).outcomes()["audio.seq"] is Outcome.PASSED


def test_a_refusal_after_ready_may_have_any_number():
    play = Play().connect(resume_from=7)
    play.seq = 0
    play.send("error", code="RESUME_FAILED", recoverable=False)
    assert Outcome.FAILED not in play.outcomes().values()
