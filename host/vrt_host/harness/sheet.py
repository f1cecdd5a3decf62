"""A sheet to draw on, measured in pixels from its upper left corner, on which no two texts meet and none is cut off."""

from __future__ import annotations

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

Place = tuple[float, float, float, float]
"""Left, top, width and height."""

DPI = 100
_LEAST = 6
"""Characters of a line below which a shortened text says nothing."""
_APART = 1.0
"""Pixels between two texts, at least."""


class Sheet:
    """What is written first keeps its place: a text that would meet it, or leave the sheet, is left out."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
        FigureCanvasAgg(self.figure)
        self._taken: list[Bbox] = []

    def axes(self, place: Place, span: tuple[float, float]) -> Axes:
        """Axes without ornament: x over the span, y downwards in pixels."""
        left, top, width, height = place
        axes = self.figure.add_axes(
            (
                left / self.width,
                1 - (top + height) / self.height,
                width / self.width,
                height / self.height,
            )
        )
        axes.set_xlim(*span)
        axes.set_ylim(height, 0)
        axes.set_yticks([])
        axes.patch.set_visible(False)
        axes.spines[["top", "left", "right"]].set_visible(False)
        return axes

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        room: float = float("inf"),
        lines: int = 1,
        whole: bool = False,
        **style: Any,
    ) -> Bbox | None:
        """Text at a place, centred in height; returns the box that it takes, None when it was left out.

        What is wider than `room` is broken into `lines` and then shortened, or left out when it must be `whole`.
        """
        label = self.figure.text(
            x / self.width,
            1 - y / self.height,
            text,
            **{"va": "center", "linespacing": 1.0, "parse_math": False, **style},
        )
        box = label.get_window_extent()
        per_line = int(len(text) * room / box.width) if box.width > room else len(text)
        while box.width > room and per_line >= _LEAST and not whole:
            label.set_text("\n".join(textwrap.wrap(text, per_line, max_lines=lines, placeholder="…")))
            box = label.get_window_extent()
            per_line = min(per_line - 1, int(per_line * room / box.width)) if box.width else 0
        if box.width <= room and self._free(box):
            self._taken.append(box)
            return box
        label.remove()
        return None

    def _free(self, box: Bbox) -> bool:
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= self.width and box.y1 <= self.height
        return inside and not any(
            box.x0 - _APART < other.x1
            and other.x0 - _APART < box.x1
            and box.y0 < other.y1
            and other.y0 < box.y1
            for other in self._taken
        )

    def box(self, place: Place, colour: str, edge: str) -> None:
        """A filled box."""
        left, top, width, height = place
        corner = (left / self.width, 1 - (top + height) / self.height)
        size = (width / self.width, height / self.height)
        self.figure.add_artist(Rectangle(corner, *size, facecolor=colour, edgecolor=edge, linewidth=0.5))
