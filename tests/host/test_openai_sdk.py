"""tests/peers/openai_*.py against the vendor's own client: what our adapters are tested with is a server to it, too."""

import asyncio
import base64

import pytest
from peers.plan import quiet
from peers.process import DEADLINE_S, PeerProcess

pytestmark = pytest.mark.asyncio
_PATIENCE_S = 3 * DEADLINE_S  # the SDK takes its time to load
PCMU = {"type": "audio/pcmu"}
LOCK = {"call": "lock", "arguments": '{"door": "front"}', "id": "c1"}
TOOL = {
    "type": "function",
    "name": "lock",
    "description": "",
    "parameters": {"type": "object", "properties": {}},
}


def client(peer):
    sdk = pytest.importorskip("openai")  # here, since it takes its time to load
    return sdk.AsyncOpenAI(base_url=f"http://127.0.0.1:{peer.port}/v1", api_key="k", max_retries=0)


async def events(connection, last):
    """What comes, up to the first of that type."""
    found = [await connection.recv()]
    while found[-1].type != last:
        found.append(await connection.recv())
    return found


async def test_vendors_client_has_a_realtime_conversation_with_the_peer():
    async with PeerProcess("openai_realtime") as peer, asyncio.timeout(_PATIENCE_S):
        await peer.respond([LOCK], [{"say": "It is locked.", "seconds": 0.2}])
        async with client(peer) as openai, openai.realtime.connect(model="m") as connection:
            await connection.session.update(
                session={
                    "type": "realtime",
                    "tools": [TOOL],
                    "audio": {"input": {"format": PCMU}, "output": {"format": PCMU}},
                }
            )
            item = {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Lock it."}],
            }
            await connection.conversation.item.create(item=item)
            await connection.response.create()
            [call] = (await events(connection, "response.done"))[-1].response.output
            assert (call.name, call.arguments) == (LOCK["call"], LOCK["arguments"])
            item = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
            await connection.conversation.item.create(item=item)
            await connection.response.create()
            came = await events(connection, "response.done")
            audio = [one.delta for one in came if one.type == "response.output_audio.delta"]
            assert len(b"".join(map(base64.b64decode, audio))) == 1600
            await connection.response.cancel()
            assert (await events(connection, "error"))[-1].error.code == "response_cancel_not_active"


async def test_vendors_client_has_a_live_conversation_with_the_peer():
    backend = {"model": "m", "tools": [TOOL]}
    session = {
        "model": "gpt-live-1",
        "audio": {"format": {**PCMU, "rate": 8000}},
        "delegation": {"type": "responses", "responses": backend},
    }
    async with PeerProcess("openai_live") as peer, asyncio.timeout(_PATIENCE_S):
        await peer.respond([LOCK], [{"say": "It is locked.", "seconds": 0.2}])
        async with client(peer) as openai, openai.live.connect() as connection:
            await connection.send({"type": "session.start", "session": session})
            await events(connection, "session.started")
            item = {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Lock it."}],
            }
            await connection.send({"type": "response.item.create", "item": item})
            await connection.send({"type": "response.create"})
            call = None
            while call is None:
                [*_, event] = await events(connection, "response.event")
                if (
                    event.event["type"] == "response.output_item.done"
                    and event.event["item"]["type"] == "function_call"
                ):
                    call = event.event["item"]
            assert (call["name"], call["arguments"]) == (LOCK["call"], LOCK["arguments"])
            while event.event["type"] != "response.completed":
                [*_, event] = await events(connection, "response.event")
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}
            await connection.send({"type": "response.item.create", "item": output})
            await connection.send({"type": "response.create"})
            sound = base64.b64encode(quiet(2, "pcmu", 8000)).decode()
            await connection.send({"type": "session.input_audio.append", "audio": sound})
            assert (await events(connection, "session.output_transcript.delta"))[-1].delta == "It is locked."
            await connection.send({"type": "session.close"})
            assert (await events(connection, "session.closed"))[-1].reason == "close_requested"
