"""An agent at the far end of a chain: a host's agent `aitp`, another host's facade, and behind it the agent of a model."""

import asyncio
import contextlib

from vrt_host.agents import aitp
from vrt_host.config import ServerConfig
from vrt_host.facades import aitp as aitp_facade
from vrt_host.server import serve

from peers.subjects import SUBJECTS, Subject


class Chain(Subject):
    """What makes the model at the end answer as planned is the same as without a chain."""

    tools = planned = provider = True
    queues = False
    behind = "openai"

    def facade(self):
        """The one that the other host has."""
        raise NotImplementedError

    async def __aenter__(self):
        async with contextlib.AsyncExitStack() as stack:
            self._model = await stack.enter_async_context(SUBJECTS[self.behind](self._folder))
            self.peer = self._model.peer
            facade = self.facade()
            ready = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(
                serve(ServerConfig(port=0), self._model.agents, ready=ready.set_result, facades=[facade])
            )
            stack.push_async_callback(asyncio.wait, {task})
            stack.callback(task.cancel)
            await ready
            self.agents = self.connecting(facade.port)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error):
        await self._stack.__aexit__(*error)

    async def plan(self, *responses):
        await self._model.plan(*responses)


class AitpChain(Chain):
    name = "aitp_chain"

    def facade(self):
        return aitp_facade.AitpFacade(aitp_facade.Options(port=0))

    def connecting(self, port):
        options = aitp.Options(url=f"ws://127.0.0.1:{port}")
        return lambda: aitp.Aitp(options)


CHAINS = {kind.name: kind for kind in (AitpChain,)}
