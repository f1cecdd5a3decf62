"""Servers that speak OpenAI's HTTP dialect, by the vendor's SDK: its client as we use it, what its errors mean, and the
two speech endpoints, `/audio/transcriptions` and `/audio/speech`.
"""

from __future__ import annotations

import io
import logging
import re
import wave
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI

from vrt_host.agents.provider import Kind, ProviderError
from vrt_host.speech.codec import Pcm16, Samples, to_pcm16
from vrt_host.speech.vad import RATE

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of every request

FAILURES = (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError)
"""What the SDK raises, before and while a body is read."""

ASK_AGAIN = "ask again"
_FORMAT = "the server does not take this model's name, its options, or tools: see its words"
_TROUBLE = "the server is in trouble or still starting: wait, or look at its log"

_CONNECT_S = 10.0
_NO_KEY = "none"
"""The SDK wants a key; servers of one's own ignore it."""
_SPEECH_RATE = 24_000
"""Of `pcm`, by OpenAI's documentation; a WAV header says otherwise."""
_HEADER_BYTES = 4096
"""A WAV header is shorter."""


def client(base_url: str, key: str, timeout_s: float) -> AsyncOpenAI:
    """A client of one session. Nothing is tried again behind our back, and nothing is sent where a redirect points."""
    timeout = httpx2.Timeout(timeout_s, connect=_CONNECT_S)
    return AsyncOpenAI(
        base_url=base_url,
        api_key=key or _NO_KEY,
        timeout=timeout,
        max_retries=0,
        http_client=httpx2.AsyncClient(timeout=timeout, follow_redirects=False),
    )


_TAGS = re.compile(r"<(style|script|title)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def problem(error: Exception, part: str = "") -> ProviderError:
    """What one of `FAILURES` means; `part` says which of an agent's servers it was, where there are several."""
    found = _problem(error)
    if part:
        said = f"{part}: {found.said}"
        return ProviderError(found.kind, said, advice=found.advice, retry_after_s=found.retry_after_s)
    return found


def _problem(error: Exception) -> ProviderError:
    if isinstance(error, openai.APIStatusError):
        retry = error.response.headers.get("retry-after", "")
        after = float(retry) if retry.replace(".", "", 1).isdigit() else None
        return refusal(error.status_code, error.body, after)
    if isinstance(error, (openai.APITimeoutError, httpx2.TimeoutException)):
        return ProviderError("unreachable", f"{_address(error)} did not answer in time")
    if isinstance(error, (openai.APIConnectionError, httpx2.ConnectError)):
        cause = error.__cause__ or error
        if isinstance(cause, (httpx2.ConnectError, httpx2.ConnectTimeout)):
            return ProviderError("unreachable", f"{_address(error)} cannot be reached ({cause})")
        return ProviderError(
            "gone", f"the connection broke ({cause or type(cause).__name__})", advice=ASK_AGAIN
        )
    if isinstance(error, (httpx2.HTTPError, httpx2.StreamError)):
        said = f"the connection broke ({str(error) or type(error).__name__})"
        return ProviderError("gone", said, advice=ASK_AGAIN)
    return ProviderError("malformed", str(error) or type(error).__name__)


def _address(error: Exception) -> str:
    """Of the server; no key is ever in it."""
    try:
        return str(error.request.url)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return "it"


def refusal(status: int, body: object, retry_after_s: float | None = None) -> ProviderError:
    """An error as the server wrote it, under an HTTP status or (status 0) in the middle of a stream.

    `body` is the error object, whatever holds it, or a text.
    """
    if isinstance(body, list) and body:  # Google's
        body = body[0]
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    fields: Mapping[str, Any] = inner if isinstance(inner, Mapping) else {}
    if not status and str(fields.get("code")).isdigit():
        status = int(str(fields["code"]))
    said = fields.get("message") or fields.get("detail") or (inner if isinstance(inner, str) else "")
    if isinstance(said, list):  # what FastAPI finds wrong with a request
        said = ", ".join(str(one.get("msg", one) if isinstance(one, Mapping) else one) for one in said)
    said = str(said).strip()
    if said.startswith("<"):
        said = _TAGS.sub(" ", said).strip()
    said = said or (f"HTTP status {status}" if status else "an error without words")
    words = f"{fields.get('code')} {fields.get('type')} {said}".lower()
    kind = _kind(status, words)
    advice = {"format": _FORMAT, "unreachable": _TROUBLE}.get(kind)
    return ProviderError(kind, said, advice=advice, retry_after_s=retry_after_s)


def _kind(status: int, words: str) -> Kind:
    told: tuple[tuple[bool, Kind], ...] = (
        ("quota" in words or "billing" in words or status == 402, "quota"),
        (status == 429 or "rate_limit" in words or "rate limit" in words or "overloaded" in words, "rate"),
        ("expired" in words and ("token" in words or "key" in words), "expired"),
        (
            status in (401, 403) or "api_key" in words or "api key" in words or "authentication" in words,
            "key",
        ),
        ("version" in words, "version"),
        (
            "model" in words and (status == 404 or "model_not_found" in words or "does not exist" in words),
            "model",
        ),
        (status in (301, 302, 307, 308, 404, 405, 410, 426, 501), "version"),
        (status >= 500, "unreachable"),
        (status in (400, 413, 415, 422), "format"),
    )
    return next((kind for true, kind in told if true), "refused")


def context_too_long(error: ProviderError) -> bool:
    """Whether a chat was refused because it is longer than the model takes."""
    said = error.said.lower()
    return error.kind in ("format", "refused") and "context" in said and ("length" in said or "size" in said)


class Transcriptions:
    """`POST /audio/transcriptions`: a whole utterance as a WAV file, answered by its text."""

    def __init__(self, client: AsyncOpenAI, model: str, language: str | None) -> None:
        self._client = client
        self._model = model
        self._language = language

    async def transcribe(self, samples: Samples) -> str:
        """The text of samples at 16 kHz; raises `ProviderError`."""
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setparams((1, 2, RATE, len(samples), "NONE", ""))
            out.writeframes(to_pcm16(samples).astype("<i2").tobytes())
        try:
            answer = await self._client.audio.transcriptions.create(
                file=("speech.wav", file.getvalue(), "audio/wav"),
                model=self._model,
                response_format="json",
                **({"language": self._language} if self._language else {}),  # type: ignore[call-overload]
            )
        except FAILURES as error:
            raise problem(error, "the recogniser") from error
        text = answer if isinstance(answer, str) else getattr(answer, "text", None)
        if not isinstance(text, str):
            raise ProviderError("malformed", "the recogniser: a transcription has no text")
        return text.strip()


class SpeechEndpoint:
    """`POST /audio/speech`: a clause, answered by 16-bit samples as they are made."""

    def __init__(self, client: AsyncOpenAI, model: str, voice: str) -> None:
        self._client = client
        self._model = model
        self._voice = voice

    async def speak(self, text: str) -> AsyncIterator[tuple[int, Samples]]:
        """(rate in Hz, the next samples); raises `ProviderError`."""
        codec = Pcm16()
        head: bytes | None = b""
        rate = _SPEECH_RATE
        try:
            async with self._client.audio.speech.with_streaming_response.create(
                model=self._model, voice=self._voice, input=text, response_format="pcm"
            ) as response:
                async for chunk in response.iter_bytes():
                    if head is not None:
                        begun = _begun(head + chunk)
                        if begun is None:
                            head += chunk
                            continue
                        (rate, chunk), head = begun, None  # noqa: PLW2901
                    if chunk:
                        yield rate, codec.decode(chunk)
        except FAILURES as error:
            raise problem(error, "the voice") from error
        if head:
            yield rate, codec.decode(head)


def _begun(data: bytes) -> tuple[int, bytes] | None:
    """(rate, the samples so far) of the beginning of a sound, None when that cannot be told yet.

    We ask for bare samples; some servers send a WAV file all the same.
    """
    if len(data) < 12:
        return None
    if data[:4] in (b"OggS", b"fLaC") or data[:3] == b"ID3" or (data[0] == 0xFF and data[1] & 0xE6 == 0xE2):
        raise ProviderError("format", "the voice: it is not 16-bit PCM, which was asked for")
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return _SPEECH_RATE, data
    place = data.find(b"data", 12)
    if place < 0 or len(data) < place + 8:
        if len(data) > _HEADER_BYTES:
            raise ProviderError("format", "the voice: a WAV file has no samples")
        return None
    shape = data.find(b"fmt ", 12)
    kind, channels = (int.from_bytes(data[shape + at : shape + at + 2], "little") for at in (8, 10))
    bits = int.from_bytes(data[shape + 22 : shape + 24], "little")
    if shape < 0 or channels != 1 or bits != 16 or kind not in (1, 0xFFFE):
        raise ProviderError("format", "the voice: a WAV file is not 16-bit mono PCM")
    return int.from_bytes(data[shape + 12 : shape + 16], "little"), data[place + 8 :]
