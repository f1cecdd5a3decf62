"""The first look at a server: whether it can be tested at all, and what its profile knows."""

from __future__ import annotations

import asyncio

from vrt_host.conformance.checks import Unmet
from vrt_host.conformance.client import Server, why
from vrt_host.errors import UsageError

PROFILE_S = 3.0
"""How long the answer to "test profile" may take; a server without a profile may give none."""


async def reach(server: Server) -> None:
    """Raises `UsageError`, in one line, for what the operator can mend."""
    try:
        socket = await server.connect()
    except Exception as error:  # whatever a resolver, TLS or HTTP can say
        raise UsageError(f"cannot reach {server.url}: {why(error)}") from None
    await socket.close()
    try:
        async with server.line() as line:
            await line.send({"v": 1, "seq": 0, "type": "hello", **server.credential})
            answer = await line.until("ready", "error")
    except Unmet:
        return  # the suite will say what is wrong with it
    if answer.get("code") == "UNAUTHORIZED":
        told = "the token of --token-file" if server.token else "a hello without a token; give --token-file"
        raise UsageError(f"{server.url} does not take {told}")


async def profile(server: Server) -> frozenset[str]:
    """The steering texts that the server says it knows; none when it has no profile."""
    try:
        async with server.session() as device, asyncio.timeout(server.pace.s(PROFILE_S)):
            await device.send("text", text="test profile")
            said = ""
            while True:
                message = await device.line.until("text", "turn.state", within=PROFILE_S)
                if message["type"] == "text":
                    said += message["text"]
                elif message["state"] == "idle":
                    return frozenset(said.split())
    except (Unmet, TimeoutError):
        return frozenset()
