"""How a client under test is started: by a command of the operator's, or by the operator."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from vrt_host.conformance.checks import printable
from vrt_host.errors import UsageError

_LINES: Final = 200
"""Of a command's output, kept."""
_STOP_S: Final = 5.0
URL: Final = "{url}"


class Subject(Protocol):
    """The client under test, as something that can be started."""

    restarts: bool
    """Whether `start` can make a client come that stays away."""

    async def start(self, url: str) -> None:
        """Let it connect to `url`, from the beginning. Returns at once."""

    async def stop(self) -> None:
        """End it, if it runs."""

    async def gone(self) -> str:
        """Returns when it has ended by itself, with what is known of it."""


class Command:
    """A command that runs a client. `output` is the end of what it printed."""

    restarts = True

    def __init__(self, words: Sequence[str]) -> None:
        """Raises `UsageError` when no word holds `{url}`."""
        if not any(URL in word for word in words):
            raise UsageError(f"the command needs {URL} where the address goes: vrt sim --url {URL}")
        self._words = words
        self._process: asyncio.subprocess.Process | None = None
        self._pipe: asyncio.ReadTransport | None = None
        self._reader: asyncio.Task[None] | None = None
        self.output: deque[str] = deque(maxlen=_LINES)

    async def start(self, url: str) -> None:
        """Start it; raises `UsageError` when there is no such program."""
        words = [word.replace(URL, url) for word in self._words]
        self.output.append(printable(f"$ {shlex.join(words)}"))
        ours, its = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=its,
                stderr=its,
                start_new_session=True,  # what it starts ends with it
            )
        except OSError as error:
            os.close(ours)
            raise UsageError(f"cannot run {words[0]}: {error.strerror or error}") from None
        finally:
            os.close(its)
        stream = asyncio.StreamReader()
        self._pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(ours, "rb", 0)
        )
        self._reader = asyncio.create_task(self._read(stream))

    async def stop(self) -> None:
        """End it and all that it started: politely, then not."""
        process, reader, pipe = self._process, self._reader, self._pipe
        if process is None or reader is None or pipe is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
                    break
        await asyncio.wait(
            [reader], timeout=_STOP_S
        )  # something may have left the group, and hold the output open
        reader.cancel()
        pipe.close()
        self._process = None

    async def gone(self) -> str:
        """Its exit code and its last line."""
        assert self._process is not None
        assert self._reader is not None
        code = await self._process.wait()
        await asyncio.wait([self._reader])
        return f"the command ended with code {code}: {self.output[-1]}"

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await _line(stream):
            self.output.append(printable(line.rstrip("\r\n")))


class Operator:
    """Somebody who has a client, and is told what it is waited for. It comes back by itself after most scenarios."""

    restarts = False

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._asked = False

    async def start(self, url: str) -> None:
        """Ask for it."""
        self._say(
            f"waiting for the client; {'restart it, if it does not come by itself' if self._asked else f'connect it to {url}'}"
        )
        self._asked = True

    async def stop(self) -> None:
        """Nobody is asked to end it."""

    async def gone(self) -> str:
        """Never known."""
        return await asyncio.Future()


async def _line(stream: asyncio.StreamReader) -> str:
    try:
        data = await stream.readline()
    except ValueError:  # longer than the stream's limit, which it has thrown away
        return "(a line too long to show)\n"
    return data.decode("utf-8", "replace")
