"""What the server and a link ask of each other; a link carries the frames of one client and knows nothing of vRT.

Everything happens on one event loop, without tasks for single frames: a link calls its receiver for each frame of
what has just arrived, and `flush` after the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Receiver(Protocol):
    """The server's side of a link."""

    def text(self, frame: str) -> None:
        """A text frame arrived."""

    def audio(self, frame: bytes) -> None:
        """A binary frame arrived."""

    def heard(self) -> None:
        """A frame of the transport's own arrived: the peer lives."""

    def flush(self) -> None:
        """Something arrived, or the link takes data again: handle events, and send what waits."""

    def lost(self, *, too_large: bool) -> None:
        """The peer or the network ended the link; called once. `too_large`: because of the size of a frame."""


class Link(Protocol):
    """One link, open until `end` is called, or it calls `Receiver.lost`."""

    @property
    def peer(self) -> str:
        """Who it is, for the log."""

    @property
    def writable(self) -> bool:
        """Whether the transport takes data; when it does again, the link calls `Receiver.flush`."""

    def write(self, frames: Iterable[str | bytes]) -> None:
        """Send frames in order; they are dropped when the link is closing."""

    def admit(self, seconds: float) -> bool:
        """Whether so much more audio may be sent now, which is then counted; if not, `Receiver.flush` follows later."""

    def end(self, code: int, reason: str) -> None:
        """Close it after what was sent; `Receiver.lost` is not called for it."""
