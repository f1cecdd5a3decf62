"""Credentials and principals (vRT §5.3)."""

from __future__ import annotations

import asyncio
import statistics
import uuid

from vrt_host.conformance.checks import NotTestable, Sheet, must, should, shown
from vrt_host.conformance.client import Server
from vrt_host.conformance.line import Closed
from vrt_host.conformance.run import scenario
from vrt_host.protocol.wire import Message

WRONG = {"auth": {"token": "no-such-token"}}
ROUNDS = 15
"""Resumes of each kind whose times are compared."""
LEEWAY_S = 0.005
"""A difference of the medians that says nothing."""


def _hello(**members: object) -> Message:
    return {"v": 1, "seq": 0, "type": "hello", **members}


async def _answer(server: Server, hello: Message) -> tuple[Message, Closed | None, float]:
    """What a hello is answered with, how the connection ends after an error, and the seconds that took."""
    loop = asyncio.get_running_loop()
    async with server.line() as line:
        began = loop.time()
        await line.send(hello)
        answer = await line.until("ready", "error")
        took = loop.time() - began
        return answer, None if answer["type"] == "ready" else await line.until_closed(), took


@scenario(
    must(
        "server.sessions.auth-ignored-when-not-required",
        "§5.3",
        "a server that does not authenticate ignores auth",
    )
)
async def without_a_credential(server: Server, sheet: Sheet) -> None:
    if server.token is not None:
        raise NotTestable("the server was given with a token")
    answer, _, _ = await _answer(server, _hello(**WRONG))
    sheet.settle("server.sessions.auth-ignored-when-not-required", answer["type"] == "ready", shown(answer))


@scenario(
    must(
        "server.sessions.unauthorized-without-token",
        "§5.3",
        "a hello without a credential gets UNAUTHORIZED, seq 0, and close 4401",
    ),
    must(
        "server.sessions.unauthorized",
        "§5.3",
        "a hello with a wrong credential gets UNAUTHORIZED, seq 0, and close 4401",
    ),
    must(
        "server.resume.authenticates",
        "§5.3",
        "a resume with a wrong credential gets UNAUTHORIZED, seq 0, and close 4401",
    ),
    must(
        "server.resume.unauthorized-harmless",
        "§5.3",
        "after an unauthorized resume the session is resumable by its owner",
    ),
)
async def credentials(server: Server, sheet: Sheet) -> None:
    if server.token is None:
        raise NotTestable("no --token-file was given")
    async with server.session() as device:
        session = device.ready["sessionId"]
        answers = {
            "server.sessions.unauthorized-without-token": await _answer(server, _hello()),
            "server.sessions.unauthorized": await _answer(server, _hello(**WRONG)),
        }
        if all(answer["type"] == "ready" for answer, _, _ in answers.values()):
            raise NotTestable("the server asks for no credential")
        resuming = _hello(**WRONG, sessionId=session, resumeFrom=device.last)
        answers["server.resume.authenticates"] = await _answer(server, resuming)
        for check, (answer, closed, _) in answers.items():
            right = (answer.get("code"), answer.get("recoverable"), answer["seq"]) == (
                "UNAUTHORIZED",
                False,
                0,
            )
            right &= closed is not None and closed.code == 4401
            sheet.settle(check, right, f"{shown(answer)}, then {closed}")
        await sheet.holds("server.resume.unauthorized-harmless", device.resume())


@scenario(
    must(
        "server.resume.foreign-session",
        "§5.3",
        "a resume by another principal gets RESUME_FAILED and close 4404",
    ),
    must(
        "server.resume.foreign-like-unknown",
        "§5.3",
        "a foreign resume is answered in the same words as that of an unknown session",
    ),
    must("server.resume.foreign-harmless", "§5.3", "a foreign resume does not touch the owner's connection"),
)
async def foreign_resume(server: Server, sheet: Sheet) -> None:
    async with server.session() as device:
        foreign, unknown = _foreign_and_unknown(server, device.ready["sessionId"])
        answer, closed, _ = await _answer(server, foreign)
        right = (answer.get("code"), answer.get("recoverable")) == ("RESUME_FAILED", False)
        right &= closed is not None and closed.code == 4404
        sheet.settle("server.resume.foreign-session", right, f"{shown(answer)}, then {closed}")
        other, other_closed, _ = await _answer(server, unknown)
        same = (answer, closed) == (other, other_closed)
        told = f"foreign: {shown(answer)}, {closed}; unknown: {shown(other)}, {other_closed}"
        sheet.settle("server.resume.foreign-like-unknown", same, told)
        await sheet.holds("server.resume.foreign-harmless", device.line.sync())


@scenario(
    should(
        "server.resume.foreign-takes-as-long",
        "§5.3",
        "the time of the answer does not tell a foreign session from an unknown one",
    ),
    alone=True,
)
async def foreign_timing(server: Server, sheet: Sheet) -> None:
    """The medians of interleaved rounds; what lies within the spread of the unknown ones says nothing."""
    async with server.session() as device:
        hellos = _foreign_and_unknown(server, device.ready["sessionId"])
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            for hello, taken in zip(hellos, times, strict=True):
                taken.append((await _answer(server, hello))[2])
    foreign, unknown = map(statistics.median, times)
    spread = 3 * statistics.median(abs(one - unknown) for one in times[1])
    told = f"foreign {1000 * foreign:.1f} ms, unknown {1000 * unknown:.1f} ms (medians of {ROUNDS})"
    sheet.note("server.resume.foreign-takes-as-long", told)
    sheet.settle("server.resume.foreign-takes-as-long", abs(foreign - unknown) <= max(spread, LEEWAY_S), told)


def _foreign_and_unknown(server: Server, session: str) -> tuple[Message, Message]:
    """Two hellos of the other principal."""
    if server.token is None or server.other_token is None:
        raise NotTestable("no --other-token-file was given")
    auth = {"auth": {"token": server.other_token}}
    return _hello(**auth, sessionId=session), _hello(**auth, sessionId=str(uuid.uuid4()))
