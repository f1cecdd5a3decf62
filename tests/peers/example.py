"""The least peer: each line of a TCP connection is answered by a response. Its test is the test of `process`."""

import asyncio
import json

from peers.plan import chunks
from peers.process import Peer, main


class ExamplePeer(Peer):
    def __init__(self, *, rate=8000):
        super().__init__()
        self._rate = rate

    async def serve(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _connected(self, reader, writer):
        self.transports.add(writer.transport)
        if self.refusal() is not None:
            writer.transport.abort()
        try:
            while line := await reader.readline():
                self.tell("text", text=line.decode().strip())
                if line.startswith(b"wrong"):
                    self.tell("invalid", why="a wrong line")
                if line.startswith(b"fault"):
                    raise RuntimeError("a fault of the peer's own")
                for part in self.next_response():
                    if "wait" in part:
                        await self.wait(part["wait"])
                    elif "say" in part:
                        sizes = [len(chunk) async for chunk in chunks(part, "pcmu", self._rate)]
                        writer.write(json.dumps([part["say"], sizes]).encode() + b"\n")
                    else:
                        writer.write(json.dumps(part).encode() + b"\n")
        except ConnectionError:
            pass
        finally:
            self.transports.discard(writer.transport)
            writer.close()

    def on_add(self, one, other):
        self.tell("sum", value=one + other)


if __name__ == "__main__":
    main(ExamplePeer)
