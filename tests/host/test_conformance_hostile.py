"""The suite against servers that are none: each ends with a named failure, in time, and passes nothing that was not seen."""

import asyncio
import contextlib
import itertools
import json
from http import HTTPStatus

import pytest
from vrt_host.conformance import line as lines
from vrt_host.conformance import probe, server_cases
from vrt_host.conformance.checks import Ledger, Outcome, Unmet
from vrt_host.conformance.client import Server
from vrt_host.conformance.run import Pace, play, select
from vrt_host.conformance.server_cases.framing import USUAL_BYTES, _limit
from vrt_host.conformance.watch import Watch
from vrt_host.errors import UsageError
from websockets.asyncio.server import serve
from websockets.datastructures import Headers
from websockets.http11 import Response

DEADLINE_S = 30
PACE = Pace(0.02)
PCM = {"encoding": "pcm16"}
READY = {"v": 1, "seq": 0, "type": "ready", "sessionId": "always", "input": PCM, "output": PCM}


@contextlib.asynccontextmanager
async def facing(respond, **options):
    """A suite and the server that it faces: (`Server`, its ledger)."""
    async with serve(respond, "127.0.0.1", 0, **options) as server, asyncio.timeout(DEADLINE_S):
        ledger = Ledger(server_cases.CHECKS)
        port = server.sockets[0].getsockname()[1]
        yield Server(f"ws://127.0.0.1:{port}", PACE, Watch(ledger)), ledger


async def outcomes(server, ledger, only):
    """What becomes of the scenarios with these checks, by id."""
    findings = await play(select(server_cases.SCENARIOS, [only]), server, ledger, pace=PACE)
    return {one.check.id: (one.outcome, " ".join(one.details)) for one in findings}


async def silent(link):
    await link.wait_closed()


async def opening(link):
    """Opens sessions, and does nothing in them."""
    async for frame in link:
        if isinstance(frame, str) and '"hello"' in frame:
            await link.send(json.dumps(READY))


async def endless(link):
    """Answers a text for ever."""
    await opening_once(link)
    for seq in itertools.count(1):
        await link.send(json.dumps({"v": 1, "seq": seq, "type": "text", "text": "a "}))
        await asyncio.sleep(0)


async def opening_once(link):
    await link.recv()
    await link.send(json.dumps(READY))
    await link.recv()


async def test_server_that_lets_in_one_connection_is_tested_to_its_end():
    visits = itertools.count()

    def request(connection, _):
        return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "") if next(visits) else None

    async with facing(silent, process_request=request) as (server, ledger):
        await probe.reach(server)
        found = await outcomes(server, ledger, "server.sessions.opens")
    assert found["server.sessions.opens"][0] is Outcome.FAILED
    assert "HTTP 503" in found["server.sessions.opens"][1]


async def test_answer_to_the_profile_without_end_is_none():
    async with facing(endless) as (server, _):
        assert await probe.profile(server) == frozenset()


async def test_server_that_floods_is_cut_off_and_seen_to_be_late(monkeypatch):
    async def flood(link):
        while True:
            await link.send('{"v":1,"seq":0,"type":"pong"}')
            await asyncio.sleep(0)

    async with facing(flood) as (server, _):
        async with server.line() as line:
            with pytest.raises(Unmet, match="no ready within"):
                await line.until("ready", within=1)
        monkeypatch.setattr(lines, "MOST_FRAMES", 100)
        async with server.line() as line:
            assert "after 100 frames" in (await line.until_closed(within=1000)).reason


async def test_redirect_is_not_followed_with_the_token():
    visited = asyncio.Event()

    async def elsewhere(link):
        visited.set()

    async with facing(elsewhere) as (other, _):
        away = Response(301, "Moved", Headers(Location=other.url), b"")
        async with facing(silent, process_request=lambda *_: away) as (server, _):
            with pytest.raises(UsageError, match="HTTP 301"):
                await probe.reach(server)
    assert not visited.is_set()


async def test_session_that_does_not_open_leaves_no_connection():
    ended = asyncio.Event()

    async def mute(link):
        await link.wait_closed()
        ended.set()

    async with facing(mute) as (server, _):
        with pytest.raises(Unmet):
            await server.session().__aenter__()
        await ended.wait()


async def test_silence_passes_nothing():
    async with facing(silent) as (server, ledger):
        found = await outcomes(server, ledger, "server.sessions")
    passed = [name for name, (outcome, _) in found.items() if outcome is Outcome.PASSED]
    assert passed == []
    assert found["server.sessions.audio-before-hello"][0] is Outcome.FAILED


async def test_two_sessions_that_fail_at_once_are_told_as_one_failure():
    async with facing(opening) as (server, ledger):
        found = await outcomes(server.steered_by(frozenset({"say"})), ledger, "server.audio.item-of-turn")
    outcome, told = found["server.audio.item-of-turn"]
    assert outcome is Outcome.FAILED
    assert "no turn.state" in told
    assert "the suite itself" not in told


@pytest.mark.parametrize(
    "limits",
    [None, [], "x", {}, {"x": -1}, {"x": "9"}, {"x": float("inf")}, {"x": float("nan")}, {"x": 10**12}],
)
def test_limit_that_makes_no_sense_counts_as_none(limits):
    assert _limit(limits, "x") == USUAL_BYTES


def test_limit_that_is_announced_is_tried():
    assert _limit({"x": 2048.0}, "x") == 2048
