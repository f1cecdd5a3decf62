"""What a session of Omnia's needs of its connection, and of the facade."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vrt_host.agents.base import Json
from vrt_host.facades.omnia_tools import ClientTool, Times

if TYPE_CHECKING:
    from vrt_host.server import Host


class Client(Protocol):
    """The connection."""

    peer: str
    token: str | None
    binary: bool

    def send(self, kind: str, session: str | None, /, **body: Json) -> None: ...
    def write(self, frames: Iterable[str | bytes]) -> None: ...
    def error(self, code: str, message: str, session: str | None = None) -> None: ...
    def close(self, code: int, reason: str) -> None: ...
    def expired(self) -> None: ...
    def left(self, session: Any) -> None: ...
    @property
    def congested(self) -> bool: ...


class Server(Protocol):
    """The facade."""

    host: Host
    tools: Mapping[str, ClientTool]
    times: Times

    def begins(self) -> bool: ...
    def ends(self) -> None: ...
    def rests(self) -> None: ...
    def stops(self) -> None: ...
