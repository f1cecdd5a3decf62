"""agents/gemini_link.py: what one message may be. The rest of it is tested with the agent, in test_gemini_live.py."""

import asyncio

import pytest
from vrt_host.agents import gemini_link
from vrt_host.agents.gemini_link import Link
from vrt_host.agents.provider import ProviderError
from websockets.asyncio.server import serve


@pytest.mark.parametrize("more", [0, 1])
async def test_message_that_is_too_large_ends_the_connection(more):
    async def service(socket):
        await socket.recv()
        await socket.send(b'{"setupComplete":{}}')
        await socket.send(bytes(gemini_link._MAX_BYTES + more))
        await socket.wait_closed()

    async with serve(service, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        link, _ = await Link.open(f"ws://127.0.0.1:{port}/", {}, [{"setup": {}}], 10)
        if more:
            with pytest.raises(ProviderError) as caught:
                await link.receive()
            assert caught.value.kind == "malformed"
        else:
            assert len(await link.receive()) == gemini_link._MAX_BYTES
        await link.close()


async def test_connection_without_a_sign_of_life_is_gone(monkeypatch):
    monkeypatch.setattr(gemini_link, "_PING_S", 0.01)
    monkeypatch.setattr(gemini_link, "_PONG_S", 0.01)
    silent = asyncio.Event()

    async def service(socket):
        await socket.recv()
        await socket.send(b'{"setupComplete":{}}')
        socket.transport.pause_reading()
        await silent.wait()

    async with serve(service, "127.0.0.1", 0, compression=None, close_timeout=0.1) as server:
        port = server.sockets[0].getsockname()[1]
        link, _ = await Link.open(f"ws://127.0.0.1:{port}/", {}, [{"setup": {}}], 10)
        with pytest.raises(ProviderError) as caught:
            await link.receive()
        assert caught.value.kind == "gone"
        await link.close()
        silent.set()
