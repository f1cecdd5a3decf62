"""One request to a chat server, streamed: what its chunks mean, whoever sends them (voice: "be liberal").

`Reader` knows no sockets; `ChatModel` gives it the server's lines. Servers differ: a call comes in fragments or whole, with
an id or without, with all calls under one index, as text where there should be a call; an answer has thoughts in it, or
no end. What must not differ: a call that may have lost something is not run.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai import AsyncOpenAI

from vrt_host.agents.chat_text import Thinking
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.provider import ProviderError
from vrt_host.speech.openai_api import FAILURES, problem, refusal

log = logging.getLogger(__name__)

_LINE_CHARS = 1 << 20
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
    """The answer is complete."""

    calls: Sequence[Wanted]


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
    """The server said why it ended."""
    broken: str = ""
    """A chunk that could not be read."""
    _thinking: Thinking = field(default_factory=Thinking)
    _held: str = ""
    """Text that may turn out to be a call."""
    _plain: bool = False
    _indices: dict[int, Wanted] = field(default_factory=dict)

    def line(self, line: str) -> list[Part]:
        """A line of the stream (server-sent events)."""
        if not line.startswith("data:"):
            return []
        data = line[5:].strip()
        if data == "[DONE]":
            self.finished = True
            return []
        try:
            if len(data) > _LINE_CHARS:
                raise ValueError("it is too long")  # noqa: TRY301
            chunk = json.loads(data)
        except (ValueError, RecursionError) as error:
            self.broken = self.broken or str(error)
            return []
        if isinstance(chunk, dict) and chunk.get("error"):
            raise refusal(0, chunk)
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return []  # usage, a sign of life, or what later versions send
        choice = choices[0]
        self.finished = self.finished or bool(choice.get("finish_reason"))
        delta = choice.get("delta") or choice.get("message")
        return self._delta(delta) if isinstance(delta, dict) else []

    def _delta(self, delta: Mapping[str, Any]) -> list[Part]:
        parts: list[Part] = []
        if delta.get("reasoning_content") or delta.get("reasoning"):
            parts.append(Busy())
        text = delta.get("content") or delta.get("refusal")
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
        id_, name = call.get("id") or "", function.get("name") or ""
        index = call.get("index")
        wanted = self._indices.get(index) if isinstance(index, int) else None
        if wanted is None and not isinstance(index, int) and self.calls and not name:
            wanted = self.calls[-1]
        if wanted is not None and (
            (id_ and wanted.id and id_ != wanted.id) or (name and not id_ and _complete(wanted.arguments))
        ):
            wanted = None  # another one under the same index
        if wanted is None:
            if len(self.calls) >= _CALLS:
                raise ProviderError("malformed", f"the model made more than {_CALLS} calls in one answer")
            wanted = Wanted(len(self.calls))
            self.calls.append(wanted)
            if isinstance(index, int):
                self._indices[index] = wanted
        wanted.id = wanted.id or str(id_)
        wanted.name = wanted.name or str(name)
        given = function.get("arguments")
        if given is None:
            given = ""
        elif not isinstance(given, str):  # some write the object itself
            given = json.dumps(given, ensure_ascii=False)
        wanted.arguments += given
        return [Writes(wanted, given)] if wanted.name else []

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
        return [*parts, Done(self.calls)]

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
                async for line in response.iter_lines():
                    for part in reader.line(line):
                        yield part
                    if reader.broken and not told:
                        told = True
                        log.warning(
                            "chat: a chunk of the answer cannot be read (%s); it is left out", reader.broken
                        )
        except FAILURES as error:
            raise problem(error) from error
        for part in reader.end():
            yield part
