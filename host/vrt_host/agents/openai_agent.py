"""What the agents for OpenAI's servers have in common: a connection that is kept, timers, and how errors are told."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from vrt_host.agents.base import Agent, AgentError, AgentEvent, Format, Port, SessionInfo
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.openai_keeper import Keeper
from vrt_host.agents.openai_link import Link, headers
from vrt_host.agents.openai_options import CommonOptions
from vrt_host.agents.options import shown
from vrt_host.agents.provider import ProviderError
from vrt_host.errors import AgentStartError

log = logging.getLogger(__name__)


class OpenAIBase(Agent):
    """One session of a device, over as many sessions of the server as it takes. Is the `Talk` of its keeper."""

    append: str
    """The type of the message that carries the user's sound."""
    farewell: Mapping[str, Any] | None = None
    """What a server is told before its connection is closed."""

    def __init__(self, options: CommonOptions) -> None:
        self._common = options
        self._key = shown(options.api_key)
        self._keeper = Keeper(self.name, self, [self._key])
        self._link: Link | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Connect, and agree on the session."""
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._session = session
        self._tools = ToolNames(session.tools)
        self._prepare()
        try:
            await self._keeper.open()
        except ProviderError as error:
            if error.kind == "gone":
                error.advice = "try again in a while"  # nobody does it here
            raise AgentStartError(error.line(self.name, [self._key])) from None

    @abstractmethod
    def _prepare(self) -> None:
        """Make what the connection will need."""

    @abstractmethod
    def _emit(self, event: AgentEvent) -> None:
        """Hand over an event."""

    def _tell(self, error: ProviderError, turn: str | None) -> None:
        self._note(error)
        self._emit(error.event(self.name, turn, [self._key]))

    def _note(self, error: ProviderError) -> None:
        log.warning("%s", error.line(self.name, [self._key]))

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        handle: asyncio.TimerHandle

        def run() -> None:
            self._timers.discard(handle)
            work()

        handle = self._loop.call_later(seconds, run)
        self._timers.add(handle)

    async def close(self) -> None:
        """Hang up."""
        for handle in self._timers:
            handle.cancel()
        await self._keeper.close()

    # --- the server (`Talk`)

    async def _dial(self, url: str, agree: Callable[[Link], Any]) -> tuple[Link, float | None]:
        """Connect; `agree(link)` opens the session and gives its end."""
        options = self._common
        head = headers(options.base_url, self._key, options.key_header)
        link = await Link.open(url, head, self.append, options.timeout_s, self.farewell)
        try:
            async with asyncio.timeout(options.timeout_s):
                return link, await agree(link)
        except BaseException as error:
            await link.close()
            if isinstance(error, TimeoutError):
                raise ProviderError("version", "the server opened no session") from None
            raise

    def broken(self, error: ProviderError) -> None:
        """Say so."""
        self._tell(error, None)

    def failed(self) -> None:
        """End the session."""
        self._emit(AgentError(f"the agent {self.name} failed; the host's log says why", recoverable=False))

    @abstractmethod
    async def dial(self) -> tuple[Link, float | None]:
        """`Talk.dial`."""

    @abstractmethod
    def opened(self, link: Link) -> None:
        """`Talk.opened`."""

    @abstractmethod
    def received(self, event: Mapping[str, Any]) -> None:
        """`Talk.received`."""

    @abstractmethod
    def lost(self, error: ProviderError) -> None:
        """`Talk.lost`."""

    @abstractmethod
    def quiet(self) -> bool:
        """`Talk.quiet`."""


def expiry(session: Mapping[str, Any]) -> float | None:
    """When a session of the server ends (Unix time), as it says."""
    expires = session.get("expires_at")
    return float(expires) if isinstance(expires, int | float) and expires > 0 else None


def table(value: object) -> Mapping[str, Any]:
    """What ought to be a table, empty if it is none."""
    return value if isinstance(value, Mapping) else {}


def check_format(got: object, wanted: Mapping[str, Any], way: str = "") -> None:
    """A format that a server has agreed to has to be the wanted one, as far as it says so: it would be noise otherwise."""
    for name, value in table(got).items():
        if name in wanted and value not in (None, wanted[name]):
            raise ProviderError("format", f"the server takes {value}{way}, not {wanted[name]}")


def silence(format_: Format, seconds: float) -> bytes:
    """So much silence."""
    sample = b"\xff" if format_.encoding == "pcmu" else b"\0\0"
    return sample * round(format_.sample_rate * seconds)
