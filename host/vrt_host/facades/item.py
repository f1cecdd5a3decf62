"""How much of an audio item a client of another protocol can have heard: none of them reports it."""

from __future__ import annotations


class Item:
    """An audio item under way, and how much of it can have been heard."""

    def __init__(self, id_: str, turn: str, epoch: int, bytes_per_second: int) -> None:
        self.id = id_
        self.turn = turn
        self.epoch = epoch
        self._rate = bytes_per_second
        self._bytes = 0
        self._began = 0.0

    def add(self, size: int, now: float) -> None:
        """A frame is handed on."""
        if not self._bytes:
            self._began = now
        self._bytes += size

    def cut_at(self, now: float) -> int | None:
        """Milliseconds heard when it is cut now; None: it was heard to its end."""
        whole = round(1000 * self._bytes / self._rate)
        played = round(1000 * (now - self._began)) if self._bytes else 0
        return played if played < whole or not self._bytes else None
