"""A server with OpenAI's `/v1/chat/completions`, streamed, beside the speech endpoints of `speech_api`.

Requests and chunks are checked against the SDK's own types. `style` is how one of the known servers writes calls.
"""

import itertools
import json

from openai.types.chat import ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from peers.process import main
from peers.speech_api import SpeechApiPeer, error_body, strictly

_REQUEST = TypeAdapter(CompletionCreateParamsStreaming)
_EXTRAS = {"reasoning_content"}
"""What the type does not know and servers send."""
SAID = {"error": "It broke.", "expired": "The session has reached its maximum duration."}


class ChatPeer(SpeechApiPeer):
    """`style` "openai": calls in fragments; "ollama": whole, all under index 0; "bare": whole, without ids; "object": arguments
    as an object; "content": written as text. `thinks`: each answer has thoughts before it. `letters`: text comes in pieces of so many.
    """

    def __init__(self):
        super().__init__()
        self._ids = itertools.count(1)
        self.on_style()
        self.routes["/v1/chat/completions"] = self._complete
        self._overflows = 0

    def on_style(self, style="openai", thinks=False, letters=7):
        """How it writes from now on."""
        self._style, self._thinks, self._letters = style, thinks, letters

    def on_reset(self):
        super().on_reset()
        self.on_style()
        self._overflows = 0

    def on_overflow(self, times):
        """The next conversations are too long."""
        self._overflows = times

    async def _complete(self, request):
        asked = json.loads(request.body)
        strictly(_REQUEST, {key: value for key, value in asked.items() if key != "our_extra"})
        assert asked["stream"] is True
        self._check(asked["messages"])
        self.tell(
            "conversation",
            messages=asked["messages"],
            tools=asked.get("tools", []),
            extra=asked.get("our_extra"),
        )
        for message in reversed(asked["messages"]):
            if message["role"] == "tool":
                self.tell("result", id=message["tool_call_id"], output=message["content"])
            else:
                break
        if asked["messages"][-1]["role"] == "user":
            self.tell("text", text=asked["messages"][-1]["content"])
        if self._overflows:
            self._overflows -= 1
            said = "This model's maximum context length is 100 tokens."
            await request.json(400, {"error": {"message": said, "type": "invalid_request_error"}})
            return
        request.stream("text/event-stream")
        self._made = f"chatcmpl-{next(self._ids)}"
        self._calls = 0
        if await self._play(request, self.next_response()):
            await self._chunk(request, {}, finish="tool_calls" if self._calls else "stop")
            await self._chunk(request, None)  # the usage
            await request.send(b"data: [DONE]\n\n")
            self.tell("done")
        await request.end()

    async def _play(self, request, parts):
        """False when nothing more is to be said."""
        await self._chunk(request, {"role": "assistant", "content": ""})
        if self._thinks:
            await self._chunk(request, {"reasoning_content": "Let me see."})
            await self._text(request, "<think>I wonder. Lock it?</think>\n\n")
        for part in parts:
            if "say" in part:
                self.lengths.append([part["say"], part, 0])
                await self._text(request, part["say"] + " ")
            elif "text" in part:
                await self._text(request, part["text"])
            elif "call" in part:
                await self._call(request, part)
            elif "wait" in part:
                await self.wait(part["wait"])
            elif not await self._fault(request, part["fault"]):
                return False
        return True

    async def _fault(self, request, fault):
        if fault == "disconnect":
            request.writer.transport.abort()
            raise ConnectionResetError
        if fault == "malformed":
            await request.send(b'data: {"choices": [{"delta": {"content": \n\n')
        elif fault == "unknown":
            await request.send(b': a sign of life\n\nevent: of-another-time\ndata: {"kind": [1]}\n\n')
        else:
            message = (
                error_body("rate")
                if fault == "rate"
                else {"error": {"message": SAID[fault], "type": "server_error"}}
            )
            await request.send(b"data: " + json.dumps(message).encode() + b"\n\n")
            return False
        return True

    async def _text(self, request, text):
        for at in range(0, len(text), self._letters):
            await self._chunk(request, {"content": text[at : at + self._letters]})

    async def _call(self, request, part):
        index, self._calls = self._calls, self._calls + 1
        name, arguments = part["call"], part["arguments"]
        id_ = part["id"] or f"call_{self._made}_{index}"
        if self._style == "content":
            self._calls = 0
            written = json.dumps({"name": name, "arguments": json.loads(arguments)})
            await self._text(request, f"```json\n{written}\n```")
        elif self._style == "openai":
            first = {
                "index": index,
                "id": id_,
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
            await self._chunk(request, {"tool_calls": [first]})
            for at in range(0, len(arguments), self._letters):
                more = {"index": index, "function": {"arguments": arguments[at : at + self._letters]}}
                await self._chunk(request, {"tool_calls": [more]})
        else:
            whole = {"index": 0, "function": {"name": name, "arguments": arguments}}
            if self._style == "ollama":
                whole |= {"id": id_, "type": "function"}
            if self._style == "object":
                del whole["index"]
                whole["function"]["arguments"] = json.loads(arguments)
            await self._chunk(request, {"tool_calls": [whole]}, strict=self._style != "object")

    async def _chunk(self, request, delta, *, finish=None, strict=True):
        chunk = {"id": self._made, "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunk["choices"] = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        if strict:
            _known(ChatCompletionChunk.model_validate(chunk))
        await request.send(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def _check(self, messages):
        """What servers and their templates insist on, beyond the types."""
        assert messages[0]["role"] == "system"
        open_calls = []
        last = "system"
        for message in messages[1:]:
            role = message["role"]
            assert role != "system", "one system message, at the beginning"
            if role == "tool":
                open_calls.remove(message["tool_call_id"])
            else:
                assert not open_calls, f"calls without a result: {open_calls}"
                assert (role, last) not in (
                    ("user", "user"),
                    ("assistant", "assistant"),
                    ("assistant", "system"),
                )
                for call in message.get("tool_calls", ()):
                    assert isinstance(json.loads(call["function"]["arguments"]), dict)
                    open_calls.append(call["id"])
            last = role
        assert not open_calls, f"calls without a result: {open_calls}"


def _known(model):
    """No member that the type does not know."""
    extra = set(model.model_extra or ()) - _EXTRAS
    assert not extra, f"not in {type(model).__name__}: {extra}"
    for name in type(model).model_fields:
        value = getattr(model, name)
        for one in value if isinstance(value, list) else [value]:
            if hasattr(one, "model_extra"):
                _known(one)


if __name__ == "__main__":
    main(ChatPeer)
