"""How adapters dial a WebSocket: without following redirects, since the key in a header would go wherever those lead."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidMessage, InvalidProxy, ProxyError

from vrt_host.config import is_loopback

GOODBYE_S = 1.0
"""For a connection to end as it should."""


class Dial(connect):
    """`websockets.connect`, for one address; what is no address, no way there and no answer is an `OSError`, too."""

    def __init__(self, uri: str, **options: Any) -> None:
        if is_loopback(urlsplit(uri).hostname or ""):
            options["proxy"] = None  # of the environment: another machine, which would read it all
        super().__init__(uri, **options)

    def __await__(self) -> Generator[Any, None, ClientConnection]:
        try:
            return (yield from super().__await__())
        except OSError:  # a certificate that is not trusted is a ValueError, too
            raise
        except InvalidProxy as error:  # whose address may have a password in it
            raise OSError(f"the proxy of the environment is not valid: {error.msg}") from None
        except ProxyError as error:
            raise OSError(f"the proxy of the environment does not connect: {error}") from None
        except (ValueError, ImportError) as error:
            raise OSError(str(error)) from error
        except InvalidMessage as error:
            if isinstance(error.__cause__, EOFError | ConnectionError):  # as of a server that is starting
                raise ConnectionResetError("the connection ended without an answer") from None
            raise

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Never elsewhere."""
        return exc


async def goodbye(socket: ClientConnection, within_s: float, code: int = 1000, reason: str = "") -> None:
    """Close it; a peer that does not read what is sent, or does not answer, is left after `within_s` all the same."""
    try:
        async with asyncio.timeout(within_s):
            await socket.close(code, reason)
    except TimeoutError:
        pass
    finally:
        socket.transport.abort()
