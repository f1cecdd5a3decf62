"""The rules that hold for every frame of a client: each is seen to be kept, and each to be broken."""

import json

import pytest
from vrt_host.conformance.checks import Ledger, Outcome
from vrt_host.conformance.server import Connection
from vrt_host.conformance.watch_client import ALWAYS, ClientWatch

PCMU = {"encoding": "pcmu", "sampleRate": 8000}
PCM16 = {"encoding": "pcm16", "sampleRate": 24000}


class Link:
    """A transport that goes nowhere; `ear` is how a frame comes in."""

    target = "/"

    def text(self, data):
        pass

    def binary(self, data):
        pass


class Play:
    """A client's frames and a server's, over any number of connections."""

    def __init__(self, target="/"):
        self.ledger = Ledger(ALWAYS)
        self.watch = ClientWatch(self.ledger)
        self.target = target

    def connect(self, *, hello=True, ready=True, session="s-1", **members):
        link = Link()
        link.target = self.target
        self.connection = Connection(link)
        self.watch.look(self.connection)
        if hello:
            self.hear("hello")
        if ready:
            self.connection.say("ready", **{"sessionId": session, "input": PCMU, "output": PCMU, **members})
        return self

    def raw(self, kind, data):
        self.connection.link.ear(kind, data if isinstance(data, bytes) else data.encode())
        return self

    def hear(self, type_, seq=0, **members):
        return self.raw("text", json.dumps({"v": 1, "seq": seq, "type": type_, **members}))

    def audio(self, number, payload=b"\xff" * 160, kind=1):
        return self.raw("binary", bytes([kind]) + number.to_bytes(4, "big") + payload)

    def call(self, call="c-1", epoch=1):
        self.connection.say("tool.call", seq=1, callId=call, name="x", arguments={}, turnId="t", epoch=epoch)
        return self

    def result(self, seq, call="c-1", epoch=1, **members):
        return self.hear(
            "tool.result", seq, **{"callId": call, "epoch": epoch, "ok": True, "output": None, **members}
        )

    def item(self, item="i-1", ms=100):
        self.connection.say("audio.start", itemId=item, epoch=1)
        self.connection.audio(b"\xff" * (8 * ms))
        return self


def new():
    """An asyncio loop is needed for the times."""
    return Play().connect()


def resumed():
    """A second connection, on which three messages and one frame are known."""
    play = new()
    for seq in (1, 2, 3):
        play.hear("text", seq, text=f"{seq}")
    return play.audio(0).connect(resumedFrom=1)


CASES = {
    "client.link.well-formed": (
        lambda: new().raw("end", b"\x03\xe8"),
        lambda: new().raw("end", b"\x03\xeeincorrect masking"),
    ),
    "client.framing.schema": (lambda: new().hear("ping"), lambda: new().hear("ping", 1)),
    "client.framing.no-double-members": (
        lambda: new().hear("ping"),
        lambda: new().raw("text", '{"v":1,"seq":0,"type":"ack","upTo":0,"x":{"a":1,"a":2}}'),
    ),
    "client.framing.plain-integers": (
        lambda: new().hear("playback", 1, itemId="i", playedMs=1.5),
        lambda: new().raw("text", '{"v":1,"seq":0,"type":"ack","upTo":0.0}'),
    ),
    "client.audio.frame-layout": (lambda: new().audio(0), lambda: new().audio(0, kind=2)),
    "client.sessions.hello-first": (new, lambda: Play().connect(hello=False, ready=False).hear("ping")),
    "client.sessions.quiet-until-ready": (
        lambda: new().hear("text", 1, text="a"),
        lambda: Play().connect(ready=False).audio(0),
    ),
    "client.sessions.tool-names-unique": (
        lambda: Play().connect(hello=False).hear("hello", tools=[{"name": "a"}, {"name": "b"}]),
        lambda: Play().connect(hello=False).hear("hello", tools=[{"name": "a"}, {"name": "a"}]),
    ),
    "client.sessions.registered-capabilities": (
        lambda: Play().connect(hello=False).hear("hello", capabilities=["x-mine", "tool-stream-v1"]),
        lambda: Play().connect(hello=False).hear("hello", capabilities=["mine"]),
    ),
    "client.sessions.credential-not-in-url": (new, lambda: Play("/?token=s").connect()),
    "client.reliability.seq-contiguous": (
        lambda: resumed().hear("text", 2, text="2").hear("text", 3, text="3").hear("text", 4, text="4"),
        lambda: new().hear("text", 1, text="a").hear("text", 3, text="b"),
    ),
    "client.reliability.ack-not-ahead": (
        lambda: new().call().hear("ack", upTo=1),
        lambda: new().call().hear("ack", upTo=2),
    ),
    "client.resume.resent-unchanged": (
        lambda: resumed().hear("text", 2, text="2"),
        lambda: resumed().hear("text", 2, text="3"),
    ),
    "client.tools.one-result": (
        lambda: new().call().result(1),
        lambda: new().call().result(1).result(2, ok=False, code="FAILED", message="again"),
    ),
    "client.tools.result-names-call": (
        lambda: new().call().result(1),
        lambda: new().call().result(1, epoch=2),
    ),
    "client.audio.seq": (
        lambda: resumed().audio(7).audio(8),
        lambda: new().audio(0).audio(2),
    ),
    "client.audio.whole-samples": (
        lambda: Play().connect(input=PCM16).audio(0, b"12"),
        lambda: Play().connect(input=PCM16).audio(0, b"123"),
    ),
    "client.audio.played-of-sent": (
        lambda: new().item().hear("playback", 1, itemId="i-1", playedMs=100),
        lambda: new().item().hear("playback", 1, itemId="i-1", playedMs=120),
    ),
}


def outcome(play, check):
    return {one.check.id: one.outcome for one in play.ledger.findings()}[check]


@pytest.mark.parametrize("check", [check.id for check in ALWAYS])
async def test_rule_is_seen_to_be_kept_and_to_be_broken(check):
    kept, broken = CASES[check]
    assert outcome(kept(), check) is Outcome.PASSED
    assert outcome(broken(), check) in (Outcome.FAILED, Outcome.WARNED)


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        ("client.reliability.seq-contiguous", lambda: new().hear("text", 2, text="a")),
        ("client.reliability.seq-contiguous", lambda: resumed().hear("text", 5, text="a")),
        ("client.reliability.seq-contiguous", lambda: resumed().hear("text", 2, text="2").hear("text", 4, text="4")),
        ("client.reliability.seq-contiguous", lambda: resumed().connect(session="s-2").hear("text", 4, text="4")),
        ("client.tools.result-names-call", lambda: new().result(1)),
        ("client.audio.seq", lambda: new().audio(1)),
        ("client.audio.seq", lambda: new().audio(0).connect(session="s-2").audio(1)),
        ("client.audio.frame-layout", lambda: new().raw("binary", b"\1\0\0\0")),
        ("client.audio.played-of-sent", lambda: new().hear("playback", 1, itemId="none", playedMs=0)),
        ("client.framing.schema", lambda: new().raw("text", b"\xff")),
        ("client.framing.schema", lambda: new().raw("text", "[1]")),
        ("client.framing.schema", lambda: new().hear("ready")),
        ("client.framing.schema", lambda: new().raw("text", '{"v":1,"seq":0,"type":"hello","tools":[1]}')),
    ],
)  # fmt: skip
async def test_rule_is_broken_in_other_ways(check, broken):
    assert outcome(broken(), check) in (Outcome.FAILED, Outcome.WARNED)


async def test_rules_that_no_frame_touched_are_not_testable():
    play = Play().connect(ready=False)
    assert outcome(play, "client.audio.seq") is Outcome.NOT_TESTABLE
    assert outcome(play, "client.tools.one-result") is Outcome.NOT_TESTABLE


async def test_an_invalid_message_keeps_its_place_in_the_stream():
    play = new().result(1).hear("text", 2).hear("text", 3, text="a")
    assert outcome(play, "client.framing.schema") is Outcome.FAILED
    assert outcome(play, "client.reliability.seq-contiguous") is Outcome.PASSED


async def test_what_came_before_anybody_looked_is_seen():
    play = Play()
    link = Link()
    play.connection = Connection(link)
    play.hear("hello")
    play.watch.look(play.connection)
    play.hear("ping")
    assert outcome(play, "client.sessions.hello-first") is Outcome.PASSED
