"""Wyoming servers, as Home Assistant runs them for Whisper and Piper: a connection for each utterance and each clause.

The protocol has no encryption and no keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from wyoming.client import AsyncClient
from wyoming.event import Event

from vrt_host.agents.provider import ProviderError
from vrt_host.speech.codec import Pcm16, Samples, to_pcm16
from vrt_host.speech.vad import RATE

log = logging.getLogger(__name__)

_ADVICE = "look at that server's log, or check the address"
_CONNECT_S = 5.0
_WIDTH = 2
_WAITING = 400
"""Pieces of audio that may wait for the server (13 s at 32 ms)."""


class Wyoming:
    """One server; `domain` is `asr` or `tts`."""

    def __init__(self, url: str, domain: str, timeout_s: float) -> None:
        self.url = url
        self._domain = domain
        self._timeout_s = timeout_s

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[AsyncClient]:
        """A connection; whatever breaks it becomes a `ProviderError`."""
        client = AsyncClient.from_uri(self.url, _CONNECT_S, self._timeout_s)
        try:
            await client.connect()
        except TimeoutError:
            raise ProviderError("unreachable", f"{self.url} did not answer in time") from None
        except OSError as error:
            raise ProviderError(
                "unreachable", f"{self.url} cannot be reached ({error.strerror or error})"
            ) from error
        try:
            yield client
        except TimeoutError:
            raise ProviderError("unreachable", f"{self.url} did not answer in time") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ProviderError("gone", f"the connection to {self.url} broke", advice=_ADVICE) from error
        except (
            KeyError,
            TypeError,
            AttributeError,
            ValueError,
        ) as error:  # what the package finds in an event that is none
            raise ProviderError("malformed", f"{self.url} sent an event that is none") from error
        finally:
            with contextlib.suppress(OSError):
                await client.disconnect()

    async def check(self) -> None:
        """Ask the server what it is; raises `ProviderError` when it is not what we need."""
        async with self.connected() as client:
            await client.write_event(Event("describe"))
            while (event := await self.read(client)).type != "info":
                pass
        programs = event.data.get(self._domain) or []
        if not any(isinstance(one, dict) and one.get("installed", True) for one in programs):
            use = {"asr": "recognise", "tts": "synthesise"}[self._domain]
            raise ProviderError(
                "version", f"the server at {self.url} does not {use} speech", advice="check the address"
            )

    async def read(self, client: AsyncClient) -> Event:
        """The next event; raises `ProviderError` for an error, and when there is none."""
        event = await client.read_event()
        if event is None:
            raise ProviderError("gone", f"{self.url} closed the connection without an answer", advice=_ADVICE)
        if event.type == "error":
            raise ProviderError(
                "refused", f"{self.url} said: {event.data.get('text') or event.data.get('code')}"
            )
        return event


class WyomingUtterance:
    """One utterance on its way to a server while it is spoken."""

    def __init__(self, server: Wyoming, model: str | None, language: str | None) -> None:
        self._server = server
        self._asked = {name: value for name, value in (("name", model), ("language", language)) if value}
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._talk())
        # Nobody may come for what became of it.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._dropped = False

    def feed(self, samples: Samples) -> None:
        """The next samples at 16 kHz."""
        if self._waiting.qsize() >= _WAITING:
            if not self._dropped:
                log.warning(
                    "%s takes speech more slowly than it is spoken: some of it is dropped", self._server.url
                )
            self._dropped = True
            return
        self._waiting.put_nowait(to_pcm16(samples).astype("<i2").tobytes())

    async def text(self) -> str:
        """The utterance has ended: what was said. Raises `ProviderError`."""
        self._waiting.put_nowait(None)
        return await self._task

    def cancel(self) -> None:
        """It is of no use any more."""
        self._task.cancel()

    async def _talk(self) -> str:
        shape: dict[str, Any] = {"rate": RATE, "width": _WIDTH, "channels": 1}
        async with self._server.connected() as client:
            await client.write_event(Event("transcribe", self._asked))
            await client.write_event(Event("audio-start", shape))
            while (pcm := await self._waiting.get()) is not None:
                await client.write_event(Event("audio-chunk", shape, pcm))
            await client.write_event(Event("audio-stop"))
            while (event := await self._server.read(client)).type != "transcript":
                pass  # pieces of it may come before
            return str(event.data["text"] or "").strip()


class WyomingVoice:
    """A server that speaks."""

    def __init__(self, server: Wyoming, voice: str | None) -> None:
        self._server = server
        self._voice = {"voice": {"name": voice}} if voice else {}

    async def speak(self, text: str) -> AsyncIterator[tuple[int, Samples]]:
        """(rate in Hz, the next samples); raises `ProviderError`."""
        codec = Pcm16()
        async with self._server.connected() as client:
            await client.write_event(Event("synthesize", {"text": text, **self._voice}))
            while (event := await self._server.read(client)).type != "audio-stop":
                if event.type == "audio-chunk" and event.payload:
                    if (event.data["width"], event.data["channels"]) != (_WIDTH, 1):
                        raise ProviderError("format", f"{self._server.url} does not speak in 16-bit mono")
                    yield int(event.data["rate"]), codec.decode(event.payload)
