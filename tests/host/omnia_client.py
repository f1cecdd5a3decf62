"""A client of the Omnia facade for its tests; what the facade sends is judged by the schema of schema/peers/omnia."""

import asyncio
import contextlib
import json

from host_client import DEADLINE_S, hosting
from peers.vectors import decode_omni, encode_omni, errors
from vrt_host.agents.base import Format, Text, TurnBegin, TurnEnd
from vrt_host.facades import omnia
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

PCM16_16K = Format("pcm16", 16_000)
WEATHER = {
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
WHERE = {
    "name": "where",
    "description": "Tells where the user is.",
    "consent_message": "Share your place?",
    "categories": ["location"],
    "effect": "none",
}


class Closed(Exception):
    def __init__(self, code, reason):
        super().__init__(code, reason)
        self.code, self.reason = code, reason


class Client:
    """An Omnia client; every frame that comes is judged."""

    def __init__(self, ws):
        self.ws = ws
        self.sequence = 0

    async def send(self, type_, /, **body):
        await self.ws.send(json.dumps({"type": type_, **body}))

    async def say(self, content, **more):
        await self.send("message", content=content, **more)

    async def audio(self, payload, *, last=False, **metadata):
        frame = {
            "flags": ["is_last"] if last else [],
            "message_type": 1,
            "sequence": self.sequence,
            "media_id": "00" * 12,
            "metadata": metadata,
            "payload": payload.hex(),
        }
        self.sequence += 1
        await self.ws.send(encode_omni(frame))

    async def next(self):
        """The next message, or what a binary frame holds."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                frame = await self.ws.recv()
            except ConnectionClosed as error:
                raise Closed(error.rcvd.code, error.rcvd.reason) from None
        assert errors("omnia", "server", frame) == []
        if isinstance(frame, bytes):
            return {"type": "frame", **decode_omni(frame)}
        return json.loads(frame)

    async def until(self, type_, **members):
        """The next message like this; others are passed over."""
        while True:
            message = await self.next()
            if message["type"] == type_ and members.items() <= message.items():
                return message

    async def error(self):
        """Code and words of the next message, which is an error."""
        message = await self.next()
        assert message["type"] == "error", message
        return message["error"]["code"], message["error"]["message"]

    async def answer(self):
        """The text of the next whole answer: in pieces, and again at its end."""
        text = ""
        while True:
            message = await self.next()
            if message["type"] == "done":
                assert message.get("content", "") == text
                return text
            assert message["type"] == "chunk", message
            text += message["content"]

    async def closed(self):
        while True:
            try:
                await self.next()
            except Closed as closed:
                return closed.code, closed.reason


@contextlib.asynccontextmanager
async def serving(
    *brains,
    config=None,
    lending=None,
    token=None,
    tmp_path=None,
    tools=(WEATHER, WHERE),
    turn_limits=None,
    **options,
):
    """`omnia(**query)`: a connection; `brains` are the agents, in the order of the sessions."""
    if tmp_path is not None:
        options["tools"] = tmp_path / "tools.json"
        options["tools"].write_text(json.dumps(tools))
    facade, rest = omnia.OmniaFacade(omnia.Options(port=0, **options)), list(brains)
    given = {"config": config, "facades": [facade], "lending": lending, "turn_limits": turn_limits}
    async with hosting(lambda: rest.pop(0), **given) as host:

        @contextlib.asynccontextmanager
        async def client(*, token=token, headers=None, connected=False, **query):
            given = "&".join(f"{name}={value}" for name, value in query.items())
            if token is not None:
                headers = {**(headers or {}), "Authorization": f"Bearer {token}"}
            async with connect(
                f"ws://127.0.0.1:{facade.port}/ws?{given}",
                compression=None,
                proxy=None,
                max_size=None,
                max_queue=None,
                additional_headers=headers,
            ) as ws:
                made = Client(ws)
                if connected:
                    made.connected = await made.next()
                    made.id = made.connected["session_id"]
                yield made

        host.omnia = client
        host.facade = facade
        yield host


def _others():
    return asyncio.sleep(0)


async def until(true, again=_others):
    """Wait with a deadline until it is so; `again` is awaited in between."""
    async with asyncio.timeout(DEADLINE_S):
        while not true():
            await again()


def answers(agent, text):
    """What most brains do: "You said ..."."""
    turn = f"t{len(agent.heard)}{text[:20]}"
    agent.port.emit(TurnBegin(turn))
    agent.port.emit(Text(turn, "You said "))
    agent.port.emit(Text(turn, f"{text}.", True))
    agent.port.emit(TurnEnd(turn))
