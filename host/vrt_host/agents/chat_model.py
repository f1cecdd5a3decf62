"""One request to a chat server, streamed: what its chunks mean, whoever sends them (voice: "be liberal").

`Reader` knows no sockets; `ChatModel` gives it the server's lines. Servers differ: a call comes in fragments or whole, with
an id or without, with all calls under one index, as text where there should be a call; an answer has thoughts in it, or
no end. What must not differ: a call that may have lost something is not run.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai import AsyncOpenAI

from vrt_host.agents.chat_text import Thinking
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.provider import ProviderError
from vrt_host.speech.openai_api import ASK_AGAIN, FAILURES, problem, refusal

log = logging.getLogger(__name__)

_LINE_BYTES = 1 << 20
_CALLS = 32
"""Calls in one answer."""
_HELD_CHARS = 8000
_CALL_MARKS = ("{", "```", "<tool_call>")
_FENCE = re.compile(r"^(?:<tool_call>|```(?:json)?)\s*(.*?)\s*(?:</tool_call>|```)?$", re.DOTALL)


@dataclass(slots=True)
class Wanted:
    """A call as the model writes it. `number` counts the calls of an answer."""

    number: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: Any = None
    """What the server wants to have back beside the call (Gemini's signature of a thought)."""


@dataclass(frozen=True, slots=True)
class Said:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Busy:
    """The model thinks."""


@dataclass(frozen=True, slots=True)
class Writes:
    """The model writes a call: its name is known, and its arguments grow by `delta`."""

    call: Wanted
    delta: str


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete; `reason` as the server has it, empty when it has none."""

    calls: Sequence[Wanted]
    reason: str = ""


Part = Said | Busy | Writes | Done


def declarations(names: ToolNames) -> list[dict[str, Any]]:
    """The tools as `/chat/completions` takes them."""
    declared: list[dict[str, Any]] = []
    for name, tool in names.items():
        function: dict[str, Any] = {
            "name": name,
            "parameters": dict(tool.parameters or {"type": "object", "properties": {}}),
        }
        if tool.description:
            function["description"] = tool.description
        declared.append({"type": "function", "function": function})
    return declared


@dataclass(slots=True)
class Reader:
    """Makes parts of the chunks of one answer."""

    names: ToolNames
    calls: list[Wanted] = field(default_factory=list)
    finished: bool = False
    """The server said that it ended."""
    reason: str = ""
    """And why."""
    begun: bool = False
    """There was a chunk of an answer."""
    broken: str = ""
    """A chunk that could not be read."""
    _rest: bytes = b""
    _event: str = ""
    _thinking: Thinking = field(default_factory=Thinking)
    _held: str = ""
    """Text that may turn out to be a call."""
    _plain: bool = False
    _indices: dict[int, Wanted] = field(default_factory=dict)

    def feed(self, data: bytes) -> list[Part]:
        """The next bytes of the stream. Its lines end with LF alone, whatever else Unicode takes for an end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES:
            self.broken = self.broken or "it is too long"
            self._rest = self._rest[:16]
        return [part for line in lines for part in self.line(line.decode("utf-8", "replace"))]

    def line(self, line: str) -> list[Part]:
        """A line of the stream (server-sent events)."""
        name, _, data = line.partition(":")
        data = data.strip()
        if not name and not data:
            self._event = ""
        elif name == "event":
            self._event = data
        elif name == "error":  # llama.cpp's older versions
            return self.whole(data, error=True)
        elif name == "data" and data == "[DONE]":
            self.finished = self.begun = True
        elif name == "data":
            return self.whole(data, error=self._event == "error")
        return []

    def whole(self, text: str, *, error: bool = False) -> list[Part]:
        """A chunk; also an answer in one piece, of a server that does not stream. Raises `ProviderError` for an `error`."""
        try:
            chunk = json.loads(text)
        except (ValueError, RecursionError) as fault:
            if error:
                raise refusal(0, text) from None
            self.broken = self.broken or str(fault)
            return []
        self.begun = True
        if error or (isinstance(chunk, dict) and (chunk.get("error") or chunk.get("object") == "error")):
            raise refusal(0, chunk)
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return []  # usage, a sign of life, or what later versions send
        choice = choices[0]
        if choice.get("finish_reason"):
            self.finished, self.reason = True, str(choice["finish_reason"])
        delta = choice.get("delta") or choice.get("message")
        return self._delta(delta) if isinstance(delta, dict) else []

    def _delta(self, delta: Mapping[str, Any]) -> list[Part]:
        parts: list[Part] = []
        if delta.get("reasoning_content") or delta.get("reasoning"):
            parts.append(Busy())
        text = delta.get("content") or delta.get("refusal")
        if isinstance(text, list):  # in parts, thoughts among them
            said = [one.get("text") for one in text if isinstance(one, dict) and one.get("type") == "text"]
            text = "".join(one for one in said if isinstance(one, str))
        if isinstance(text, str) and text:
            parts += self._text(self._thinking.feed(text))
        for call in delta.get("tool_calls") or ():
            if isinstance(call, dict) and isinstance(call.get("function"), dict):
                parts += self._call(call, call["function"])
            else:
                self.broken = self.broken or "a call without a function"
        return parts

    def _text(self, text: str) -> list[Part]:
        """A whole answer that is a call in JSON is held back, so that nobody says it."""
        if self._plain:
            return [Said(text)] if text else []
        self._held += text
        start = self._held.lstrip()
        if not start:
            return []
        if len(start) < _HELD_CHARS and any(start.startswith(mark[: len(start)]) for mark in _CALL_MARKS):
            return []
        self._plain = True
        held, self._held = self._held, ""
        return [Said(held)]

    def _call(self, call: Mapping[str, Any], function: Mapping[str, Any]) -> list[Part]:
        id_, name = str(call.get("id") or ""), str(function.get("name") or "")
        given = function.get("arguments")
        if given is None:
            given = ""
        elif not isinstance(given, str):  # some write the object itself
            given = json.dumps(given, ensure_ascii=False)
        index = call.get("index")
        wanted = self._known(index, id_, name)
        if wanted is not None and name and given and _complete(wanted.arguments):
            if id_ and given == wanted.arguments:
                return []  # at the end, some send all of it once more
            if not id_ or _complete(given):
                wanted = None  # another one under the same index, or the same id
        if wanted is None:
            if len(self.calls) >= _CALLS:
                raise ProviderError("malformed", f"the model made more than {_CALLS} calls in one answer")
            wanted = Wanted(len(self.calls))
            self.calls.append(wanted)
            if isinstance(index, int):
                self._indices[index] = wanted
        wanted.id = wanted.id or id_
        wanted.name = wanted.name or name
        wanted.extra = call.get("extra_content", wanted.extra)
        wanted.arguments += given
        return [Writes(wanted, given)] if wanted.name else []

    def _known(self, index: object, id_: str, name: str) -> Wanted | None:
        """The call that this is more of. Without an index that is the newest one, by its id or for want of a name."""
        if isinstance(index, int):
            wanted = self._indices.get(index)
        else:
            wanted = self.calls[-1] if self.calls and (not name or id_ == self.calls[-1].id != "") else None
        return None if wanted is not None and id_ and wanted.id and id_ != wanted.id else wanted

    def end(self) -> list[Part]:
        """The stream has ended; raises `ProviderError` when it ended too early for a call."""
        text, self._held = self._held + self._thinking.end(), ""
        parts: list[Part] = []
        if text.strip() and not self.calls and (call := self._written(text)) is not None:
            self.calls.append(call)
        elif text.strip():
            parts.append(Said(text))
        if self.calls and self.broken:
            raise ProviderError(
                "malformed", f"a chunk of an answer with calls cannot be read ({self.broken})"
            )
        if self.calls and not self.finished:
            raise ProviderError("gone", "the answer ended in the middle of a call")
        for call in self.calls:
            call.arguments = call.arguments or "{}"  # no arguments were given
        return [*parts, Done(self.calls, self.reason)]

    def _written(self, text: str) -> Wanted | None:
        """The call that a text is, if it is nothing but that (seen with small models)."""
        bare = _FENCE.match(text.strip())
        try:
            value = json.loads(bare[1] if bare else text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or value.get("name") not in self.names:
            return None
        arguments = value.get("arguments", value.get("parameters"))
        if not isinstance(arguments, dict) or value.keys() - {
            "name",
            "arguments",
            "parameters",
            "type",
            "id",
        }:
            return None
        return Wanted(0, "", value["name"], json.dumps(arguments, ensure_ascii=False))


def _complete(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class ChatModel:
    """A model on a server."""

    def __init__(
        self, client: AsyncOpenAI, names: ToolNames, request: Mapping[str, Any], extra: Mapping[str, Any]
    ) -> None:
        """`request`: the model's name and whatever else each request has; `extra`: what the SDK knows nothing of."""
        self._client = client
        self._names = names
        self._declared = declarations(names)
        self._request = dict(request)
        self._extra = dict(extra)

    async def check(self) -> None:
        """Ask for the list of models, for the key's sake; many servers have none, which is no fault."""
        try:
            async with self._client.models.with_streaming_response.list() as response:
                await response.read()
        except FAILURES as error:
            found = problem(error)
            if found.kind in ("key", "quota", "rate", "expired", "unreachable", "gone"):
                raise found from error

    async def stream(self, messages: Sequence[Mapping[str, Any]]) -> AsyncGenerator[Part]:
        """The answer, `Done` at its end; raises `ProviderError`. To stop reading is to stop the model."""
        reader = Reader(self._names)
        request: dict[str, Any] = {**self._request, "messages": messages, "stream": True}
        if self._declared:
            request["tools"] = self._declared
        told = False
        try:
            async with self._client.chat.completions.with_streaming_response.create(
                **request, extra_body=self._extra or None
            ) as response:
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                pieces = _whole(response.iter_bytes()) if kind.endswith("json") else response.iter_bytes()
                async for data in pieces:
                    for part in reader.feed(data):
                        yield part
                    if reader.broken and not told:
                        told = True
                        log.warning(
                            "chat: a chunk of the answer cannot be read (%s); it is left out", reader.broken
                        )
        except FAILURES as error:
            raise problem(error) from error
        for part in reader.feed(b"\n"):  # the last line may have no end
            yield part
        if not reader.begun:
            raise _no_answer(kind, reader.broken)
        if not reader.finished:
            log.warning("chat: the server does not say that its answer is complete")
        for part in reader.end():
            yield part


async def _whole(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """An answer in one piece as a stream of one chunk; what is a stream after all stays one."""
    body = b""
    async for data in pieces:
        body += data
        if len(body) > _LINE_BYTES:
            raise ProviderError("malformed", "the answer is too long")
    yield b"data:" + body.replace(b"\n", b" ") if body.lstrip()[:1] in (b"{", b"[") else body


def _no_answer(kind: str, broken: str) -> ProviderError:
    if broken:
        return ProviderError("malformed", f"nothing of its answer can be read ({broken})")
    if kind in ("", "text/event-stream"):
        return ProviderError("gone", "it answered nothing", advice=ASK_AGAIN)
    return ProviderError("version", f"it answered with {kind}, and with no answer of a chat")
