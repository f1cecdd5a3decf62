"""One turn, and what the user heard of it when it was interrupted (vRT §8.4, decisions 14)."""

from __future__ import annotations

from dataclasses import dataclass, field

from vrt_host.agents.base import Heard
from vrt_host.playout import Item


@dataclass(slots=True)
class Turn:
    """The response in flight. `key` is the agent's name for it, `id` the public one."""

    key: str
    id: str
    epoch: int
    state: str = ""
    ended: bool = False
    items: dict[str, Item] = field(default_factory=dict)


@dataclass(slots=True)
class Truncation:
    """An interrupted turn whose agent is not told yet, because the device may still report what it played."""

    turn: Turn
    at: float
    deadline: float

    def waiting(self) -> bool:
        """Whether an item was partly heard and the device has not said how much of it."""
        return any(
            segment.reported is None and segment.sent > 0 and segment.due > self.at
            for item in self.turn.items.values()
            for segment in item.segments
        )

    def heard(self) -> list[Heard]:
        """What the user heard of each item that was sent at all."""
        return [
            Heard(item.key, int(item.played(self.at) * 1000 + 0.001))
            for item in self.turn.items.values()
            if any(segment.sent for segment in item.segments)
        ]
