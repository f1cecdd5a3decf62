"""A host, a breakable network and a simulated board in one process, all told to one recorder."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vrt_host.agents.base import Agent
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.harness.proxy import Proxy
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.watch import watch
from vrt_host.server import serve
from vrt_host.sim.board import SimBoard

_ID_SHOWN = 8  # characters of a session's id in the log: whoever has all of it could resume the session
_START_S = 60.0
"""The agent's models are loaded before the host listens."""


class Rig:
    """Use as an async context manager. The board has a token of its own, as a real one would.

    `frames` counts audio frames at the host: "in" from the board, "out" to it.
    """

    def __init__(
        self,
        recorder: Recorder,
        agents: Callable[[], Agent],
        *,
        heap: str,
        tools: Path | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.recorder = recorder
        self.frames: Counter[str] = Counter()
        self.proxy: Proxy
        self.board: SimBoard
        self._agents = agents
        self._options: dict[str, Any] = {"heap": heap, "tools": tools, "config": config}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vrt-rig-")))
            tokens = folder / "tokens.json"
            token = TokenFile(tokens).add("demo-board")
            port = await stack.enter_async_context(self._host(ServerConfig(port=0, tokens=tokens)))
            self.proxy = await stack.enter_async_context(
                Proxy(
                    "127.0.0.1",
                    port,
                    observer=lambda event, **fields: self.recorder.add("proxy", event, **fields),
                )
            )
            self.board = SimBoard(url=f"ws://127.0.0.1:{self.proxy.port}/", token=token, **self._options)
            watch(self.recorder, self.board)
            await stack.enter_async_context(self.board)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @contextlib.asynccontextmanager
    async def _host(self, config: ServerConfig) -> Any:
        """The server, from listening to its end; yields the port."""
        stop = asyncio.Event()
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve(config, self._agents, ready=port.set_result, observer=self._observe, stop=stop)
        )
        try:
            await asyncio.wait((serving, port), timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
            if not port.done():
                port.cancel()
                serving.cancel()
                await serving  # raises what went wrong
            yield port.result()
        finally:
            stop.set()
            await asyncio.gather(serving, return_exceptions=True)

    def _observe(self, event: dict[str, Any]) -> None:
        """Record what the host tells: frames as counts, messages without what a stranger could use."""
        name = event["event"]
        if name in {"audio.in", "audio.out"}:
            self.frames[name.removeprefix("audio.")] += 1
            return
        fields = {key: value for key, value in event.items() if key not in {"t", "event"}}
        if isinstance(fields.get("session"), str):
            fields["session"] = fields["session"][:_ID_SHOWN]
        message = fields.get("message")
        if isinstance(message, dict):
            fields["type"] = message.get("type")
            if isinstance(message.get("sessionId"), str):
                fields["message"] = {**message, "sessionId": message["sessionId"][:_ID_SHOWN] + "…"}
        self.recorder.add("host", name, at=event["t"], **fields)
