"""Calls that an Omnia facade makes of the device's tools: acknowledged or declined in time, answered once or not at all.

The facade waits 5 s for an acknowledgement, and then 60 s for the result (its `clientToolTimeout`); a call that is over for it
is answered no more. It does not know the device's tools: an agent there names its client tools by itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vrt_host.agents import omnia_messages as messages
from vrt_host.agents.alarm import Timer
from vrt_host.agents.base import Call, Json, Tool, ToolResult
from vrt_host.agents.omnia_files import File, without_files
from vrt_host.agents.omnia_messages import Message, ToolCall
from vrt_host.agents.omnia_turn import Outlet

log = logging.getLogger(__name__)

REFUSAL_S = 0.1
"""The host refuses within this what cannot be run: then the call is declined, instead of acknowledged."""
HEARS_S = 1.0
"""Who speaks into an answer is heard by the agent there, too, and it takes its calls back. Told before that of a call's
interruption, it would begin to answer to it; not interrupted within this, it has to know."""
_DECLINED = ("INVALID", "REJECTED")
_ANSWERED = 64


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call without a result. `key` is its name at the port."""

    id: str
    key: str
    name: str
    arguments: dict[str, Json]
    state: Literal["open", "over", "lost"] = "open"
    """`over`: the facade does not wait for it any more. `lost`: the connection that brought it is gone."""
    acknowledged: bool = False
    spoken: bool = False
    """It is a call of an answer to speech."""
    failure: str = ""
    """It was interrupted, and the facade is still to be told this."""
    timer: Timer | None = None
    deadline: Timer | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a call: `note`, where the facade could not be told on the call's own way, and the files in its output."""

    call: OpenCall
    note: str = ""
    files: Sequence[File] = ()


class Calls:
    """The calls of one session."""

    def __init__(self, outlet: Outlet, tools: Sequence[Tool], timeout_s: float) -> None:
        self._outlet = outlet
        self._tools = {tool.name: tool for tool in tools}
        self._timeout_s = timeout_s
        self._open: dict[str, OpenCall] = {}
        self._answered: dict[str, tuple[str, Mapping[str, Json], Message]] = {}
        """The calls of this answer that have theirs, by their ids."""
        self._count = 0
        for tool in tools:
            if tool.timeout_ms > 1000 * timeout_s:
                log.warning(
                    "omnia: the tool %s may take %g s, and the facade waits %g s for a result",
                    tool.name,
                    tool.timeout_ms / 1000,
                    timeout_s,
                )

    def take(self, call: ToolCall) -> OpenCall | None:
        """A call that came; None: it was declined, or came before."""
        if any(one.id == call.id for one in self._open.values()):
            return None
        before = self._answered.get(call.id)
        if before is not None and before[:2] == (call.name, call.arguments):
            log.info("omnia: the call of %s came twice; its answer is sent again", call.name)
            self._outlet.send(before[2])
            return None
        if call.name not in self._tools:
            names = ", ".join(self._tools) or "none"
            self.decline(call.id, f"FAILED: the device has no tool {call.name[:64]!r}; it has: {names}")
            return None
        self._count += 1
        made = OpenCall(call.id, f"call-{self._count}", call.name, dict(call.arguments))
        self._open[made.key] = made
        if call.consent:
            self._acknowledge(made)
        return made

    def run(self, call: OpenCall, turn: str, *, spoken: bool) -> None:
        """Hand it to the device; `spoken`: the turn answers to speech."""
        call.spoken = spoken
        if not call.acknowledged:
            call.timer = self._outlet.later(REFUSAL_S, lambda: self._acknowledge(call))
        self._outlet.emit(Call(turn, call.key, call.name, call.arguments))

    def refuse(self, call: OpenCall, reason: str) -> None:
        """It will not be run."""
        self._forget(call)
        if call.state == "open":
            self._answer(call, messages.nack(call.id, reason))

    def decline(self, id_: str, reason: str) -> None:
        """Tell the facade that a call is not run."""
        self._outlet.send(messages.nack(id_, reason))

    def settle(self, result: ToolResult) -> Settled | None:
        """The one result of a call."""
        call = self._open.get(result.call)
        if call is None or call.failure:
            return None
        said = f"{result.code}: {result.message}"
        if result.code == "INTERRUPTED" and call.spoken and call.state == "open":
            self._acknowledge(call)
            self._stop(call)
            call.failure = said
            call.timer = self._outlet.later(HEARS_S, lambda: self._fail(call))
            return Settled(call)
        self._forget(call)
        output, files = without_files(result.output)
        if call.state == "over":
            log.warning(
                "omnia: the result of %s came after the facade had given it up; it is not sent", call.name
            )
            return Settled(call)
        if call.state == "lost":
            what = json.dumps(output, ensure_ascii=False) if result.ok else said
            return Settled(
                call,
                f"(The connection was lost while the tool {call.name} ran. What came of it: {what})",
                files,
            )
        if result.code in _DECLINED:
            self._answer(call, messages.nack(call.id, said))
            return Settled(call)
        self._acknowledge(call)
        self._answer(call, messages.result(call.id, output) if result.ok else messages.failure(call.id, said))
        return Settled(call, files=files)

    def _answer(self, call: OpenCall, answer: Message) -> None:
        self._answered[call.id] = call.name, call.arguments, answer
        if len(self._answered) > _ANSWERED:
            del self._answered[next(iter(self._answered))]
        self._outlet.send(answer)

    def answer_over(self) -> None:
        """A call of the next answer is another one, whatever its id."""
        self._answered.clear()

    def given_up(self, id_: str) -> OpenCall | None:
        """The facade does not wait for this call any more; the call, if it was open."""
        call = next((one for one in self._open.values() if one.id == id_), None)
        if call is not None and call.failure:
            self._forget(call)
            return None
        if call is not None:
            self._over(call)
        return call

    def lost(self) -> None:
        """The connection of the open calls is gone."""
        self.answer_over()
        for call in list(self._open.values()):
            self._stop(call)
            if call.failure:
                self._forget(call)
            elif call.state == "open":
                call.state = "lost"

    def close(self) -> None:
        """Nothing is due any more."""
        for call in self._open.values():
            self._stop(call)

    def _acknowledge(self, call: OpenCall) -> None:
        if not call.acknowledged:
            call.acknowledged = True
            self._outlet.send(messages.ack(call.id))
            call.deadline = self._outlet.later(self._timeout_s, lambda: self._over(call))

    def _fail(self, call: OpenCall) -> None:
        self._forget(call)
        self._outlet.send(messages.failure(call.id, call.failure))

    def _over(self, call: OpenCall) -> None:
        self._stop(call)
        call.state = "over"

    def _forget(self, call: OpenCall) -> None:
        self._stop(call)
        self._open.pop(call.key, None)

    def _stop(self, call: OpenCall) -> None:
        for timer in (call.timer, call.deadline):
            if timer is not None:
                timer.cancel()
