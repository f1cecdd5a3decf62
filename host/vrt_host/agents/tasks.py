"""An agent's work in the background: none outlives the agent, and none fails unseen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Tasks(set[asyncio.Task[Any]]):
    """Those that have not ended."""

    def __init__(self, name: str, failed: Callable[[asyncio.Task[Any]], None]) -> None:
        """`failed(task)` is called for a fault of ours, which is in the log then; `name` is the agent's."""
        super().__init__()
        self._name = name
        self._failed = failed

    def spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Begin it."""
        task = asyncio.get_running_loop().create_task(work)
        self.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the %s agent failed", self._name, exc_info=error)
            self._failed(task)

    async def end(self) -> None:
        """Cancel all, and wait until they have ended."""
        tasks = list(self)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
