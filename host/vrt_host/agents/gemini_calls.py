"""The calls of a Gemini Live session: what the model wrote, what it waits for, what it is answered and when.

Calls that were made in one message get their results in one. What an interruption does to them depends on the model: one that
does not block is told silently; one that blocks takes its calls back when it hears more, or (the older ones) hears nothing
until it has every result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vrt_host.agents import gemini_messages as messages
from vrt_host.agents.base import Call, Code, ToolResult
from vrt_host.agents.gemini_messages import Dialect, Frame, ModelCall
from vrt_host.agents.gemini_turn import Outlet, Turn
from vrt_host.agents.model_tools import ToolNames


@dataclass(slots=True, eq=False)
class Batch:
    """Calls of one message."""

    turn: str
    connection: int
    missing: set[str]
    results: list[tuple[str | None, str, Frame]] = field(default_factory=list)
    gone: set[str | None] = field(default_factory=set)
    """The model's ids of those that it took back."""
    codes: set[Code | None] = field(default_factory=set)


class Calls:
    """Those of one session, over any number of connections."""

    def __init__(self, outlet: Outlet, speaks: Dialect, tools: ToolNames, keys: Iterator[int]) -> None:
        self._outlet = outlet
        self._speaks = speaks
        self._tools = tools
        self._keys = keys
        self._open: dict[str, tuple[Batch, ModelCall]] = {}
        self.held: list[Batch] = []
        """Interrupted ones, whose results are not sent: the server takes them back by itself when it hears more."""
        self.connection = 0

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def deaf(self) -> bool:
        """Whether the model takes nothing but the results that it waits for."""
        return self._speaks.waits and any(
            batch.connection == self.connection and call.id not in batch.gone
            for batch, call in self._open.values()
        )

    def begin(self, turn: Turn, calls: Sequence[ModelCall]) -> None:
        """Run the calls of one message, but those that were run already."""
        calls = self._fresh(turn, calls)
        if not calls:
            return
        turn.parted = False
        turn.made |= {call.id: (call, None) for call in calls if call.id is not None}
        keys = [f"call-{next(self._keys)}" for _ in calls]
        batch = Batch(turn.key, self.connection, set(keys))
        for key, call in zip(keys, calls, strict=True):
            self._open[key] = batch, call
            turn.calls.add(key)
        for key, call in zip(keys, calls, strict=True):
            self._outlet.emit(Call(turn.key, key, self._tools.own(call.name), call.arguments))

    def _fresh(self, turn: Turn, calls: Sequence[ModelCall]) -> Sequence[ModelCall]:
        """Those that the model does not write for the second time: it is answered again, and nothing runs twice."""
        known = [
            call.id for call in calls if call.id is not None and turn.made.get(call.id, (None,))[0] == call
        ]
        answered = [(id_, *turn.made[id_]) for id_ in known]
        again = [(id_, call.name, answer) for id_, call, answer in answered if answer is not None]
        if again:
            self._outlet.send(messages.tool_response(again))
        return [call for call in calls if call.id not in known]

    def refuse(self, calls: Sequence[ModelCall]) -> None:
        """They stand in an answer that nobody hears; the server waits for them all the same."""
        gone = ToolResult("", False, code="INTERRUPTED", message="the user interrupted; it was not run")
        results = [(call.id, call.name, messages.response(gone)) for call in calls]
        self._outlet.send(messages.tool_response(results, silent=self._speaks.behavior == "NON_BLOCKING"))

    def take_back(self, ids: Sequence[str]) -> set[str]:
        """The server wants no results of these; the keys of their turns."""
        self.held.clear()
        turns = set()
        for batch, call in self._open.values():
            if call.id in ids:
                batch.gone.add(call.id)
                turns.add(batch.turn)
        return turns

    def settle(self, key: str) -> tuple[Batch, ModelCall] | None:
        """There is a result of this one."""
        found = self._open.pop(key, None)
        if found is not None:
            found[0].missing.discard(key)
        return found

    def answer(self, turn: Turn | None, batch: Batch, call: ModelCall, result: ToolResult) -> None:
        """Tell the model, over the connection on which it called."""
        answer = messages.response(result)
        if turn is not None and call.id is not None:
            turn.made[call.id] = call, answer
        if call.id not in batch.gone:
            batch.results.append((call.id, call.name, answer))
        batch.codes.add(result.code)
        if batch.missing or not batch.results:
            return
        cut = "INTERRUPTED" in batch.codes and "TIMEOUT" not in batch.codes
        if cut and self._speaks.behavior == "NON_BLOCKING":
            self._outlet.send(messages.tool_response(batch.results, silent=True))
        elif cut and not self._speaks.waits:
            self.held.append(batch)
        else:
            self._outlet.send(messages.tool_response(batch.results))
            if turn is not None:
                turn.unwelcome = cut

    def insist(self) -> None:
        """The server did not take them back."""
        for batch in self.held:
            self._outlet.send(messages.tool_response(batch.results))
        self.held.clear()
