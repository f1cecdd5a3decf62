"""What a run looks like in the terminal: lines that stay, and on a terminal a status bar that moves.

Without a terminal (a pipe, CI) the same lines come plain and the bar is left out.
"""

from __future__ import annotations

import io
import os
import sys
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vrt_host.conformance.checks import printable
from vrt_host.sim.wav import Samples

_BARS = " ▁▂▃▄▅▆▇█"
_HISTORY = 12

STYLES = {
    "user": "bold blue",
    "speaker": "bold dark_orange",
    "board": "magenta",
    "host": "cyan",
    "call": "bold green",
    "network": "bold red",
    "button": "bold yellow",
}
_LIGHTS = {
    "idle": "bright_black",
    "listening": "blue",
    "thinking": "magenta",
    "speaking": "dark_orange",
    "confirm": "bold yellow",
    "error": "bold red",
    "connecting": "bright_black",
}


class _Output(Console):
    unread: Callable[[], None] | None = None

    def on_broken_pipe(self) -> None:
        """Nobody reads on, as behind `| head`: no more is written, and the run does not fail for that."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if self.unread is not None:
            self.unread()


def console(*, quiet: bool = False, unread: Callable[[], None] | None = None) -> Console:
    """Standard output: a terminal at its own width, else 120 columns; what its encoding lacks becomes `?`.

    `unread` is called when its reader has gone.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    output = _Output(quiet=quiet, width=None if sys.stdout.isatty() else 120)
    output.unread = unread
    return output


class View:
    """Lines and a status bar on `console`. Use as a context manager; print only through it meanwhile."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.light = "off"
        self.turn = ""
        self.call = ""
        self.connected = False
        self._time = 0.0
        self._mic: deque[str] = deque(" " * _HISTORY, maxlen=_HISTORY)
        self._speaker: deque[str] = deque(" " * _HISTORY, maxlen=_HISTORY)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(self, console=self.console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __rich__(self) -> Text:
        """The status bar."""
        bar = Text(no_wrap=True, overflow="ellipsis")
        bar.append(f" {self._time:6.1f} s ", "reverse")
        bar.append("  mic ", "bright_black").append("".join(self._mic), STYLES["user"])
        bar.append("  speaker ", "bright_black").append("".join(self._speaker), STYLES["speaker"])
        bar.append("  light ", "bright_black").append(
            f"● {printable(self.light)}", _LIGHTS.get(self.light, "")
        )
        bar.append("  turn ", "bright_black").append(printable(self.turn) or "-")
        if not self.connected:
            bar.append("  not connected", STYLES["network"])
        if self.call:
            bar.append(f"  {printable(self.call)}", STYLES["call"])
        return bar

    def heard(self, time: float, mic: Samples, speaker: Samples) -> None:
        """Move the bar: the sounds of the last moment at the microphone and at the speaker."""
        self._time = time
        self._mic.append(_bar(mic))
        self._speaker.append(_bar(speaker))

    def title(self, text: str, detail: str = "") -> None:
        """A heading with an empty line before it."""
        self.console.print()
        line = f"[bold]{_safe(text)}[/]"
        self.console.print(f"{line}  [bright_black]{_safe(detail)}[/]" if detail else line, highlight=False)

    def say(self, time: float, who: str, text: str) -> None:
        """One line of what happens: `who` is a key of `STYLES`."""
        style = STYLES.get(who, "")
        self._line(time, f"[{style}]{_safe(who):<8}[/]" if style else f"{_safe(who):<8}", text)

    def passed(self, time: float, text: str, detail: str = "") -> None:
        """A step that happened as it should."""
        self._line(time, "[green]✓[/]", text, detail)

    def failed(self, time: float, text: str) -> None:
        """A step that did not."""
        self._line(time, "[bold red]✗[/]", text)

    def note(self, text: str) -> None:
        """A line without a time."""
        soft = not self.console.is_terminal
        self.console.print(f"  [bright_black]{_safe(text)}[/]", highlight=False, soft_wrap=soft)

    def table(self, title: str, rows: list[tuple[str, str, str]]) -> None:
        """A table of name, value and remark."""
        table = Table(
            title=title, title_justify="left", title_style="bold", show_header=False, pad_edge=False
        )
        for name, value, remark in rows:
            table.add_row(_safe(name), f"[bold]{_safe(value)}[/]", f"[bright_black]{_safe(remark)}[/]")
        self.console.print()
        self.console.print(table)

    def verdict(self, ok: bool, text: str) -> None:
        """The last line."""
        mark = "[bold green]PASSED[/]" if ok else "[bold red]FAILED[/]"
        self.console.print()
        self.console.print(f"{mark}  {_safe(text)}", highlight=False, soft_wrap=True)

    def _line(self, time: float, mark: str, text: str, detail: str = "") -> None:
        line = f"[bright_black]{time:7.2f}[/]  {mark} {_safe(text)}"
        if detail:
            line += f"  [bright_black]{_safe(detail)}[/]"
        self.console.print(line, highlight=False, soft_wrap=not self.console.is_terminal)


def _safe(text: str) -> str:
    """As it stands: no markup, and no control characters of whoever said it."""
    return escape(printable(text))


def _bar(sound: Samples) -> str:
    """The loudness of a sound as one character, from -60 dB to full scale."""
    if not len(sound):
        return _BARS[0]
    level = float(np.sqrt(np.mean(np.square(sound.astype(np.float32))))) / 32768
    decibels = 20 * np.log10(max(level, 1e-6))
    return _BARS[int(np.clip((decibels + 60) / 54 * len(_BARS), 0, len(_BARS) - 1))]
