"""The vectors of schema/examples, sent to a server before hello and in an open session (vRT §8.1, §9.1)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from vrt_host.conformance.checks import Sheet, Unmet, must, shown
from vrt_host.conformance.client import Server
from vrt_host.conformance.line import Line
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server_cases.sound import PCMU
from vrt_host.protocol import wire
from vrt_host.protocol.wire import Message

BATCH = 64
"""Vectors on one connection: a server that gives up on one is asked again on the next."""
MU_LAW = {"input": PCMU, "output": PCMU}
"""A format without half samples: a server that plays back what it hears shall not send any."""
PING: Message = {"v": 1, "seq": 0, "type": "ping"}
HELLO_ANSWERS = ("ready", "UNAUTHORIZED", "RESUME_FAILED", "START_FAILED")
ABOUT_A_FRAME = frozenset(
    {"MALFORMED", "UNSUPPORTED_VERSION", "UNKNOWN_TYPE", "INVALID_FIELD", "NO_SESSION", "DUPLICATE_HELLO"}
)

EITHER = {
    "client.json.name-twice": "which of two members counts is left open (RFC 8259 §4)",
    "client.malformed.bom": "a byte order mark may be ignored (RFC 8259 §8.1)",
    "client.malformed.deep-arrays": "how deep a receiver reads is left open (§11)",
    "client.malformed.deep-objects": "how deep a receiver reads is left open (§11)",
    "client.order.field-seq-huge": "the range of numbers is left open (RFC 8259 §6)",
    "client.order.field-seq-long": "the precision of numbers is left open (RFC 8259 §6)",
    "client.order.lone-surrogate": "what half a surrogate pair means is left open (RFC 8259 §8.2)",
}
"""Vectors that two right receivers may answer in different ways, and why; any answer of §9.1 passes."""


INHERITED = frozenset(
    f"client.order.type-{name}" for name in ("proto", "to-string", "constructor", "has-own", "dunder")
)
"""Those whose type is a property that objects of some languages inherit."""


@dataclass(frozen=True, slots=True)
class Vector:
    """One case of schema/examples."""

    id: str
    frame: str | bytes
    expect: str
    type: str
    """The type of a valid message; empty for others."""

    @property
    def check(self) -> str:
        """The check that it is for."""
        if isinstance(self.frame, bytes):
            return "server.audio.malformed-frame"
        if "-before-" in self.id:
            return "server.errors.first-rule-counts"
        if self.id in INHERITED:
            return "server.errors.inherited-names"
        return "server.errors." + (
            "valid-accepted" if self.expect == "valid" else self.expect.lower().replace("_", "-")
        )

    def allows(self, code: str | None) -> bool:
        """Whether it may be answered like this; None: not with an error."""
        if self.id in EITHER:
            return code in (None, "MALFORMED", "UNSUPPORTED_VERSION", "INVALID_FIELD")
        return code == (None if self.expect == "valid" else self.expect)


@cache
def vectors() -> tuple[Vector, ...]:
    """All that a client could send."""
    found = []
    folder = wire.schema_folder() / "examples"
    for path in (*sorted((folder / "client").glob("*.json")), folder / "binary" / "input.json"):
        for case in json.loads(path.read_text("utf-8")):
            frame: str | bytes
            if "hex" in case:
                frame = bytes.fromhex(case["hex"])
            else:
                frame = case["text"] if "text" in case else json.dumps(case["json"])
            type_ = ""
            if case["expect"] == "valid" and isinstance(frame, str):
                type_ = json.loads(frame)["type"]
            found.append(Vector(case["id"], frame, case["expect"], type_))
    return tuple(found)


VECTORS = (
    must("server.errors.valid-accepted", "§9.1", "valid messages are taken for valid"),
    must("server.errors.malformed", "§9.1", "what is no JSON object is answered MALFORMED"),
    must("server.errors.unsupported-version", "§3.1", "another v is answered UNSUPPORTED_VERSION"),
    must("server.errors.unknown-type", "§9.1", "another type is answered UNKNOWN_TYPE"),
    must("server.errors.inherited-names", "§9.1", "type is not looked up among inherited properties"),
    must("server.errors.invalid-field", "§9.1", "what the schema forbids is answered INVALID_FIELD"),
    must("server.errors.first-rule-counts", "§9.1", "of several broken rules the first one counts"),
    must("server.audio.malformed-frame", "§8.1", "valid audio frames are taken, others answered MALFORMED"),
    must("server.errors.recoverable", "§9.1", "the errors about invalid messages are recoverable"),
    must("server.errors.keeps-connection", "§9.1", "an invalid message does not close the connection"),
)


@scenario(*VECTORS)
async def vectors_before_hello(server: Server, sheet: Sheet) -> None:
    """In "awaiting hello" a valid message gets NO_SESSION, and a valid audio frame nothing."""

    def judge(vector: Vector, code: str | None) -> bool:
        if isinstance(vector.frame, str) and code in (None, "NO_SESSION"):
            return code is not None and vector.allows(None)
        return vector.allows(code)

    await _send(server, sheet, [one for one in vectors() if one.type not in ("hello", "ping")], judge)


@scenario(*VECTORS)
async def vectors_in_a_session(server: Server, sheet: Sheet) -> None:
    """In "open" a valid message is handled or a duplicate, and a hello a second one."""

    def judge(vector: Vector, code: str | None) -> bool:
        return code == "DUPLICATE_HELLO" if vector.type == "hello" else vector.allows(code)

    await _send(server, sheet, [one for one in vectors() if one.type != "ping"], judge, session=True)


@scenario(
    must("server.sessions.valid-hellos", "§5.2", "each valid hello is answered, as one of its kind"),
    must("server.sessions.valid-pings", "§4.4", "each valid ping is answered"),
)
async def vectors_with_an_answer(server: Server, sheet: Sheet) -> None:
    """Hellos without our credential, for sessions that do not exist; each on a connection of its own."""
    for vector in vectors():
        if vector.type in ("hello", "ping"):
            check = f"server.sessions.valid-{vector.type}s"
            async with server.line() as line:
                await line.text(vector.frame)
                try:
                    answer = await line.until("ready", "pong", "error")
                except Unmet as unmet:
                    sheet.settle(check, False, f"{vector.id}: {unmet}")
                    continue
                kinds = ("pong",) if vector.type == "ping" else HELLO_ANSWERS
                sheet.settle(check, answer.get("code", answer["type"]) in kinds, _told(vector, [answer]))


Judge = Callable[[Vector, str | None], bool]
"""Whether a vector may be answered by this code; None: by no error."""


async def _send(
    server: Server, sheet: Sheet, batch: Sequence[Vector], judge: Judge, *, session: bool = False
) -> None:
    """Send all, each followed by a ping, so that what comes between two pongs is the answer to one."""
    while batch:
        part = list(_part(batch))
        async with server.session(pings=False, **MU_LAW) if session else server.line() as peer:
            line = peer if isinstance(peer, Line) else peer.line
            answers = await _answers(line, part)
            for vector, errors in zip(part, answers, strict=False):
                _settle(sheet, vector, errors, judge)
            if len(answers) < len(part):
                end = line.closed or "no pong"
                sheet.settle("server.errors.keeps-connection", False, f"{part[len(answers)].id}: {end}")
                answers.append([])
        sheet.settle("server.errors.keeps-connection", True)
        batch = batch[len(answers) :]


def _part(batch: Sequence[Vector]) -> Iterator[Vector]:
    """What one connection gets. A hello or a ping is the last: one that is taken for valid would confuse the rest."""
    for vector in batch[:BATCH]:
        yield vector
        if ".hello." in vector.id or ".ping." in vector.id:
            return


async def _answers(line: Line, part: Sequence[Vector]) -> list[list[Message]]:
    """The errors that came for each vector, up to one at which the server stopped to answer."""
    place = line.place
    for vector in part:
        await (line.binary(vector.frame) if isinstance(vector.frame, bytes) else line.text(vector.frame))
        await line.send(PING)
    with contextlib.suppress(Unmet):
        await line.sync()
    answers: list[list[Message]] = [[]]
    for message in line.seen("pong", "error", since=place):
        if message["type"] == "pong":
            answers.append([])
        elif message["code"] in ABOUT_A_FRAME:
            answers[-1].append(message)
    return answers[:-1][: len(part)]


def _settle(sheet: Sheet, vector: Vector, errors: list[Message], judge: Judge) -> None:
    ok = len(errors) < 2 and judge(vector, errors[0]["code"] if errors else None)
    sheet.settle(vector.check, ok, "" if ok else _told(vector, errors))
    for error in errors:
        if error["code"] != "NO_SESSION":
            sheet.settle("server.errors.recoverable", error["recoverable"], f"{vector.id}: {shown(error)}")


def _told(vector: Vector, answers: list[Message]) -> str:
    got = "; ".join(shown(answer)[:120] for answer in answers) or "no error"
    return f"{vector.id}: expected {vector.expect}, got {got}; sent {shown(vector.frame)[:120]}"
