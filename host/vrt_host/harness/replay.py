"""Replays a capture: the recorded host speaks again, and what the device answers is held against what was answered then.

    name, lines = choose(load(path))
    findings = await replay(lines, device, recorder=..., view=...)

The host's messages go out byte for byte, in their order and at their pace, but none before the device has given the results
that it had given before that message. What concerns the connection alone is made anew: `ready`, `ack`, `pong`, and what is
resent after a resume. Compared are what `hello` offers and the results: `docs/harness.md` says which members.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vrt_host.conformance.checks import Finding, Ledger, Sheet, Unmet, must, shown
from vrt_host.conformance.client_cases.stage import Stage
from vrt_host.conformance.run import Pace
from vrt_host.conformance.server import Connection, Message, Session
from vrt_host.conformance.watch_client import ALWAYS
from vrt_host.errors import UsageError
from vrt_host.harness.capture import Line
from vrt_host.harness.desk import Device
from vrt_host.harness.live import View
from vrt_host.harness.player import Ears, Tap, found, runs_on, stage_for
from vrt_host.harness.recorder import Recorder
from vrt_host.protocol import wire
from vrt_host.protocol.audio import HEADER_BYTES, OUTPUT

WITHIN_S: Final = 5.0
"""For a result beyond the time that it took when it was recorded."""
COME_S: Final = 15.0
REST_S: Final = 0.5
"""For a result too many, at the end."""

CHECKS: Final = (
    must(
        "harness.replay.hello", "§5.2", "hello offers the tools, formats and capabilities that were recorded"
    ),
    must("harness.replay.comes-back", "§5.4", "the device comes back for its session as often as it was cut"),
    must("harness.replay.results", "§7.2", "the results are those that were recorded, in their order"),
)
_OWN: Final = frozenset({"ready", "ack", "pong"})
"""What the replaying host says by itself."""
_CLOSES: Final = frozenset(range(1000, 5000)) - {*range(1004, 1007), *range(1015, 3000)}
"""Codes that a close frame can hold (RFC 6455 §7.4), and that are in use."""
_OFFERED: Final = ("tools", "input", "output", "capabilities")
_COMPARED: Final = ("callId", "epoch", "ok", "code", "output")


async def replay(
    lines: Sequence[Line],
    device: Device,
    *,
    at: tuple[str, int] | str = ("127.0.0.1", 0),
    recorder: Recorder,
    view: View,
    pace: Pace | None = None,
    taps: tuple[Tap, ...] = (),
) -> list[Finding]:
    """Replay a session's lines with a device that connects to `at`; returns what came of it, and broken rules.

    Raises `UsageError` for lines that cannot be said again.
    """
    segments = _segments(lines)
    alive = runs_on("replay", "§7.2")
    ledger = Ledger((*CHECKS, alive, *ALWAYS))
    sheet = Sheet(ledger, CHECKS)
    ears = Ears(ledger, recorder, taps)
    async with stage_for(device, ears, recorder, alive, at=at, pace=pace or Pace()) as (stage, _):
        try:
            await _Replay(segments, device, stage, recorder, view, sheet).run()
        except Unmet as unmet:
            view.failed(recorder.now, str(unmet))
            sheet.close(str(unmet))
    sheet.close()
    return found(ledger, (*CHECKS, alive) if device.tells else CHECKS)


class _Replay:
    """One replay."""

    def __init__(  # noqa: PLR0917  (the six things that it is made of)
        self,
        segments: Sequence[_Segment],
        device: Device,
        stage: Stage,
        recorder: Recorder,
        view: View,
        sheet: Sheet,
    ) -> None:
        self.segments = segments
        self.device = device
        self.stage = stage
        self.recorder = recorder
        self.view = view
        self.sheet = sheet
        self.session: Session
        self._results = 0
        """How many were recorded up to here."""
        self._answered: set[str] = set()
        self._due = 0.0
        """When the line is due that comes next; a result that is late makes all that follows late."""

    async def run(self) -> None:
        """All connections, one after the other."""
        for number, segment in enumerate(self.segments):
            await self._connect(segment, first=number == 0)
            for before, line in itertools.pairwise(segment.lines):
                await self._line(line, max(0.0, line.t - before.t))
            if number + 1 < len(self.segments):
                self._end(segment.lines[-1])
        self.sheet.settle("harness.replay.comes-back", True)
        await asyncio.sleep(self.stage.s(REST_S))
        more = self.session.results()[self._results :]
        if more or self._results:
            told = f"a result more than was recorded: {shown(more[:1])}"
            self.sheet.settle("harness.replay.results", not more, told)
        else:
            self.sheet.not_testable("harness.replay.results", "no call was recorded")
        self.view.note(f"results compared: {self._results}")

    async def _connect(self, segment: _Segment, *, first: bool) -> None:
        ready = segment.ready
        within = self.stage.s(self.device.patience_s if first else COME_S)
        try:
            async with asyncio.timeout(within):
                came = await (self.stage.fresh() if first else self.stage.back(self.session))
        except (TimeoutError, Unmet) as error:
            why = str(error) or f"it did not come within {within:g} s"
            if not first:
                self.sheet.settle("harness.replay.comes-back", False, why)
            raise Unmet(why) from None
        members = {
            name: value for name, value in ready.items() if name not in {"v", "seq", "type", "sessionId"}
        }
        handled = members.pop("resumedFrom", 0)
        if first:
            self._compare_hello(segment.hello, came[1])
            self.session = self.stage.made()
            self.session.formats = {"input": ready["input"], "output": ready["output"]}
            self.session.open(*came, **members)
        else:
            self.session.last = min(self.session.last, handled)
            self.session.resume(*came, **members)
        self._due = time.monotonic()

    def _compare_hello(self, recorded: Message, hello: Message) -> None:
        for name in _OFFERED:
            then, now = recorded.get(name), hello.get(name)
            if then != now:
                told = f"{name} was {shown(then)}, is {shown(now)}"
                if name == "tools":
                    told = f"tools: {_tools_differ(*(one if isinstance(one, list) else [] for one in (then, now)))}"
                self.sheet.settle("harness.replay.hello", False, told)
                self.view.failed(self.recorder.now, told)
                return
        self.sheet.settle("harness.replay.hello", True)

    async def _line(self, line: Line, gap: float) -> None:
        message = line.message
        self._due += gap
        if line.who == "device":
            if message is not None and message.get("type") == "tool.result":
                await self._result(message)
                self._due = max(self._due, time.monotonic())
        elif line.kind in {"text", "audio"} and not (message and message.get("type") in _OWN):
            await asyncio.sleep(max(0.0, self._due - time.monotonic()))
            self._say(line, message)

    def _say(self, line: Line, message: Message | None) -> None:
        connection = self._connection
        if line.kind == "audio":
            if len(line.audio) >= HEADER_BYTES and line.audio[0] == OUTPUT:
                connection.audio(line.audio[HEADER_BYTES:])
            else:
                connection.binary(line.audio)  # no frame, as it was
            return
        seq = 0 if message is None else message.get("seq")
        if message is not None and isinstance(seq, int) and seq > 0:
            if seq <= self.session.seq:
                return  # resent after a resume, which the session has done as far as this device needs it
            self.session.kept.append(message)
        connection.text(line.text)

    async def _result(self, recorded: Message) -> None:
        call = json.dumps(recorded.get("callId"))
        if call in self._answered:
            return  # resent
        self._answered.add(call)
        number = self._results
        within = max(0.0, self._due - time.monotonic()) + self.stage.s(WITHIN_S)
        self._results += 1
        with contextlib.suppress(Unmet):
            await self.session.until(lambda: len(self.session.results()) > number, within, "")
        came = self.session.results()[number : number + 1]
        then, now = _compared(recorded), _compared(came[0]) if came else None
        if then != now:
            told = f"the first difference, result {number + 1}: it was {shown(then)}, is {shown(now) if came else 'missing'}"
            self.sheet.settle("harness.replay.results", False, told)
            raise Unmet(told)
        self.view.passed(self.recorder.now, f"result {number + 1} is as it was", shown(then))

    def _end(self, last: Line) -> None:
        """End the connection as it ended: the host's close, or a cut."""
        if last.kind == "end" and last.who == "host" and last.code in _CLOSES:
            self._connection.close(last.code)
        else:
            self._connection.cut()

    @property
    def _connection(self) -> Connection:
        connection = self.session.connection
        assert connection is not None
        return connection


@dataclass(frozen=True, slots=True)
class _Segment:
    """One connection."""

    hello: Message
    """The one that `ready` answered: there may be others before it, which were refused."""
    ready: Message
    lines: Sequence[Line]
    """From `ready` to its end; what was said before belongs to a hello that was refused."""


def _segments(lines: Sequence[Line]) -> list[_Segment]:
    """The connections in turn. Raises `UsageError` when one cannot be replayed."""
    segments = []
    for number in dict.fromkeys(line.connection for line in lines):
        segment = [line for line in lines if line.connection == number]
        end = next((place for place, line in enumerate(segment) if line.kind == "end"), len(segment))
        segment = segment[: end + 1]
        place = next((place for place, line in enumerate(segment) if _is(line, "host", "ready")), None)
        if place is None:
            raise UsageError(f"connection {number} of the capture ends before its `ready`")
        hellos = [line.message or {} for line in segment[:place] if _is(line, "device", "hello")]
        ready = segment[place].message or {}
        try:
            wire.decode(json.dumps(ready), "server")
        except wire.WireError as error:
            raise UsageError(f"the recorded `ready` cannot be said again: {error}") from None
        segments.append(_Segment(hellos[-1] if hellos else {}, ready, segment[place:]))
    if "resumedFrom" in segments[0].ready:
        raise UsageError(
            "the capture begins in the middle of the session, which can only be shown: its first `ready` resumes"
        )
    return segments


def _is(line: Line, who: str, type_: str) -> bool:
    return line.who == who and line.kind == "text" and (line.message or {}).get("type") == type_


def _compared(result: Mapping[str, Any]) -> Message:
    """What counts of a result: not its number, and not the words of a failure."""
    return {name: result[name] for name in _COMPARED if name in result}


def _tools_differ(then: Sequence[Any], now: Sequence[Any]) -> str:
    """Which tools are missing, new or other ones."""
    before, after = (
        {json.dumps(tool.get("name") if isinstance(tool, dict) else tool): tool for tool in tools}
        for tools in (then, now)
    )
    missing, new = before.keys() - after.keys(), after.keys() - before.keys()
    other = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    told = (("missing", missing), ("new", new), ("declared in another way", other))
    return (
        "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in told if names) or "another order"
    )
