"""An agent at the far end of a chain: a host's agent `aitp` or `omnia`, another host's facade, and behind it the agent of a model."""

import asyncio
import contextlib
import json

from vrt_host.agents import aitp, omnia
from vrt_host.config import ServerConfig
from vrt_host.facades import aitp as aitp_facade
from vrt_host.facades import omnia as omnia_facade
from vrt_host.server import serve

from peers.subjects import SUBJECTS, Subject


def _states(*names, **more):
    return {
        "type": "object",
        "properties": {"state": {"enum": list(names)}, **more},
        "required": ["state", *more],
    }


HOUSE = [
    {
        "name": "lock",
        "description": "Lock or unlock a door.",
        "parameters": _states("locked", "unlocked", door={"enum": ["front", "back"]}),
        "effect": "irreversible",
    },
    {"name": "light", "description": "Switch the light.", "parameters": _states("on", "off")},
    {"name": "check_house", "description": "Look at all of it."},
]
"""What an Omnia client runs is configured at the server."""


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


class OmniaChain(Chain):
    name = "omnia_chain"

    def facade(self):
        house = self._folder / "house.json"
        house.write_text(json.dumps(HOUSE))
        return omnia_facade.OmniaFacade(omnia_facade.Options(port=0, tools=house))

    def connecting(self, port):
        options = omnia.Options(base_url=f"http://127.0.0.1:{port}", agent="house")
        return lambda: omnia.OmniaAgent(options)


CHAINS = {kind.name: kind for kind in (AitpChain, OmniaChain)}
