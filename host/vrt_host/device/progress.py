"""Progress in per cent."""

from __future__ import annotations

import sys


class Progress:
    """Per cent on one line of a terminal, else every tenth on a line of its own."""

    def __init__(self) -> None:
        self._shown = -1
        self._out = sys.stdout  # also where standard output is kept from what a library prints
        self._live = self._out.isatty()

    def show(self, percent: int) -> None:
        """Show it."""
        if self._live:
            print(f"\r  {percent:3d} %", end="", flush=True, file=self._out)
            self._shown = percent
        elif percent // 10 > self._shown // 10:
            self._shown = percent
            print(f"  {percent:3d} %", flush=True, file=self._out)

    def end(self) -> None:
        """Leave the line."""
        if self._live and self._shown >= 0:
            print(file=self._out)
            self._shown = -1
