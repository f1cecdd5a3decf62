"""The tool calls of a session that have no result yet (vRT §7, decisions 8), and what the client may show of them.

Only the turn in flight has open calls: an interruption settles all of them. Told the time, in seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vrt_host.agents.base import (
    Call,
    CallBegin,
    CallDelta,
    Code,
    Displayed,
    Json,
    OwnCall,
    OwnProgress,
    OwnResult,
    ToolResult,
)
from vrt_host.config import TurnLimits
from vrt_host.consent import Consent
from vrt_host.outlet import Outlet
from vrt_host.protocol.wire import TooLargeError
from vrt_host.session import Session
from vrt_host.tools import ArgumentsError, DeclaredTools


@dataclass(slots=True)
class PendingCall:
    """A call that was issued. `key` is the agent's name for it, `id` the public one."""

    id: str
    key: str
    name: str
    members: dict[str, Json]
    """The `tool.call` message."""
    limit_s: float
    """How long the device may take, from the moment that the call is the first one without a result."""
    sent: bool = False

    def failed(self, code: Code, message: str) -> ToolResult:
        """The result of a call that did not succeed."""
        return ToolResult(self.key, False, code=code, message=message)


@dataclass(slots=True)
class CallQueue:
    """Open calls in order. Those beyond the device's queue wait here; one timer watches the first one."""

    window: int
    """How many calls may be at the device."""
    due: float | None = None
    """When the first call is overdue; None: no call is at the device, or the session is parked."""
    _calls: dict[str, PendingCall] = field(default_factory=dict)
    _left_s: float | None = None
    _frozen: bool = True  # until there is a link

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: PendingCall) -> None:
        """A new call, the last in line; `next_to_send` gives it out when its turn comes."""
        self._calls[call.id] = call

    def next_to_send(self) -> PendingCall | None:
        """The call to send now, if the device has room for it; tell `sent` or `settle` afterwards.

        None while the session is parked: what was sent is sent again by a resume, also when its epoch was closed meanwhile.
        """
        if self._frozen:
            return None
        for place, call in enumerate(self._calls.values()):
            if place >= self.window:
                break
            if not call.sent:
                return call
        return None

    def sent(self, call: PendingCall, now: float) -> None:
        """The call went out; it runs when those before it have their results (§7.1)."""
        call.sent = True
        if next(iter(self._calls)) == call.id:
            self._start_timer(now)

    def settle(self, call_id: str, now: float) -> PendingCall | None:
        """Take out a call that has its result; None when it is unknown or was settled before (§7.2)."""
        if call_id not in self._calls:
            return None
        first = next(iter(self._calls)) == call_id
        call = self._calls.pop(call_id)
        if first:
            self._start_timer(now)
        return call

    def answered(self, call_id: str, now: float) -> PendingCall | None:
        """The same for a result of the device, which knows no call that was not sent to it."""
        call = self._calls.get(call_id)
        return None if call is None or not call.sent else self.settle(call_id, now)

    def settle_all(self) -> list[PendingCall]:
        """Take out all of them, in order: their turn was interrupted."""
        calls = list(self._calls.values())
        self._calls.clear()
        self.due = self._left_s = None
        return calls

    def overdue(self, now: float) -> PendingCall | None:
        """The call that should have had a result by now; it stays until it is settled."""
        if self.due is None or now < self.due:
            return None
        return next(iter(self._calls.values()))

    def freeze(self, now: float) -> None:
        """The session is parked: a result could not arrive, so the time stands still."""
        if not self._frozen:
            self._frozen = True
            self._left_s = None if self.due is None else max(0.0, self.due - now)
            self.due = None

    def thaw(self, now: float) -> None:
        """The session was resumed."""
        if self._frozen:
            self._frozen = False
            self.due = None if self._left_s is None else now + self._left_s
            self._left_s = None

    def _start_timer(self, now: float) -> None:
        self.due = self._left_s = None
        first = next(iter(self._calls.values()), None)
        if first is None or not first.sent:
            return
        if self._frozen:
            self._left_s = first.limit_s
        else:
            self.due = now + first.limit_s


class CallDisplay:
    """What the client may show of one call, before and while it runs: previews, or `tool.stream` (§7.4, §7.5).

    Every method may be called in any state; what the lifecycle of §7.5 forbids is not sent.
    """

    def __init__(
        self, out: Outlet, call_id: str, name: str, turn_id: str, epoch: int, *, streams: bool
    ) -> None:
        self.call_id = call_id
        self.name = name
        self._out = out
        self._members = {"callId": call_id, "name": name, "turnId": turn_id, "epoch": epoch}
        self._streams = streams
        self.over = False
        self._complete = False
        self._stream("start")

    def delta(self, fragment: str) -> None:
        """The next fragment of the arguments' text."""
        if self.over or self._complete:
            return
        members = self._members
        if self._streams:
            self._out.split(
                "tool.stream",
                fragment,
                lambda part, _: {**members, "phase": "arguments-delta", "delta": part},
            )
        else:
            self._out.split(
                "tool.call.delta", fragment, lambda part, _: {**members, "preview": {"argumentsDelta": part}}
            )

    def complete(self, arguments: Json) -> None:
        """The arguments are complete, and the call is issued."""
        if not self._complete:
            self._complete = True
            self._stream("arguments-complete", arguments=arguments)

    def progress(self, value: Json) -> None:
        """What a running tool of the agent's reports."""
        if self.over or not self._complete:
            return
        if self._streams:
            self._stream("progress", progress=value)
        else:
            self._out.send("tool.call.delta", **self._members, preview=value)

    def settled(self, code: str | None) -> None:
        """The call has its one result; `code` when it failed."""
        self._end("settled", **({"ok": True} if code is None else {"ok": False, "code": code}))

    def cancelled(self) -> None:
        """The call's turn was interrupted."""
        self._end("cancelled")

    def failed(self, message: str) -> None:
        """The model stopped before the arguments were complete, or they are not JSON: the call was never issued."""
        if self._complete:
            self.settled("FAILED")  # it was issued, and its tool, one of the agent's own, said nothing more
        else:
            self._end("failed", message=message)

    def _end(self, phase: str, **members: Json) -> None:
        if not self.over:
            self._stream(phase, **members)
            self.over = True

    def _stream(self, phase: str, **members: Json) -> None:
        if self._streams and not self.over:
            self._out.send("tool.stream", phase=phase, **self._members, **members)


class Calls:
    """The calls of the turn in flight, from what the model writes to the one result of each."""

    def __init__(
        self,
        session: Session,
        tools: DeclaredTools,
        out: Outlet,
        consent: Consent,
        *,
        streams: bool,
        window: int,
        limits: TurnLimits,
        answer: Callable[[str, ToolResult], None],
        note: Callable[..., None],
    ) -> None:
        """`answer(turn, result)` tells the agent, exactly once a call; `note(name, **fields)` the event log."""
        self._session = session
        self._tools = tools
        self._out = out
        self._consent = consent
        self._waiting: list[tuple[Call, float]] = []
        self._streams = streams
        self._limits = limits
        self._answer = answer
        self._note = note
        self._queue = CallQueue(window)
        self._turn = self._turn_id = ""
        self._epoch = 0
        self._displays: dict[str, CallDisplay] = {}
        self.issued = 0
        """Calls made in this turn."""

    def __len__(self) -> int:
        return len(self._queue) + len(self._waiting)

    @property
    def due(self) -> float | None:
        """When the first open call is overdue, or has waited for the user's words."""
        times = [self._queue.due, *(until for _, until in self._waiting)]
        return min((time for time in times if time is not None), default=None)

    def begin_turn(self, turn: str, turn_id: str, epoch: int) -> None:
        """What follows belongs to a new turn; no call is open."""
        self._turn, self._turn_id, self._epoch = turn, turn_id, epoch
        self._displays = {}
        self.issued = 0

    def end_turn(self) -> None:
        """The turn is over and no call is open."""
        for display in self._displays.values():
            display.failed("the model stopped before the call was complete")

    def show(self, event: Displayed) -> None:
        """What the client may watch: a call of the device's as the model writes it, or one of the agent's own tools."""
        if isinstance(event, (CallBegin, OwnCall)) and (
            event.call in self._displays or len(self._displays) < self._limits.per_turn
        ):
            self._display(event.call, event.name)
        display = self._displays.get(event.call)
        if display is None:
            return
        match event:
            case CallDelta():
                display.delta(event.delta)
            case OwnCall():
                display.complete(event.arguments)
            case OwnProgress():
                display.progress(event.progress)
            case OwnResult():
                display.settled(event.code)

    def prepare(self, event: Call, wait_until: float | None) -> PendingCall | None:
        """Check a call; None when it was refused, and the agent has been told, or waits for the user's words (`decided`)."""
        display = self._display(event.call, event.name)
        tool = self._tools.get(event.name)
        if tool is None:
            names = ", ".join(tool.name for tool in self._tools.tools) or "none"
            message = f"the device has no tool {event.name[:64]!r}; it has: {names}"
            self._refuse(event.call, "FAILED", message)
            return None
        try:
            arguments = self._tools.arguments(tool, event.arguments)
        except ArgumentsError as error:
            display.failed(str(error)[:200])
            self._refuse(event.call, "INVALID", str(error))
            return None
        if tool.confirm == "voice" and tool.asks(arguments) and not event.confirmed:
            decision = self._consent.decide(self._turn, tool, arguments)
            if decision == "wait" and wait_until is not None:
                self._waiting.append((event, wait_until))
                return None
            if decision != "yes":
                display.failed("the user was not asked, or did not say yes")
                self._refuse(event.call, "REJECTED", self._consent.refuse(self._turn, tool, arguments))
                return None
        seconds = tool.timeout_ms / 1000 + self._limits.call_margin
        members: dict[str, Json] = {"callId": display.call_id, "name": tool.name, "arguments": arguments}
        members |= {"turnId": self._turn_id, "epoch": self._epoch}
        return PendingCall(display.call_id, event.call, tool.name, members, seconds)

    def decided(self, now: float, *, heard: bool) -> list[Call]:
        """The calls that waited for the user's words: those words are there (`heard`), or are waited for no longer."""
        ready = [event for event, until in self._waiting if heard or now >= until]
        self._waiting = [(event, until) for event, until in self._waiting if event not in ready]
        return ready

    def issue(self, call: PendingCall, now: float) -> None:
        """Send a call, or keep it until the device has room for it."""
        self._displays[call.key].complete(call.members["arguments"])
        self._queue.add(call)
        self.send(now)

    def result(self, message: Mapping[str, Json], now: float) -> None:
        """A `tool.result`; one of a call that is unknown, answered, interrupted or timed out is ignored (§7.2)."""
        call = self._queue.answered(message["callId"], now)
        if call is None:
            return
        if message["ok"]:
            result = ToolResult(call.key, True, message["output"])
        else:
            result = call.failed(message["code"], message.get("message", ""))
        self._settled(call, result)
        self.send(now)

    def overdue(self, now: float) -> bool:
        """Whether a call should have had its result by now."""
        return self._queue.overdue(now) is not None

    def time_out(self, now: float) -> None:
        """Settle the overdue call as TIMEOUT; the caller closes the epoch (decisions 8)."""
        call = self._queue.overdue(now)
        if call is not None:
            self._queue.settle(call.id, now)
            self._settled(
                call, call.failed("TIMEOUT", f"the device gave no result within {call.limit_s:g} s")
            )

    def interrupt(self) -> list[ToolResult]:
        """The turn was interrupted: the results that the caller has to answer with, in order."""
        keys = [call.key for call in self._queue.settle_all()] + [event.call for event, _ in self._waiting]
        self._waiting.clear()
        for display in self._displays.values():
            display.cancelled()
        for key in keys:
            display = self._displays[key]
            self._note(
                "call.settled", call=key, id=display.call_id, name=display.name, ok=False, code="INTERRUPTED"
            )
        return [
            ToolResult(key, False, code="INTERRUPTED", message="the turn was interrupted") for key in keys
        ]

    def freeze(self, now: float) -> None:
        """The session is parked."""
        self._queue.freeze(now)

    def thaw(self, now: float) -> None:
        """The session is connected."""
        self._queue.thaw(now)

    def _display(self, call: str, name: str) -> CallDisplay:
        """What is shown of a call; made, with the public id, when the call is first heard of."""
        display = self._displays.get(call)
        if display is None:
            display = self._displays[call] = CallDisplay(
                self._out, str(uuid.uuid4()), name, self._turn_id, self._epoch, streams=self._streams
            )
        return display

    def send(self, now: float) -> None:
        """Send what the device has room for."""
        while (call := self._queue.next_to_send()) is not None:
            try:
                self._session.send("tool.call", **call.members)
            except TooLargeError as error:
                self._queue.settle(call.id, now)
                self._settled(call, call.failed("FAILED", f"the call was not sent: {error}"))
                continue
            self._queue.sent(call, now)
            self._note("call.sent", call=call.key, id=call.id, name=call.name)

    def _settled(self, call: PendingCall, result: ToolResult) -> None:
        self._displays[call.key].settled(result.code)
        self._note("call.settled", call=call.key, id=call.id, name=call.name, ok=result.ok, code=result.code)
        self._answer(self._turn, result)

    def _refuse(self, call: str, code: Code, message: str) -> None:
        """Answer a call that the device never sees."""
        display = self._displays[call]
        display.settled(code)
        self._note("call.settled", call=call, id=display.call_id, ok=False, code=code, message=message[:200])
        self._answer(self._turn, ToolResult(call, False, code=code, message=message))
