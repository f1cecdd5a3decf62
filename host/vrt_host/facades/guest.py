"""A client of another protocol as a client of this host: a vRT client in the same process, without a socket.

A facade makes a `Guest` for each of its sessions and is its `Listener`. What vRT asks of a client is kept here, once for all
facades: numbers and acknowledgements (§4), the epoch gate, one call at a time with exactly one result each (§6.2, §7), what was
heard of an item (§8.4). No other protocol reports the latter: it is reckoned by the clock, from an item's first frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from vrt_host.agents import provider
from vrt_host.agents.base import PCM16_24K, Code, Format, Json, ToolResult
from vrt_host.agents.transcode import to_json
from vrt_host.errors import LocalError, VrtError
from vrt_host.facades.borrow import Borrowed
from vrt_host.facades.item import Item
from vrt_host.protocol import audio, wire
from vrt_host.seat import Seat

if TYPE_CHECKING:
    from vrt_host.lending import Lent
    from vrt_host.links.base import Link
    from vrt_host.speech.convert import Converter

log = logging.getLogger(__name__)

BUFFER_MS = 1000
"""How far the host may be ahead of the clock with audio (decisions 11); an interruption is heard no later."""
INPUT_BYTES = 32_768
"""Of a frame of the user's audio: longer pieces are cut, as the host takes 65,536 at most."""
AT_ONCE = 4
"""Frames of the host that are handled before whatever else waits: the first of a second of audio is sent before the last is made."""
BEAT_S = 15.0
"""How often the host is told that the guest lives (§4.4)."""


class RefusedError(VrtError):
    """The host opens no session; `code` is the one of its `error` (§9.2), `closed` how it closed without one.

    `agent` is what an error of the agent's would have for a code (`provider.CODES`), where it did not start.
    """

    def __init__(self, code: str, message: str, closed: int = 1011, agent: str = "AGENT_ERROR") -> None:
        super().__init__(message)
        self.code = code
        self.closed = closed
        self.agent = agent


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the client is to run; answered once, by `Guest.result`."""

    id: str
    name: str
    arguments: Json
    turn: str
    epoch: int


class Listener(Protocol):
    """What a facade is told; each is called on the event loop and returns at once."""

    def state(self, turn: str, state: str) -> None:
        """`turn.state`: listening, thinking, speaking, acting or idle."""

    def transcript(self, turn: str, role: str, text: str, *, final: bool) -> None:
        """What was said. A user's that is not final replaces the one before; the agent's append."""

    def text(self, turn: str, text: str, *, final: bool) -> None:
        """The next piece of the agent's answer as text."""

    def audio(self, turn: str, item: str, payload: bytes) -> None:
        """The next piece of the agent's voice, in the format that `open` was given; never of a closed epoch."""

    def call(self, call: Call) -> None:
        """Run a tool. The next call comes after this one's result."""

    def cancelled(self, call: Call) -> None:
        """The call under way is over, and answered: its turn was interrupted."""

    def stream(self, message: Mapping[str, Json]) -> None:
        """A `tool.stream`, for display only (§7.5)."""

    def interrupted(self, reason: str) -> None:
        """The answer is dead: what is left of its sound must not be heard."""

    def error(self, code: str, message: str, *, recoverable: bool) -> None:
        """An `error` of the host or the agent; `closed` follows one that is not recoverable."""

    def closed(self, code: int, reason: str) -> None:
        """The session has ended, not by `Guest.close`."""

    async def approves(self, call: Call, lent: Lent) -> bool:
        """Whether the client's user lets a board's tool run, where that is to be asked; the board asks besides."""

    def room(self) -> bool:
        """Whether more audio can be handed on now; when it can again, call `Guest.writable`."""


class Hosting(Protocol):
    """What a guest needs of the server."""

    def seat(self, link: Link) -> Seat:
        """A seat for one more client."""


class Guest:
    """One session. `open` it, then use it until `close`, or until the listener hears `closed`."""

    def __init__(
        self, host: Hosting, listener: Listener, peer: str, borrowed: Borrowed | None = None
    ) -> None:
        """`peer` is who it is, for the log; `borrowed` the tools of boards that its agent may use as well."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._borrowed = borrowed
        self._line = _Line(self, peer)
        self._seat = host.seat(self._line)
        self._ready: asyncio.Future[Mapping[str, Json]] = self._loop.create_future()
        self._arrived: deque[str | bytes] = deque()
        self._scheduled = False
        self._beat: asyncio.TimerHandle | None = None
        self._over = False
        self._borrowing: asyncio.Task[None] | None = None
        """At the call under way, when that is a board's."""
        self._sent = self._heard = 0
        self._frames = 0
        self._observed = 0
        self._closed_epoch = -1
        self._item: Item | None = None
        self._calls: deque[Call] = deque()
        """Those without a result; the first is under way."""
        self._input: Converter | None = None
        self._output: tuple[Format, Format] = (PCM16_24K, PCM16_24K)
        self._converter: Converter | None = None

    async def open(
        self,
        token: str | None,
        *,
        tools: Sequence[Mapping[str, Json]] = (),
        input_: Format = PCM16_24K,
        output: Format = PCM16_24K,
        context: Json = None,
        device: Mapping[str, Json] | None = None,
        streams: bool = False,
    ) -> None:
        """Open the session; `tools` are declarations of vRT (decisions 16), `streams` asks for `Listener.stream`.

        Raises `RefusedError`.
        """
        lent = self._borrowed.declarations({tool["name"] for tool in tools}) if self._borrowed else []
        hello: dict[str, Json] = {
            "tools": [*tools, *lent],
            "input": to_json(input_),
            "output": to_json(output),
            "context": context,
            "limits": {"bufferMs": BUFFER_MS},
            "capabilities": ["tool-stream-v1"] if streams else [],
        }
        if token is not None:
            hello["auth"] = {"token": token}
        if device is not None:
            hello["device"] = dict(device)
        try:
            self._submit(wire.transient("hello", **hello))
        except LocalError as error:
            self.close()
            raise RefusedError(
                "INVALID_FIELD", f"what the session would begin with cannot be sent: {error}"
            ) from None
        try:
            ready = await self._ready
        except RefusedError:
            self.close()
            raise
        given, made = _format(ready["input"]), _format(ready["output"])
        if input_ != given or output != made:
            # It brings numpy: only for those whose formats differ, and not on the event loop.
            from vrt_host.speech import convert  # noqa: PLC0415  (it brings numpy)

            self._make = convert.Converter
        if input_ != given:
            self._input = self._make(
                (input_.encoding, input_.sample_rate), (given.encoding, given.sample_rate)
            )
        self._output = made, output
        self._live()

    # --- what the client does

    def say(self, text: str) -> None:
        """The user typed `text`; a response in flight is interrupted (§6.3)."""
        self._send("text", text=text)

    def audio(self, payload: bytes) -> None:
        """The next piece of the user's audio, in the format that `open` was given."""
        for part in [payload] if self._input is None else self._input.feed(payload):
            for at in range(0, len(part), INPUT_BYTES):
                self._frames += 1
                frame = audio.encode(audio.INPUT, (self._frames - 1) % (1 << 32), part[at : at + INPUT_BYTES])
                if not self._over:
                    self._seat.audio(frame)
        self._flush()

    def interrupt(self, reason: Literal["speech", "user", "keyboard"] = "user") -> None:
        """The user interrupts: nothing of the answer is handed on any more, nothing of it starts (§6.2)."""
        if self._observed > self._closed_epoch:
            self._close_epoch(self._observed, tell=reason)

    def result(
        self, call: str, *, ok: bool, output: Json = None, code: Code = "FAILED", message: str = ""
    ) -> bool:
        """Settle the call under way. False: it is settled already, or unknown; nothing happens."""
        if not self._calls or self._calls[0].id != call:
            return False
        self._settle(self._calls.popleft(), ok=ok, output=output, code=code, message=message)
        self._next_call()
        return True

    def context(self, value: Json) -> None:
        """The application's context changed (§5.5)."""
        self._send("context", context=value)

    def writable(self) -> None:
        """There is room for audio again."""
        self._flush()

    def close(self) -> None:
        """The client is done: the session ends, and with it what its agent does."""
        if self._over:
            return
        self._end()
        runner = self._seat.runner
        if runner is not None:
            runner.session.close(1000, "the client is done")
        self._seat.lost(too_large=False)
        self._seat.gone()

    # --- what the host says

    def _deliver(self, most: int = AT_ONCE) -> None:
        """Frames of our own host, which are right; later, as it is in the middle of its own work when it writes."""
        self._scheduled = False
        heard = self._heard
        for _ in range(min(most, len(self._arrived))):
            if self._over:
                return
            frame = self._arrived.popleft()
            try:
                if isinstance(frame, bytes):
                    self._audio(frame)
                else:
                    self._message(wire.loads(frame))
            except Exception:
                log.exception("a guest from %s failed", self._line.peer)
        if self._heard > heard and not self._over:
            self._submit(wire.transient("ack", upTo=self._heard))
        self._later()

    def _message(self, message: Mapping[str, Json]) -> None:
        if message["seq"]:
            self._heard = message["seq"]
        kind = message["type"]
        epoch = message.get("epoch")
        if kind in ("turn.state", "audio.start", "tool.call"):
            self._observed = max(self._observed, message["epoch"])
        gone = epoch is not None and epoch <= self._closed_epoch
        if kind == "ready" and not self._ready.done():  # it may have been given up meanwhile
            self._ready.set_result(message)
        elif kind == "error":
            self._error(message)
        elif kind == "tool.call":
            self._call(message, gone=gone)
        elif kind == "interrupted":
            if not gone:
                self._close_epoch(message["epoch"])
            self._listener.interrupted(message.get("reason", "server"))
        elif not gone:
            self._tell(kind, message)

    def _tell(self, kind: str, message: Mapping[str, Json]) -> None:
        """What is for the listener to show or to play."""
        turn, listener = message.get("turnId", ""), self._listener
        if kind == "turn.state":
            self._rest(message["state"])
            listener.state(turn, message["state"])
        elif kind == "transcript":
            listener.transcript(turn, message["role"], message["text"], final=message["final"])
        elif kind == "text":
            listener.text(turn, message["text"], final=message.get("final", False))
        elif kind == "audio.start":
            self._begin(message)
        elif kind == "tool.stream":
            listener.stream(message)

    def _error(self, message: Mapping[str, Json]) -> None:
        if not self._ready.done():
            refusal = self._seat.refusal
            agent = "AGENT_ERROR" if refusal is None else provider.why(refusal)
            self._ready.set_exception(RefusedError(message["code"], message.get("message", ""), agent=agent))
            return
        self._listener.error(message["code"], message.get("message", ""), recoverable=message["recoverable"])

    def _begin(self, message: Mapping[str, Json]) -> None:
        made, wanted = self._output
        self._converter = None
        if made != wanted:
            self._converter = self._make(
                (made.encoding, made.sample_rate), (wanted.encoding, wanted.sample_rate)
            )
        self._item = Item(
            message["itemId"], message.get("turnId", ""), message["epoch"], made.bytes_per_second
        )

    def _audio(self, frame: bytes) -> None:
        item = self._item
        if item is None or item.epoch <= self._closed_epoch:
            return
        payload = audio.decode(frame, audio.OUTPUT)[1]
        item.add(len(payload), self._loop.time())
        for part in [payload] if self._converter is None else self._converter.feed(payload):
            self._listener.audio(item.turn, item.id, part)

    def _rest(self, state: str) -> None:
        """At a turn's end, what the converter holds back of its last item."""
        item, converter = self._item, self._converter
        if state == "idle" and item is not None and converter is not None:
            for part in converter.end():
                self._listener.audio(item.turn, item.id, part)
            self._converter = None

    # --- calls

    def _call(self, message: Mapping[str, Json], *, gone: bool) -> None:
        call = Call(
            message["callId"], message["name"], message["arguments"], message["turnId"], message["epoch"]
        )
        if gone:
            self._settle(call, ok=False, code="INTERRUPTED")
            return
        self._calls.append(call)
        if len(self._calls) == 1:
            self._run(call)

    def _next_call(self) -> None:
        if self._calls:
            self._run(self._calls[0])

    def _run(self, call: Call) -> None:
        if self._borrowed is None or not self._borrowed.has(call.name):
            self._listener.call(call)
            return
        self._borrowing = self._loop.create_task(self._borrow(self._borrowed, call))

    async def _borrow(self, borrowed: Borrowed, call: Call) -> None:
        lent = borrowed.get(call.name)
        if lent is not None and not await self._listener.approves(call, lent):
            made = ToolResult(call.id, False, code="REJECTED", message="Action denied by user")
        else:
            made = await borrowed.call(call.name, call.arguments)
        self._borrowing = None
        self.result(call.id, ok=made.ok, output=made.output, code=made.code or "FAILED", message=made.message)

    def _settle(
        self, call: Call, *, ok: bool, output: Json = None, code: str = "FAILED", message: str = ""
    ) -> None:
        members: dict[str, Json] = {"callId": call.id, "epoch": call.epoch, "ok": ok}
        members |= {"output": output} if ok else {"code": code, "message": message}
        try:
            self._send("tool.result", **members)
        except LocalError as error:  # beyond the depth that the host takes, or no JSON
            why = "result too large" if isinstance(error, wire.TooLargeError) else "the result is no JSON"
            self._send("tool.result", callId=call.id, epoch=call.epoch, ok=False, code="FAILED", message=why)

    # --- interruption

    def _close_epoch(self, epoch: int, *, tell: str | None = None) -> None:
        """§6.2, in the order of decisions 14: what was heard, the interruption, the results."""
        self._closed_epoch = max(self._closed_epoch, epoch)
        item, self._item = self._item, None
        if (
            item is not None
            and item.epoch <= epoch
            and (played := item.cut_at(self._loop.time())) is not None
        ):
            self._send("playback", itemId=item.id, playedMs=played)
        if tell is not None:
            self._send("interrupt", epoch=epoch, reason=tell)
        dead = [call for call in self._calls if call.epoch <= epoch]
        running = self._calls[0] if self._calls else None
        self._calls = deque(call for call in self._calls if call.epoch > epoch)
        for call in dead:
            if call is running and self._borrowing is not None:
                self._borrowing.cancel()
                self._borrowing = None
            elif call is running:
                self._listener.cancelled(call)
            self._settle(call, ok=False, code="INTERRUPTED")
        if running in dead:
            self._next_call()

    # --- frames

    def _send(self, kind: str, /, **members: Json) -> None:
        """A sequenced message (§4.1)."""
        if self._over:
            return
        text = wire.encode({"v": 1, "type": kind, "seq": self._sent + 1, **members})
        self._sent += 1
        self._submit(text)

    def _submit(self, text: str) -> None:
        if not self._over:
            self._seat.text(text)
            self._flush()

    def _flush(self) -> None:
        if not self._over:
            self._seat.flush()

    def _live(self) -> None:
        if not self._over:
            self._seat.heard()
            self._flush()
            self._beat = self._loop.call_later(BEAT_S, self._live)

    def _end(self) -> None:
        self._over = True
        if self._beat is not None:
            self._beat.cancel()
        if self._borrowing is not None:
            self._borrowing.cancel()

    # --- for its line

    def _written(self, frames: Iterable[str | bytes]) -> None:
        self._arrived.extend(frames)
        self._later()

    def _later(self) -> None:
        if self._arrived and not self._scheduled and not self._over:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _ended(self, code: int, reason: str) -> None:
        """The host closes the line, behind what it has written."""
        self._loop.call_soon(self._finish, code, reason)

    def _finish(self, code: int, reason: str) -> None:
        if self._over:
            return
        self._deliver(len(self._arrived))
        self._end()
        self._seat.gone()
        if not self._ready.done():
            self._ready.set_exception(RefusedError("CLOSED", reason, code))
        elif not self._ready.exception():
            self._listener.closed(code, reason)

    def _room(self) -> bool:
        return self._listener.room()


class _Line:
    """A guest's `Link`."""

    def __init__(self, guest: Guest, peer: str) -> None:
        self._guest = guest
        self.peer = peer
        self.writable = True

    def write(self, frames: Iterable[str | bytes]) -> None:
        """`Link.write`."""
        self._guest._written(frames)

    def admit(self, seconds: float) -> bool:
        """`Link.admit`."""
        return self._guest._room()

    def end(self, code: int, reason: str) -> None:
        """`Link.end`."""
        self._guest._ended(code, reason)


def _format(value: Mapping[str, Any]) -> Format:
    return Format(value["encoding"], value.get("sampleRate", PCM16_24K.sample_rate))
