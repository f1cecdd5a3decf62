"""A server with OpenAI's speech endpoints: `/v1/audio/transcriptions` and `/v1/audio/speech`, over HTTP/1.1.

What comes in is checked against the SDK's own types. A transcription is the next of `on_hear`, else `HEARD`; speech is a
tone that lasts as long as the text was planned to (`lengths`), else 10 ms for each letter.
"""

import asyncio
import http
import json
import wave
from email.parser import BytesParser
from email.policy import HTTP
from io import BytesIO
from typing import get_type_hints

from openai.types.audio.speech_create_params import SpeechCreateParams
from openai.types.audio.transcription_create_params import TranscriptionCreateParamsNonStreaming
from openai.types.model import Model
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from peers.plan import chunks
from peers.process import Peer, main

HEARD = "Hello there."
RATE = 24_000

REFUSED = {
    "key": (401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
    "model": (
        404,
        "The model `m` does not exist or you do not have access to it.",
        "error",
        "model_not_found",
    ),
    "format": (400, "Invalid value for 'tools': not supported by this model.", "invalid_request_error", None),
    "rate": (429, "Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
    "quota": (429, "You exceeded your current quota.", "insufficient_quota", "insufficient_quota"),
    "expired": (401, "Your authentication token has expired.", "invalid_request_error", "token_expired"),
    "version": (404, "Invalid URL (POST /v1/chat/completions)", "invalid_request_error", None),
}
"""Kind -> status, message, type and code, as OpenAI's server writes them."""
LATER = ("model", "format", "version")
"""Not noticed before something is asked of the model."""


def error_body(kind):
    """The body of a refusal."""
    _, message, type_, code = REFUSED[kind]
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


def strictly(adapter, value):
    """Raise for what the type does not know; a TypedDict lets it pass, but does not keep it."""
    kept = adapter.dump_python(adapter.validate_python(value), mode="json", warnings="error")
    assert kept == value, f"not in the type: {value} became {kept}"


_SPEECH = TypeAdapter(SpeechCreateParams)
_FIELDS = get_type_hints(TranscriptionCreateParamsNonStreaming)
_TRANSCRIPTION = TypeAdapter(
    TypedDict("Fields", {k: v for k, v in _FIELDS.items() if k != "file"}, total=False)
)


class Request:
    """One request, and the way to answer it."""

    def __init__(self, method, path, headers, body, writer):
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self.writer = writer

    async def json(self, status, value):
        body = json.dumps(value).encode()
        self._head(status, "application/json", f"Content-Length: {len(body)}")
        self.writer.write(body)
        await self.writer.drain()

    def stream(self, type_):
        """Begin an answer in chunks, which `send` and `end` follow."""
        self._head(200, type_, "Transfer-Encoding: chunked")

    async def send(self, data):
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def end(self):
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def _head(self, status, type_, *more):
        lines = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}", f"Content-Type: {type_}", *more]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())


class SpeechApiPeer(Peer):
    """Its routes are methods by path; a subclass adds some."""

    def __init__(self):
        super().__init__()
        self._wav = False
        self._fails, self._deaf = "", True
        self._hesitates = False
        self._heard = []
        self.lengths = []
        """[text, its part of `say`, how much of it was spoken]."""
        self.routes = {
            "/v1/models": self._models,
            "/v1/audio/transcriptions": self._transcribe,
            "/v1/audio/speech": self._speak,
        }

    def on_hear(self, texts):
        self._heard.extend(texts)

    def on_fail(self, kind, hearing=True):
        """Speaking, and hearing, is refused with this kind from now on."""
        self._fails, self._deaf = kind, hearing

    def on_hesitate(self):
        """The next transcription waits for the release of `hearing`."""
        self._hesitates = True

    def on_wav(self):
        """Speech is sent as a WAV file from now on, though bare samples are asked for."""
        self._wav = True

    def on_reset(self):
        super().on_reset()
        self._fails, self._wav, self._hesitates = "", False, False
        self._heard.clear()
        self.lengths.clear()

    async def serve(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _connected(self, reader, writer):
        self.transports.add(writer.transport)
        self.tell("connected")
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.transports.discard(writer.transport)
            self.tell("closed")
            writer.transport.abort()

    async def _request(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        first, rest = head.split(b"\r\n", 1)
        method, target, _ = first.decode().split(" ")
        headers = BytesParser(policy=HTTP).parsebytes(rest)
        body = await reader.readexactly(int(headers.get("Content-Length", 0)))
        request = Request(method, target.partition("?")[0], headers, body, writer)
        if not headers.get("Authorization", "").startswith("Bearer ") or "key" in target:
            self.tell("invalid", why="the key is to be in the header")
        later = request.path == "/v1/models" and self._refusals and self._refusals[0] in LATER
        kind = None if later else self.refusal()
        if kind is not None:
            await request.json(REFUSED[kind][0], error_body(kind))
            return True
        try:
            await self.routes[request.path](request)
        except (ValidationError, AssertionError, KeyError, ValueError) as error:
            self.tell("invalid", why=f"{request.path}: {error!r}")
            return False
        return True

    async def _models(self, request):
        model = {"id": "m", "object": "model", "created": 1, "owned_by": "us"}
        Model.model_validate(model, extra="forbid")
        await request.json(200, {"object": "list", "data": [model]})

    async def _transcribe(self, request):
        fields = {}
        form = BytesParser(policy=HTTP).parsebytes(
            b"Content-Type: " + request.headers["Content-Type"].encode() + b"\r\n\r\n" + request.body
        )
        for part in form.iter_parts():
            fields[part.get_param("name", header="content-disposition")] = part.get_content()
        with wave.open(BytesIO(fields["file"])) as file:
            assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16_000)
            ms = file.getnframes() // 16
        words = {name: value.strip() for name, value in fields.items() if name != "file"}
        strictly(_TRANSCRIPTION, words)
        self.tell("speech_started")
        self.tell("committed", ms=ms, authorization=request.headers["Authorization"], **words)
        if self._hesitates:
            self._hesitates = False
            await self.wait("hearing")
        if self._fails and self._deaf:
            await request.json(REFUSED[self._fails][0], error_body(self._fails))
        else:
            await request.json(200, {"text": self._heard.pop(0) if self._heard else HEARD})

    async def _speak(self, request):
        asked = json.loads(request.body)
        strictly(_SPEECH, asked)
        self.tell("spoken", authorization=request.headers["Authorization"], **asked)
        if self._fails:
            await request.json(REFUSED[self._fails][0], error_body(self._fails))
            return
        request.stream("audio/pcm")
        if self._wav:
            sizes = (0x7FFFFFFF).to_bytes(4, "little")
            shape = b"".join(
                value.to_bytes(size, "little")
                for value, size in ((16, 4), (1, 2), (1, 2), (RATE, 4), (2 * RATE, 4), (2, 2), (16, 2))
            )
            for byte in b"RIFF" + sizes + b"WAVEfmt " + shape + b"data" + sizes:
                await request.send(bytes([byte]))
        async for chunk in chunks(self._length(asked["input"]), "pcm16", RATE):
            await request.send(chunk[:101])  # in the middle of a sample
            await request.send(chunk[101:])
        await request.end()

    def _length(self, text):
        """How this text sounds: its share of the `say` that it is the next clause of."""
        for planned in self.lengths:
            whole, part, done = planned
            if whole[done:].lstrip().startswith(text):
                planned[2] = whole.index(text, done) + len(text)
                seconds = part["seconds"] and max(0.02, part["seconds"] * len(text) / len(whole))
                return {**part, "seconds": seconds}
        return {"seconds": 0.01 * len(text), "pace": 0}


if __name__ == "__main__":
    main(SpeechApiPeer)
