"""Keeps a connection to a model's server: opened anew when it breaks, and in time before the server would end it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from vrt_host.agents.openai_link import Link
from vrt_host.agents.provider import Backoff, ProviderError
from vrt_host.agents.tasks import Tasks

log = logging.getLogger(__name__)

_AHEAD_S = 120.0
"""A session of the server is replaced so long before its end, or in the last tenth of it."""
_LASTING_S = 10.0
"""A session that lasted so long was a good one: the next attempt comes at once."""
_QUIETLY_S = 5.0
"""So long it is tried to connect before the device is told that it cannot be: it may speak to nobody meanwhile."""
_LOOK_S = 0.25
"""How often it is looked whether nothing is going on, once a session is to be replaced."""


class Talk(Protocol):
    """What is said over the connection; the keeper only carries it."""

    async def dial(self) -> tuple[Link, float | None]:
        """A new session of the server, and when it ends (Unix time); raises `ProviderError`."""

    def opened(self, link: Link) -> None:
        """That session is the one to use now."""

    def received(self, event: Mapping[str, Any]) -> None:
        """One of its events; raises `ProviderError` of a kind that nothing can help, or `malformed`."""

    def lost(self, error: ProviderError) -> None:
        """The session broke, or there is none to be had; the next one is made when it is needed, if the error may pass."""

    def broken(self, error: ProviderError) -> None:
        """An event could not be understood and was passed over, or the server not reached for a while; told once for each session."""

    def failed(self) -> None:
        """A fault of ours; the log says which."""

    def quiet(self) -> bool:
        """Whether the session could be replaced without anybody noticing."""


class Keeper:
    """`await open()`, then everything goes to the `Talk`, until `close()`."""

    def __init__(self, name: str, talk: Talk, secrets: Sequence[str]) -> None:
        """`secrets` are kept out of the log."""
        self._name = name
        self._talk = talk
        self._secrets = secrets
        self._link: Link | None = None
        self._spare: tuple[Link, float | None] | None = None
        self._replaced = False
        """The connection ends because another one takes its place."""
        self._ends: float | None = None
        self._dialled = 0.0
        self._tasks = Tasks(name, lambda task: talk.failed())
        self._malformed = False
        self._wanted = asyncio.Event()

    async def open(self) -> None:
        """The first session; raises `ProviderError`."""
        await self._use(*await self._talk.dial())
        self._tasks.spawn(self._run())

    def hurry(self) -> None:
        """Somebody needs the connection. Without one it is made only then."""
        self._wanted.set()

    async def close(self) -> None:
        """End it."""
        await self._tasks.end()
        for link in (self._link, self._spare and self._spare[0]):
            if link is not None:
                await link.close()

    async def _use(self, link: Link, ends: float | None) -> None:
        self._link, self._ends, self._dialled = link, ends, time.time()
        self._malformed = self._replaced = False
        self._talk.opened(link)

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            assert self._link is not None
            renewal = self._tasks.spawn(self._renew())
            error = await self._serve(self._link)
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            link, self._link = self._link, None
            assert link is not None
            closing = self._tasks.spawn(link.close())
            spare, self._spare = self._spare, None
            if time.time() - self._dialled > _LASTING_S:
                backoff.reset()
            if error is not None:
                self._wanted.clear()
                self._talk.lost(error)
                if not error.passing:
                    if spare is not None:
                        await spare[0].close()
                    return
            if spare is not None:
                await self._use(*spare)
            elif not await self._again(backoff, error):
                return
            await closing

    async def _serve(self, link: Link) -> ProviderError | None:
        """Hand out events until the connection breaks; None when it was replaced."""
        try:
            async for event in link.events():
                try:
                    if isinstance(event, ProviderError):
                        raise event
                    self._talk.received(event)
                except ProviderError as error:
                    if error.kind != "malformed":
                        return error
                    self._report(error)
        except ProviderError as error:
            return None if self._replaced else error
        return None

    def _warn(self, error: ProviderError) -> None:
        log.warning("%s", error.line(self._name, self._secrets))

    def _report(self, error: ProviderError) -> None:
        """Once for each connection: what cannot be understood is passed over."""
        if not self._malformed:
            self._malformed = True
            self._talk.broken(error)

    async def _again(self, backoff: Backoff, error: ProviderError | None) -> bool:
        """Connect anew, once somebody needs it: a device that was switched off does not."""
        await self._wanted.wait()
        since, told = time.monotonic(), False
        while True:
            first, wait = backoff.failures == 0, backoff.next(error)
            if not first or (error is not None and error.retry_after_s is not None):
                await asyncio.sleep(wait)
            try:
                await self._use(*await self._talk.dial())
            except ProviderError as failed:
                error = failed
                if not failed.retried:
                    self._wanted.clear()
                    self._talk.lost(failed)
                    if not failed.passing:
                        return False
                    await self._wanted.wait()
                elif not told and time.monotonic() - since > _QUIETLY_S:
                    told = True
                    self._talk.broken(failed)
                else:
                    self._warn(failed)
                continue
            log.info("%s: connected again", self._name)
            return True

    async def _renew(self) -> None:
        """Shortly before the session ends, have the next one ready, and change over when nothing is going on."""
        if self._ends is None or self._ends <= self._dialled:  # a clock that is wrong would renew without end
            return
        life = self._ends - self._dialled
        await asyncio.sleep(max(0.0, life - min(_AHEAD_S, life / 10)))
        try:
            self._spare = await self._talk.dial()
        except ProviderError as error:
            self._warn(error)
            return  # the old one is used to its end
        while not self._talk.quiet():  # noqa: ASYNC110  (neither side tells when it rests)
            await asyncio.sleep(_LOOK_S)
        link, self._replaced = self._link, True
        assert link is not None
        self._tasks.spawn(link.close())
