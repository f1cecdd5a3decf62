"""Tools that the Fish agent runs by itself, shown while they run (page, "Tool lifecycle")."""

from __future__ import annotations

from collections import deque

from vrt_host.agents.base import OwnCall, OwnResult
from vrt_host.agents.fish_messages import OwnEnded, OwnStarted
from vrt_host.agents.fish_turn import Outlet, Turn

_NOT_SHOWN = ("client", "background")
"""What the device runs is shown by itself; what goes on behind a conversation belongs to no turn."""
_REMEMBERED = 64


class OwnTools:
    """Those that run."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._running: dict[str, tuple[Turn, str]] = {}
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)
        self._count = 0

    def joined(self) -> None:
        """A session begins."""
        self._ended.clear()

    def started(self, call: OwnStarted, turn: Turn | None) -> None:
        """`turn` is the one that is alive."""
        if turn is None or call.source in _NOT_SHOWN or call.id in self._running:
            return
        self._count += 1
        self._running[call.id] = turn, f"own-{self._count}"
        turn.own.add(call.id)
        self._outlet.emit(OwnCall(turn.key, f"own-{self._count}", call.name, call.input))

    def ended(self, call: OwnEnded, turn: Turn | None) -> None:
        """One whose start was missed is shown, too: its end repeats what is needed. It ends once."""
        if call.id in self._ended:
            return
        self._ended.append(call.id)
        if call.id not in self._running:
            self.started(OwnStarted(call.id, call.name, call.source, {}), turn)
        if call.id in self._running:
            owner, key = self._running.pop(call.id)
            owner.own.discard(call.id)
            self._outlet.emit(OwnResult(owner.key, key, "FAILED" if call.failed else None))

    def forget(self, turn: Turn) -> None:
        """The turn is over."""
        for id_ in turn.own:
            del self._running[id_]
        turn.own.clear()
