"""The WebSocket itself (RFC 6455), where clients on small devices go wrong."""

from __future__ import annotations

import json
from functools import partial

from vrt_host.conformance.checks import NotTestable, Sheet, must, should
from vrt_host.conformance.client_cases.stage import ANSWER_S, NOTHING, Stage
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Connection, Frame, Session
from vrt_host.conformance.websocket import WebSocketLink


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
        arguments={"text": "ü\N{KEY}" * 40},
        turnId=turn,
        epoch=session.epoch,
    )
    return json.dumps(message, ensure_ascii=False).encode()


@scenario(
    must("client.link.fragments", "§2.1", "a message in fragments is one message (RFC 6455 5.4)"),
    must("client.link.ping-between-fragments", "§2.1", "a ping between fragments is answered, and the message is whole"),
    must("client.link.slow-bytes", "§2.1", "frames that come byte by byte are frames"),
    must("client.link.pong-echoes", "§2.1", "a ping is answered by one pong with its payload (RFC 6455 5.5.3)"),
)  # fmt: skip
async def frames_come_in_pieces(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    connection, link = websocket(session)
    session.turn()

    async def answered(check: str, call: str) -> None:
        await session.result(call, stage.s(ANSWER_S))
        sheet.settle(check, True)

    for number, sizes in enumerate(((1,), (0, 0, 10), (40, 125, 126), (3,) * 20)):
        connection.text(_call(session, f"fragments-{number}"), partial(link.frame, "text", sizes=sizes))
        await answered("client.link.fragments", f"fragments-{number}")
    around = partial(link.fragment_around_ping, payload=b"between")
    connection.text(_call(session, "around-a-ping"), around)
    await _pong(stage, connection, b"between")
    await answered("client.link.ping-between-fragments", "around-a-ping")
    link.piece = 1
    for number in range(3):
        connection.text(_call(session, f"bytes-{number}"))
        await answered("client.link.slow-bytes", f"bytes-{number}")
    link.piece = 0
    for payload in (b"", b"x", bytes(range(125))):
        link.ping(payload)
        await _pong(stage, connection, payload)
    await stage.barrier(session)
    pongs = [frame.data for frame in connection.frames if frame.kind == "pong"]
    wanted = [b"between", b"", b"x", bytes(range(125))]
    sheet.settle("client.link.pong-echoes", pongs == wanted, f"{len(pongs)} pongs for {len(wanted)} pings")


async def _pong(stage: Stage, connection: Connection, payload: bytes) -> None:
    def wanted(frame: Frame) -> bool:
        return frame.kind == "pong" and frame.data == payload

    await connection.frame(wanted, stage.s(ANSWER_S), f"pong with {len(payload)} bytes")


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


SCENARIOS = (frames_come_in_pieces, the_connection_is_closed_in_good_order)
