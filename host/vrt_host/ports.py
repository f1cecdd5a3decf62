"""The serial ports of a server: each connection that a board opens over one gets a seat, as a client of the network does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self

from vrt_host.links.base import Receiver
from vrt_host.links.serial import SerialLink, SerialPort


class Seat(Receiver, Protocol):
    """What the server makes for a link."""

    def gone(self) -> None:
        """Nothing is left of the link."""


class Ports:
    """All of them. `seat(link)` makes the seat for a connection; a `link` is what the ports make of one.

    Entering it raises `UsageError` for a port that is there and cannot be used.
    """

    def __init__(
        self,
        names: Iterable[str],
        seat: Callable[[SerialLink], Seat],
        *,
        max_message: int,
        link: type[SerialLink] = SerialLink,
    ) -> None:
        self._seat = seat
        self._seats: dict[SerialLink, Seat] = {}
        self._ports = [
            SerialPort(name, self._opened, self._gone, max_message=max_message, link=link) for name in names
        ]

    async def __aenter__(self) -> Self:
        try:
            for port in self._ports:
                await port.open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        """After what was said last has left."""
        for port in self._ports:
            await port.close()

    def _opened(self, link: SerialLink) -> None:
        self._seats[link] = seat = self._seat(link)
        link.attach(seat)

    def _gone(self, link: SerialLink) -> None:
        self._seats.pop(link).gone()
