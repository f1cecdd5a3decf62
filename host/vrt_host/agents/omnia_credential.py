"""The credential of an Omnia facade: a key that stays, or a file in which a new one appears before the old one expires."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from pathlib import Path

from vrt_host.agents.omnia_options import Options
from vrt_host.agents.options import sendable, shown
from vrt_host.agents.provider import ProviderError

WATCH_S = 2.0
"""Between two looks at the file."""
RENEWAL_S = 60.0
"""How long a new one is waited for when the old one has expired."""
_BYTES = 16_384
_SEEN = 16


class Credential:
    """What goes into the `Authorization` header."""

    def __init__(self, options: Options) -> None:
        self._path = options.credential_file
        self.value = shown(options.api_key)
        self.seen: deque[str] = deque([self.value] if self.value else [], maxlen=_SEEN)
        """Those that were used, the last ones: none of them may be in a log."""

    @property
    def renewable(self) -> bool:
        """Whether another one may come."""
        return self._path is not None

    async def read(self) -> None:
        """Look at the file, if there is one. Raises `ProviderError` where there is no credential in it, and was none before."""
        if self._path is None:
            return
        path = self._path
        try:
            text = (await asyncio.to_thread(_content, path)).decode("utf-8-sig").strip()
            fault = "" if sendable(text) and len(text) <= _BYTES else "it has to hold it alone"
        except OSError as error:
            text, fault = "", error.strerror or "it cannot be read"
        except UnicodeDecodeError:
            text, fault = "", "it is not text"
        if fault:  # it may just be written
            if not self.value:
                said = f"there is no credential in {path}: {fault}"
                raise ProviderError("key", said, advice="put it there, in one line")
            return
        if text != self.value:
            self.value = text
            self.seen.append(text)

    async def other(self, than: str) -> str:
        """Wait until there is another one than this."""
        while True:
            await self.read()
            if self.value != than:
                return self.value
            await asyncio.sleep(WATCH_S)


def _content(path: Path) -> bytes:
    with open(path, "rb", opener=_open) as file:
        return file.read(_BYTES + 1)


def _open(path: str, flags: int) -> int:
    return os.open(
        path, flags | getattr(os, "O_NONBLOCK", 0)
    )  # a pipe that nobody writes to would wait for ever
