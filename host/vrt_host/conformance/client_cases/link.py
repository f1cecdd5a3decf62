"""The WebSocket itself (RFC 6455), where clients on small devices go wrong."""

from __future__ import annotations

import json
from functools import partial

from vrt_host.conformance.checks import NotTestable, Sheet, must, should, shown
from vrt_host.conformance.client_cases.stage import ANSWER_S, NOTHING, Stage, proves
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Connection, Session
from vrt_host.conformance.websocket import WebSocketLink

BYTE_S = 0.002
"""Between bytes that come one by one."""


def websocket(session: Session) -> tuple[Connection, WebSocketLink]:
    """The session's connection and its WebSocket; raises `NotTestable` for another kind of link."""
    connection = session.connection
    assert connection is not None
    if not isinstance(connection.link, WebSocketLink):
        raise NotTestable("this link is no WebSocket")
    return connection, connection.link


def _call(session: Session, call: str) -> bytes:
    turn = f"turn-{session.epoch}"
    message = session.number(
        "tool.call",
        callId=call,
        name=NOTHING,
        arguments={"text": "ü\N{KEY}" * 10},
        turnId=turn,
        epoch=session.epoch,
    )
    return json.dumps(message, ensure_ascii=False).encode()


@scenario(
    must("client.link.fragments", "§2.1", "a message in fragments is one message (RFC 6455 5.4)"),
    must("client.link.slow-bytes", "§2.1", "frames that come byte by byte are frames"),
)  # fmt: skip
async def frames_come_in_pieces(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    connection, link = websocket(session)
    session.turn()
    with proves(sheet, "client.link.fragments"):
        for number, sizes in enumerate(((1,), (0, 0, 10), (40, 125, 126), (3,) * 20)):
            call = f"fragments-{number}"
            connection.text(_call(session, call), partial(link.frame, "text", sizes=sizes))
            await session.result(call, stage.s(ANSWER_S))
    with proves(sheet, "client.link.slow-bytes"):
        data = _call(session, "slow-bytes")
        connection.text(data, lambda data: None)
        await link.trickle(data, BYTE_S)
        await session.result("slow-bytes", stage.s(ANSWER_S))


@scenario(
    must("client.link.pong-echoes", "§2.1", "a ping is answered by one pong with its payload (RFC 6455 5.5.3)"),
    must("client.link.ping-between-fragments", "§2.1", "also between the fragments of a message, which is whole"),
)  # fmt: skip
async def pings_come(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    connection, link = websocket(session)
    session.turn()
    payloads = (b"", b"x", bytes(range(125)))
    for payload in payloads:
        link.ping(payload)
        await connection.frame(lambda frame: frame.kind == "pong", stage.s(ANSWER_S), "pong")
    await stage.barrier(session)
    pongs = tuple(frame.data for frame in connection.frames if frame.kind == "pong")
    sheet.settle("client.link.pong-echoes", pongs == payloads, f"{shown(list(pongs))}")
    around = partial(link.fragment_around_ping, payload=b"between")
    with proves(sheet, "client.link.ping-between-fragments"):
        connection.text(_call(session, "around-a-ping"), around)
        await connection.frame(lambda frame: frame.kind == "pong", stage.s(ANSWER_S), "pong")
        await session.result("around-a-ping", stage.s(ANSWER_S))


@scenario(
    must("client.link.closing-handshake", "§2.1", "a close frame is answered by a close frame (RFC 6455 5.5.1)"),
    should("client.link.closes-with-its-code", "§2.1", "and with the same code"),
)  # fmt: skip
async def the_connection_is_closed_in_good_order(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    connection, _ = websocket(session)
    session.turn()
    await stage.barrier(session)
    connection.close(4000, "replaced")
    await connection.end(stage.s(ANSWER_S))
    closes = [frame.data for frame in connection.frames if frame.kind == "close"]
    sheet.settle("client.link.closing-handshake", len(closes) == 1, f"{len(closes)} close frames")
    same = bool(closes) and closes[0][:2] == (4000).to_bytes(2, "big")
    sheet.settle("client.link.closes-with-its-code", same, f"{closes}")


SCENARIOS = (frames_come_in_pieces, pings_come, the_connection_is_closed_in_good_order)
