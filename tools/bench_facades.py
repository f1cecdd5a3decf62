"""What other systems' protocols cost beside vRT: bytes on the wire for a second of the agent's speech, and delay (`make bench`).

One host in this process, one agent that speaks as soon as it hears something, and a client of each protocol, one after the other, over a
real socket. Bytes are those of the frames that carry sound, with their WebSocket headers. The delay is from the agent's first audio
to the client's having it; that of a vRT client in the same run is the baseline.
"""

from __future__ import annotations

import asyncio
import base64
import json
import statistics
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from vrt_host.agents.base import Agent, Audio, AudioBegin, AudioEnd, Port, SessionInfo, TurnBegin, TurnEnd
from vrt_host.config import ServerConfig
from vrt_host.facades import aitp, omnia
from vrt_host.server import serve
from websockets.asyncio.client import ClientConnection, connect

SPEECH_S = 3.0
TIMES = 5
DEADLINE_S = 20.0
PCMU = {"encoding": "pcmu", "sampleRate": 8000}
QUIET = bytes(3200)
"""A tenth of a second at 16 kHz."""
_OMNI = struct.Struct(">4sBBHIII12s")


class Speaker(Agent):
    """Says the same as soon as it hears something; `began` is when it did."""

    name = "speaker"
    began = 0.0

    def __init__(self) -> None:
        self._spoke = False

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Keep the port."""
        self._session, self._port = session, port

    def user_audio(self, payload: bytes) -> None:
        """Speak, once."""
        if self._spoke:
            return
        self._spoke = True
        sound = b"\xff" if self._session.output.encoding == "pcmu" else b"\0"
        Speaker.began = asyncio.get_running_loop().time()
        self._port.emit(TurnBegin("t", "listening"))
        self._port.emit(AudioBegin("t", "i"))
        self._port.emit(Audio("t", "i", sound * round(SPEECH_S * self._session.output.bytes_per_second)))
        self._port.emit(AudioEnd("t", "i"))
        self._port.emit(TurnEnd("t"))

    def user_text(self, text: str) -> None:
        """Nothing."""

    def interrupted(self, turn: str, heard: Any) -> None:
        """Nothing."""

    def tool_result(self, turn: str, result: Any) -> None:
        """Nothing."""


def size(frame: str | bytes) -> int:
    """Bytes of a server's frame on the wire, with its header."""
    payload = len(frame) if isinstance(frame, bytes) else len(frame.encode())
    return payload + (2 if payload < 126 else 4 if payload < 65_536 else 10)


async def vrt(ws: ClientConnection) -> Callable[[str | bytes], int | None]:
    """Open a session and say something; what tells how much sound a frame carries, None at the end."""
    await ws.send(json.dumps({"v": 1, "seq": 0, "type": "hello", "input": PCMU, "output": PCMU}))
    await ws.recv()
    await ws.send(b"\x01\0\0\0\0" + b"\xff" * 160)

    def sound(frame: str | bytes) -> int | None:
        if isinstance(frame, bytes):
            return len(frame) - 5
        return None if '"idle"' in frame else 0

    return sound


async def aitp_base64(ws: ClientConnection) -> Callable[[str | bytes], int | None]:
    """The same by AITP."""

    async def send(kind: str, **payload: Any) -> None:
        await ws.send(json.dumps({"id": "m", "type": kind, "timestamp": 1, "payload": payload}))

    versions = {"sdkVersion": "0.4.0", "protocolVersion": "1.0.0"}
    await send("HANDSHAKE_INIT", apiKey="anonymous", userAgent="bench", viewport="0x0", **versions)
    await send("CONTEXT_UPDATE", url="", activeTools=[])
    data = base64.b64encode(QUIET).decode()
    await send("AUDIO_STREAM", data=data, mimeType="audio/pcm;rate=16000")

    def sound(frame: str | bytes) -> int | None:
        message = json.loads(frame)
        if message["type"] == "VOICE_STATE_EVENT":
            return None
        return len(base64.b64decode(message["payload"]["data"])) if message["type"] == "AUDIO_STREAM" else 0

    return sound


async def omnia_call(ws: ClientConnection) -> Callable[[str | bytes], int | None]:
    """The same by Omnia's realtime audio; what comes is binary or JSON, as the URL asks."""
    metadata = json.dumps(
        {"mime_type": "audio/pcm", "codec": "pcm", "sample_rate": 16000, "channels": 1}
    ).encode()
    header = _OMNI.pack(b"OMNI", 1, 0, 1, len(metadata), len(QUIET), 0, b"bench")
    await ws.send(header + metadata + QUIET)

    def sound(frame: str | bytes) -> int | None:
        if isinstance(frame, bytes):
            return int(_OMNI.unpack_from(frame)[5])
        message = json.loads(frame)
        if message["type"] == "done":
            return None
        return (
            len(base64.b64decode(message["media_chunk"]["data"])) if message["type"] == "media_chunk" else 0
        )

    return sound


@asynccontextmanager
async def serving() -> AsyncIterator[dict[str, tuple[str, Any, int]]]:
    """A host with its facades: name -> address, who opens a session there, bytes of a second of its sound."""
    facades = [aitp.AitpFacade(aitp.Options(port=0)), omnia.OmniaFacade(omnia.Options(port=0))]
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(ServerConfig(port=0), Speaker, ready=port.set_result, facades=facades))
    try:
        main = f"ws://127.0.0.1:{await port}/"
        aitp_url, omnia_url = (facade.url for facade in facades)
        yield {
            "vrt_mulaw": (main, vrt, 8000),
            "aitp_base64": (aitp_url, aitp_base64, 48_000),
            "omnia_json": (f"{omnia_url}?agent=bench", omnia_call, 48_000),
            "omnia_binary": (f"{omnia_url}?agent=bench&binary=true", omnia_call, 48_000),
        }
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def heard(url: str, opens: Any) -> tuple[int, int, float]:
    """Of one session: bytes on the wire, bytes of sound, milliseconds until the first of it."""
    wire = sound = 0
    first = 0.0
    async with asyncio.timeout(DEADLINE_S), connect(url, compression=None, proxy=None) as ws:
        carries = await opens(ws)
        while True:
            frame = await ws.recv()
            part = carries(frame)
            if part is None and sound:
                return wire, sound, 1000 * (first - Speaker.began)
            if part:
                first = first or asyncio.get_running_loop().time()
                wire, sound = wire + size(frame), sound + part


async def measure() -> list[dict[str, Any]]:
    """The rows, baseline first."""
    rows, base, bytes_ = [], 0.0, 0.0
    async with serving() as places:
        for name, (url, opens, rate) in places.items():
            times = [await heard(url, opens) for _ in range(TIMES)]
            wire, sound, _ = times[-1]
            delay = statistics.median(time[2] for time in times)
            base, bytes_ = base or delay, bytes_ or wire / sound * rate
            rows += [
                {"name": f"wire.{name}.bytes_per_s", "value": round(wire / sound * rate), "unit": "bytes on the wire for a second of speech", "baseline": f"vRT mu-law: {bytes_:.0f}", "ratio": wire / sound * rate / bytes_},
                {"name": f"facade.{name}.delay_ms", "value": round(delay, 1), "unit": "ms from the agent to the client", "baseline": f"vRT: {base:.1f}", "ratio": delay / base},
            ]  # fmt: skip
    return rows


def rows() -> list[dict[str, Any]]:
    """For `tools/bench.py`."""
    return asyncio.run(measure())


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']}: {row['value']:,} {row['unit']}")
