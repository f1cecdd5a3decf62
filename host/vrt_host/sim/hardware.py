"""The hardware around a simulated board: microphone, speaker, button, LED and outputs, in real time.

The firmware's `boards/sim/board.py` connects to it over TCP on the loopback. Every message in either direction is a header
of four bytes, kind, argument and a little-endian length, then what the table says:

    from the board          argument    length           payload
    H  hello                            of the payload   the nonce of `address`
    O  open an I2S          0 RX, 1 TX  of the payload   JSON: rate, ibuf as machine.I2S has them; generation
    X  close it             0 RX, 1 TX  0
    W  write                            of the payload   int16 samples to play
    R  read                             bytes wanted     none
    E  event                            of the payload   JSON: event, and its fields
    to the board
    w  a write is done      generation  0
    r  a read is done       generation  of the payload   int16 samples heard
    b  button               1 down, 0 up

A write is done when the last of its samples is in the DMA. Time is `time.monotonic`, times `speed`, from `start` on; what
happens late because this process was busy is still computed for its own time, so nothing drifts.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from vrt_host.sim.converters import Adc, Dac, Echo, EchoPath, Room, Track, dma_blocks
from vrt_host.sim.wav import MIC_RATE, Samples

Event = dict[str, Any]

_HEADER = struct.Struct("<cBH")
_HELLO_S = 5.0
_RESERVED = ("t", "source", "event")

DAC_RATE = 24_000
TX_FRAME_BYTES, RX_FRAME_BYTES = 2, 8
"""Bytes of `ibuf` that a frame of 16-bit mono takes in MicroPython's ESP32 port, which always receives 32-bit stereo."""
LATE_S = 0.02
"""Later than this for a block and the sound may have been cut by this process, not by the firmware."""


class Hardware:
    """The board's surroundings. An async context manager; `listen` tells of every event.

    An event is a dict: `t` (seconds on this hardware's clock), `source` ("hardware", or "device" when the firmware reports
    it), `event` and its fields. The hardware's own are `board` (`on`), `i2s` (`mode`, `rate`, `depth_ms`, or `closed`),
    `led` (`state`), `output` (`name`, `value`), `button` (`down`), `sound` (the DAC `on` or off, with the time of the
    sample), `say` (`end`: what the microphone hears from `t` to then), `late` (`ms`: this process fell behind by more than
    the DMA can cover) and `broken` (`reason`: the board sent what no board sends).
    """

    def __init__(
        self,
        *,
        speed: float = 1.0,
        noise_rms: float = 0.0,
        echo: Echo | None = None,
        seed: int = 0,
        record_s: float = 900.0,
    ) -> None:
        """`noise_rms` of pink noise, and with `echo` what the speaker plays, are heard by the microphone."""
        self.speed = speed
        self.address = ""
        """What the board needs to find this: `host:port:nonce`, once started."""
        self.led = "off"
        self.outputs: dict[str, int] = {}
        self.button = False
        self.speaker = Track(DAC_RATE, record_s)
        """Every sample that left the DAC."""
        self.room = Room(noise_rms, seed, EchoPath(echo, self.speaker, seed) if echo else None)
        self.microphone = Track(MIC_RATE, record_s)
        """Every sample that the microphone picked up, whether the firmware read it or not."""
        self.dac: Dac | None = None
        self.adc: Adc | None = None
        self.late_s = 0.0
        """The most that this process has been late for a block."""
        self._generations = [0, 0]
        self._listeners: list[Callable[[Event], None]] = []
        self._nonce = secrets.token_hex(8)
        self._origin = time.monotonic()
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{port}:{self._nonce}"
        self._origin = time.monotonic()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        for writer in self._serving.values():
            writer.close()
        await asyncio.gather(*self._serving)

    @property
    def now(self) -> float:
        """Seconds on this hardware's clock."""
        return (time.monotonic() - self._origin) * self.speed

    def monotonic(self, t: float) -> float:
        """What `time.monotonic` reads at time `t` of this hardware's clock."""
        return self._origin + t / self.speed

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with every event to come, on the event loop."""
        self._listeners.append(listener)

    def say(self, samples: Samples, at: float | None = None) -> tuple[float, float]:
        """Let the microphone hear int16 samples at 16 kHz at time `at` (now), after what it still hears; returns (start, end)."""
        start, end = self.room.say(self.now if at is None else at, samples)
        self._tell("say", t=start, end=end)
        return start, end

    def hush(self) -> None:
        """Nothing more of what was said is heard."""
        self.room.hush(self.now)

    def press(self, down: bool = True) -> None:
        """Press the button, or let it go."""
        if down != self.button:
            self.button = down
            self._send(b"b", int(down))
            self._tell("button", down=down)

    async def hold(self, seconds: float) -> None:
        """Press the button for so long."""
        self.press(True)
        try:
            await asyncio.sleep(seconds / self.speed)
        finally:
            self.press(False)

    def disconnect(self) -> None:
        """Drop the board's connection: it sees its hardware go, and ends."""
        if self._writer is not None:
            self._writer.close()

    def settle(self) -> None:
        """Bring the recordings up to now: a converter that nobody waits for does its blocks only when it is asked."""
        self._advance(self.now)

    def _tell(self, event: str, t: float | None = None, source: str = "hardware", **fields: Any) -> None:
        entry = {"t": self.now if t is None else t, "source": source, "event": event, **fields}
        for listener in self._listeners:
            listener(entry)

    def _send(self, kind: bytes, argument: int, payload: bytes = b"") -> None:
        if self._writer is not None:
            self._writer.write(_HEADER.pack(kind, argument, len(payload)) + payload)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its hello to its end; a stranger, or a second board, is turned away."""
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            async with asyncio.timeout(_HELLO_S):
                kind, _, size = _HEADER.unpack(await reader.readexactly(4))
                nonce = await reader.readexactly(size if kind == b"H" else 0)
            if self._writer is None and secrets.compare_digest(nonce, self._nonce.encode()):
                self._writer = writer
                await self._attend(reader)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()
            del self._serving[task]

    async def _attend(self, reader: asyncio.StreamReader) -> None:
        self._tell("board", on=True)
        self._send(b"b", int(self.button))
        try:
            while True:
                kind, argument, size = _HEADER.unpack(await reader.readexactly(4))
                payload = b"" if kind == b"R" else await reader.readexactly(size)
                self._handle(kind, argument, size, payload)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._tell("broken", reason=f"{type(error).__name__}: {error}")
        finally:
            self._advance(self.now)
            self.dac = self.adc = self._writer = None
            self._tell("board", on=False)

    def _handle(self, kind: bytes, argument: int, size: int, payload: bytes) -> None:
        now = self.now
        if kind == b"W" and self.dac is not None:
            self._taken(self.dac.write(now, payload))
        elif kind == b"R" and self.adc is not None:
            self._advance(now)  # it may hear the speaker
            self._given(self.adc.read(now, size))
        elif kind == b"E":
            self._report(json.loads(payload))
        elif kind == b"O":
            self._open(now, argument, **json.loads(payload))
        elif kind == b"X":
            self._advance(now)
            if argument:
                self.dac = None
            else:
                self.adc = None
            self._tell("i2s", mode="tx" if argument else "rx", closed=True)
        else:
            raise ValueError(f"message {kind!r} of {size} bytes makes no sense here")
        self._advance(now)

    def _open(self, now: float, tx: int, rate: int, ibuf: int, generation: int) -> None:
        self._advance(now)
        if rate != (DAC_RATE if tx else MIC_RATE):
            raise ValueError(f"an I2S at {rate} Hz")
        self._generations[tx] = generation
        if tx:
            self.dac = Dac(rate, dma_blocks(ibuf, TX_FRAME_BYTES), now, self.speaker)
            depth_s = self.dac.depth_s
        else:
            self.adc = Adc(dma_blocks(ibuf, RX_FRAME_BYTES), now, self.room, self.microphone)
            depth_s = self.adc.depth_s
        self._tell("i2s", mode="tx" if tx else "rx", rate=rate, depth_ms=round(depth_s * 1000, 1))

    def _report(self, entry: dict[str, Any]) -> None:
        """What the board says happened: a LED or an output is hardware, everything else is the firmware's own word."""
        name = str(entry.pop("event"))
        source = "device"
        if name == "led":
            self.led, source = str(entry["state"]), "hardware"
        elif name == "output":
            self.outputs[str(entry["name"])], source = int(entry["value"]), "hardware"
        self._tell(
            name, source=source, **{key: value for key, value in entry.items() if key not in _RESERVED}
        )

    def _taken(self, count: int) -> None:
        for _ in range(count):
            self._send(b"w", self._generations[1])

    def _given(self, reads: list[bytes]) -> None:
        for samples in reads:
            self._send(b"r", self._generations[0], samples)

    def _advance(self, now: float) -> None:
        """Do the blocks that are due, answer for them, and come back when the next one is."""
        dues = []
        if self.dac is not None:
            self._taken(self.dac.advance(now))
            for t, on in self.dac.changes:
                self._tell("sound", t=t, on=on)
            self.dac.changes.clear()
            dues.append(self.dac.due)
        if self.adc is not None:
            self._given(self.adc.advance(now))
            dues.append(self.adc.due)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = min((due for due in dues if due is not None), default=None)
        if due is not None:
            delay = max(0.0, (due - self.now) / self.speed)
            self._timer = asyncio.get_running_loop().call_later(delay, self._wake, due)

    def _wake(self, due: float) -> None:
        now = self.now
        late = (now - due) / self.speed
        self.late_s = max(self.late_s, late)
        if late > LATE_S:
            self._tell("late", ms=round(late * 1000))
        self._advance(now)
