"""How adapters dial a WebSocket: without following redirects, since the key in a header would go wherever those lead."""

from __future__ import annotations

from websockets.asyncio.client import connect


class Dial(connect):
    """`websockets.connect`, for one address."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Never elsewhere."""
        return exc
