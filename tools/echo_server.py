"""A bare `websockets` echo server, the baseline of tools/bench_host.py: what comes goes back, frame by frame.

    python tools/echo_server.py        prints the port, serves until it is terminated

It is configured as the host's own server is: no compression, no keepalive of the library's.
"""

from __future__ import annotations

import asyncio

from websockets.asyncio.server import ServerConnection, serve


async def echo(link: ServerConnection) -> None:
    """The whole of it, as the library's documentation has it."""
    async for message in link:
        await link.send(message)


async def main() -> None:
    """Serve on a free port of the loopback."""
    async with serve(echo, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
