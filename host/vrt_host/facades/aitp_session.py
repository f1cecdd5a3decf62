"""One AITP client as a guest of the host: its messages become vRT and vRT becomes its messages."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import logging
import wave
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vrt_host.agents.base import PCM16_24K, Format, Json
from vrt_host.errors import AgentStartError
from vrt_host.facades import aitp_messages as wire
from vrt_host.facades.borrow import Borrowed
from vrt_host.facades.guest import Call, Guest, RefusedError
from vrt_host.facades.web import Window
from vrt_host.protocol.wire import size

if TYPE_CHECKING:
    from vrt_host.lending import Lent
    from vrt_host.server import Host
    from vrt_host.speech.convert import Converter

log = logging.getLogger(__name__)

INPUT = Format("pcm16", 16_000)
TEXT_CHARS = 8000
CONTEXT_BYTES = 64 * 1024
INPUTS_PER_MINUTE = 20
CALL_S = 10.0
"""For a tool of the client's."""
APPROVAL_S = 120.0
"""Longer when its user is asked; and the time for an answer about a tool of ours."""
RESPONSE_S = 30.0
"""Until an answer to a text has begun."""
CALL_MS = round(1000 * (CALL_S + APPROVAL_S)) + 2000
"""What the host is told of a call's time: behind ours."""
SILENCE = bytes(INPUT.bytes_per_second)
"""A second of it behind an utterance whose end the client tells: the agents listen for the silence."""
SAID = 20
"""Utterances that go on in the context when the tools change."""
SAID_CHARS = 400
EARLY = 32
"""Inputs that may wait while a session is opened."""
EARLY_BYTES = 4 * 1024 * 1024
"""... of sound, in all."""
TOOLS_BYTES = 96 * 1024
"""Of the client's tools, as vRT declares them: they go into one message."""
ADDRESS_CHARS = 2048
"""Of a page's address, and of its title."""
REOPEN_S = 1.0
"""From one opening of a session to the next, however often the client's tools change."""


class Client(Protocol):
    """The connection."""

    def send(self, kind: str, /, **payload: object) -> None: ...
    def error(self, message: str) -> None: ...
    def close(self, code: int, reason: str) -> None: ...
    @property
    def congested(self) -> bool: ...


class AitpSession:
    """Is the `Listener` of its guest."""

    def __init__(self, host: Host, client: Client, token: str | None, peer: str, max_tools: int) -> None:
        self._host = host
        self._client = client
        self._token = token
        self._peer = peer
        self._max_tools = max_tools
        self._loop = asyncio.get_running_loop()
        self._guest: Guest | None = None
        self._opening: asyncio.Task[None] | None = None
        self._early: deque[str | bytes] = deque(maxlen=EARLY)
        self._update: wire.ContextUpdate | None = None
        self._tools: list[wire.Declaration] = []
        self._opened_with: list[wire.Declaration] | None = None
        self._said: deque[dict[str, str]] = deque(maxlen=SAID)
        self._rate = Window(INPUTS_PER_MINUTE, 60.0)
        self._turn = _Turn(voice=False)
        self._busy = False
        self._silent: asyncio.TimerHandle | None = None
        """Rings when a text gets no answer."""
        self._voice = False
        self._call: Call | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked: tuple[str, asyncio.Future[bool]] | None = None
        self._converter: tuple[int, Converter] | None = None
        """Of sound that has another rate than ours: the rate, and what converts it."""
        self._opened_at = float("-inf")
        self._closed = False

    def close(self) -> None:
        """The client has gone: pending calls and approvals go with it."""
        self._closed = True
        self._settled()
        if self._silent is not None:
            self._silent.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._asked is not None:
            self._asked[1].cancel()
        if self._guest is not None:
            self._guest.close()

    # --- what the client sends

    def receive(self, message: Any) -> None:
        """One of `aitp_messages.CLIENT`, but for the handshake."""
        match message:
            case wire.ContextUpdate():
                self._context(message)
            case wire.UserInput():
                self._user_input(message)
            case wire.AudioStream():
                self._audio(message)
            case wire.VoiceInputEnd():
                self._speech(SILENCE)
            case wire.VoiceInterrupt():
                self._barge_in()
            case wire.ToolResult():
                self._tool_result(message)
            case wire.ApprovalRequest():
                self._awaits_user(message)
            case wire.ApprovalResponse():
                self._approval(message)

    def _context(self, update: wire.ContextUpdate) -> None:
        """3. CONTEXT_UPDATE; always answered by `tools_effective`."""
        if size(json.dumps(update.context, ensure_ascii=False)) > CONTEXT_BYTES:
            self._client.error(f"The context is larger than {CONTEXT_BYTES // 1024} KB; it is not taken")
            return
        if len(update.activeTools) > self._max_tools:
            count = len(update.activeTools)
            self._client.error(
                f"Too many tools (max {self._max_tools}): {count} were sent, the list before stays"
            )
            update = self._with_tools_before(update)
        elif size(json.dumps([wire.declared(tool, CALL_MS) for tool in update.activeTools])) > TOOLS_BYTES:
            self._client.error(f"The tools are larger than {TOOLS_BYTES // 1024} KB; the list before stays")
            update = self._with_tools_before(update)
        self._update = update
        borrowed = Borrowed(self._host.lending)
        names = {declared["name"] for declared in borrowed.declarations(())}
        ours = [wire.offered(name, lent.tool) for name in sorted(names) if (lent := borrowed.get(name))]
        self._tools, others = wire.taken(update.activeTools, names)
        mine = [wire.described(tool) for tool in self._tools]
        ignored = [wire.described(tool) for tool in others]
        self._client.send(
            "SYSTEM_EVENT",
            kind="tools_effective",
            data={
                "effectiveTools": [*ours, *mine],
                "serverTools": ours,
                "clientTools": mine,
                "ignoredClientTools": ignored,
            },
        )
        if self._opened_with is None or self._tools != self._opened_with:
            self._reopen()
        elif self._guest is not None:
            self._guest.context(self._value())

    def _with_tools_before(self, update: wire.ContextUpdate) -> wire.ContextUpdate:
        return update.model_copy(update={"activeTools": self._update.activeTools if self._update else []})

    def _user_input(self, message: wire.UserInput) -> None:
        """4. USER_INPUT."""
        if not self._rate.admit():
            self._client.error(f"Too many messages: {INPUTS_PER_MINUTE} a minute are taken")
        elif message.modality == "text" and len(message.content) > TEXT_CHARS:
            self._client.error(f"The text is too long (max {TEXT_CHARS} characters)")
        elif self._busy:
            self._client.error("The agent is still answering; send it again after its answer, or interrupt")
        elif message.modality == "text":
            self._busy = True
            self._silent = self._loop.call_later(RESPONSE_S, self._no_answer)
            self._text(message.content)
        else:
            self._message_of_sound(message)

    def _text(self, text: str) -> None:
        if self._guest is None:
            self._early.append(text)
            self._open()
            return
        self._voice = False
        self._said.append({"role": "user", "text": text[:SAID_CHARS]})
        self._guest.say(text)

    def _no_answer(self) -> None:
        self._busy = False
        self._client.error("The agent does not answer")

    def _message_of_sound(self, message: wire.UserInput) -> None:
        mime = message.mimeType or ""
        try:
            data = base64.b64decode(message.content, validate=True)
            rate = wire.rate_of(mime, INPUT.sample_rate)
            if mime.split(";")[0].strip().lower() in ("audio/wav", "audio/x-wav", "audio/wave"):
                data, rate = _wav(data)
        except (binascii.Error, wave.Error, EOFError, ValueError):
            self._client.error("Audio input not supported: it is not what its mimeType says")
            return
        if rate is None:
            self._client.error(
                "Audio input not supported: send audio/pcm;rate=16000 or audio/wav, 16 bits, mono"
            )
            return
        self._speech(data, rate)
        self._speech(SILENCE)

    def _audio(self, message: wire.AudioStream) -> None:
        """10. AUDIO_STREAM."""
        rate = wire.rate_of(message.mimeType, INPUT.sample_rate)
        if rate is None:
            self._client.error("Audio mode unavailable: only audio/pcm with 8000 to 48000 Hz is taken")
        else:
            self._speech(message.data, rate)

    def _speech(self, data: bytes, rate: int = INPUT.sample_rate) -> None:
        self._voice = True
        if rate != INPUT.sample_rate:
            if self._converter is None or self._converter[0] != rate:
                from vrt_host.speech.convert import Converter  # noqa: PLC0415  (it brings numpy)

                self._converter = rate, Converter(("pcm16", rate), (INPUT.encoding, INPUT.sample_rate))
            data = b"".join(self._converter[1].feed(data))
        if self._guest is not None:
            self._guest.audio(data)
            return
        if len(data) + sum(len(early) for early in self._early if isinstance(early, bytes)) <= EARLY_BYTES:
            self._early.append(data)
        self._open()

    def _barge_in(self) -> None:
        """12. VOICE_INTERRUPT; ignored where nothing is said."""
        if self._guest is None or not self._busy:
            log.info("%s: VOICE_INTERRUPT without an answer under way; ignored", self._peer)
            return
        self._guest.interrupt("speech")
        self._client.send("VOICE_STATE_EVENT", event="interrupted", reason="barge_in")
        self._busy = not self._turn.open  # what has no turn yet is still to be answered
        self._end_answer()

    def _tool_result(self, message: wire.ToolResult) -> None:
        """6. TOOL_RESULT; one for a call that is unknown, or over, is ignored."""
        if self._call is None or message.callId != self._call.id:
            log.info("%s: a TOOL_RESULT for no call; ignored", self._peer)
        elif message.status == "pending_approval":
            self._extend()
        elif message.status == "success":
            self._answer(ok=True, output=message.result)
        else:
            self._answer(ok=False, message=message.error or "the tool failed")

    def _awaits_user(self, message: wire.ApprovalRequest) -> None:
        """7. APPROVAL_REQUEST of the client's: its user is asked, which takes longer."""
        if self._call is not None and message.callId == self._call.id:
            self._extend()

    def _approval(self, message: wire.ApprovalResponse) -> None:
        """8. APPROVAL_RESPONSE: for a tool of the client's its outcome, for one of ours the decision."""
        if self._asked is not None and self._asked[0] == message.callId:
            asked, self._asked = self._asked[1], None
            if not asked.done():
                asked.set_result(message.approved and message.error is None)
        elif self._call is None or message.callId != self._call.id:
            log.info("%s: an APPROVAL_RESPONSE for no call; ignored", self._peer)
        elif not message.approved:
            self._answer(ok=False, code="REJECTED", message=message.error or "Action denied by user")
        elif message.error is not None:
            self._answer(ok=False, message=message.error)
        else:
            self._answer(ok=True, output=message.result)

    # --- a call of the client's tool

    def call(self, call: Call) -> None:
        """`Listener.call`: 5. TOOL_CALL."""
        if call.name not in {tool.name for tool in self._tools}:
            if self._guest is not None:
                self._guest.result(call.id, ok=False, message="the page does not offer this tool any more")
            return
        self._call = call
        self._timer = self._loop.call_later(CALL_S, self._late)
        self._client.send("TOOL_CALL", callId=call.id, name=call.name, args=call.arguments)

    def cancelled(self, call: Call) -> None:
        """`Listener.cancelled`; AITP has no message for it: a result that still comes is ignored."""
        self._settled()

    def _extend(self) -> None:
        if self._timer is not None:
            left = max(0.0, self._timer.when() - self._loop.time())
            self._timer.cancel()
            self._timer = self._loop.call_later(min(left, CALL_S) + APPROVAL_S, self._late)

    def _late(self) -> None:
        self._answer(ok=False, code="TIMEOUT", message="the client did not answer in time")

    def _answer(self, **result: Any) -> None:
        call = self._call
        self._settled()
        if call is not None and self._guest is not None:
            self._guest.result(call.id, **result)

    def _settled(self) -> None:
        self._call = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def approves(self, call: Call, lent: Lent) -> bool:
        """`Listener.approves`: 7. APPROVAL_REQUEST of ours, for a tool with consequences."""
        risk = wire.risk_of(lent.tool)
        if risk not in ("high", "critical"):
            return True
        asked: asyncio.Future[bool] = self._loop.create_future()
        self._asked = call.id, asked
        message = f"Run {call.name} on the board {lent.board}?"
        data = {"callId": call.id, "toolName": call.name, "risk": risk}
        self._client.send("SYSTEM_EVENT", kind="approval_required", message=message, data=data)
        self._client.send("APPROVAL_REQUEST", **data, args=call.arguments, message=message)
        try:
            async with asyncio.timeout(APPROVAL_S):
                return await asked
        except TimeoutError:
            return False
        finally:
            if self._asked is not None and self._asked[1] is asked:
                self._asked = None

    # --- what the host says

    def state(self, turn: str, state: str) -> None:
        """`Listener.state`."""
        if self._turn.id != turn:
            self._turn = _Turn(turn, voice=self._voice)
        self._busy = state != "idle"
        if self._silent is not None:
            self._silent.cancel()
        if state == "idle":
            self._end_answer()
            if self._turn.voice:
                self._client.send("VOICE_STATE_EVENT", event="turn_complete")
            if self._tools != self._opened_with:
                self._reopen()

    def transcript(self, turn: str, role: str, text: str, *, final: bool) -> None:
        """`Listener.transcript`: shown as such in a conversation by voice, and as the answer to a text that has no other."""
        if role == "user" and not final:
            return
        if text and (role == "agent" or self._turn.voice):
            self._said.append({"role": role, "text": text[:SAID_CHARS]})
        if self._turn.voice:
            if text:
                self._client.send("SYSTEM_EVENT", kind="transcript", data={"role": role, "text": text})
        elif role == "agent" and not self._turn.texts:
            self._turn.answered = True
            self._client.send("AGENT_RESPONSE", chunk=text, done=False)

    def text(self, turn: str, text: str, *, final: bool) -> None:
        """`Listener.text`: 9. AGENT_RESPONSE."""
        if self._turn.answered and not self._turn.texts:
            return  # it has been shown as what was said
        self._turn.texts = self._turn.answered = True
        self._said.append({"role": "agent", "text": text[:SAID_CHARS]})
        self._client.send("AGENT_RESPONSE", chunk=text, done=False)

    def audio(self, turn: str, item: str, payload: bytes) -> None:
        """`Listener.audio`; whoever writes is answered in writing."""
        if self._turn.voice:
            data = base64.b64encode(payload).decode()
            self._client.send("AUDIO_STREAM", data=data, mimeType=f"audio/pcm;rate={PCM16_24K.sample_rate}")

    def stream(self, message: Mapping[str, Json]) -> None:
        """`Listener.stream`; AITP shows none of it."""

    def interrupted(self, reason: str) -> None:
        """`Listener.interrupted`, by the host: the user began to speak, or something failed."""
        if self._turn.open:
            if self._turn.voice:
                self._client.send("VOICE_STATE_EVENT", event="interrupted")
            self._busy = False
            self._end_answer()
        if self._busy:
            return  # it is that of a barge-in, and the client has said something since
        if self._tools != self._opened_with:
            self._reopen()

    def error(self, code: str, message: str, *, recoverable: bool) -> None:
        """`Listener.error`."""
        self._client.error(message or code)

    def closed(self, code: int, reason: str) -> None:
        """`Listener.closed`."""
        self._guest = None
        self._client.send("SYSTEM_EVENT", kind="disconnect", message=reason or "the session has ended")
        said = {1001: (1001, "Server shutting down"), 4401: (1008, "Unauthorized")}
        self._client.close(*said.get(code, (1011, reason)))

    def room(self) -> bool:
        """`Listener.room`."""
        return not self._client.congested

    def _end_answer(self) -> None:
        """Every answer ends with `done`, also one without words."""
        if self._turn.open:
            self._turn.open = False
            self._client.send("AGENT_RESPONSE", chunk="", done=True)

    # --- its session

    def _open(self) -> None:
        if self._opening is None and self._guest is None and not self._closed:
            self._opening = self._loop.create_task(self._opened())

    def _reopen(self) -> None:
        """With the tools that the client has now; between two turns."""
        if self._busy:
            return
        if self._guest is not None:
            self._guest.close()
            self._guest = None
        self._open()

    async def _opened(self) -> None:
        await asyncio.sleep(max(0.0, self._opened_at + REOPEN_S - self._loop.time()))
        self._opened_at = self._loop.time()
        tools = self._tools
        guest = Guest(self._host, self, self._peer, Borrowed(self._host.lending, ask_s=APPROVAL_S))
        declared = [wire.declared(tool, CALL_MS) for tool in tools]
        try:
            await guest.open(
                self._token, tools=declared, input_=INPUT, output=PCM16_24K, context=self._value(carry=True)
            )
        except (RefusedError, AgentStartError) as error:
            self._client.error(str(error))
            if isinstance(error, RefusedError) and error.code == "UNAUTHORIZED":
                self._client.close(1008, "Unauthorized")
            elif isinstance(error, RefusedError) and error.closed == 1001:
                self._client.close(1001, "Server shutting down")
            else:
                self._client.close(1013, "Server at capacity")
            return
        except asyncio.CancelledError:
            guest.close()
            raise
        finally:
            self._opening = None
        self._guest, self._opened_with = guest, tools
        while self._early:
            early = self._early.popleft()
            if isinstance(early, bytes):
                guest.audio(early)
            else:
                self._text(early)
        if self._tools != tools:
            self._reopen()

    def _value(self, *, carry: bool = False) -> Json:
        """The context: the page and what the application says of it; with `carry`, what was said before the tools changed."""
        made: dict[str, Json] = {}
        if self._update is not None:
            update = self._update
            title = None if update.title is None else update.title[:ADDRESS_CHARS]
            made = {"url": update.url[:ADDRESS_CHARS], "title": title, "context": update.context}
        if carry and self._said:
            made["conversation"] = list(self._said)
        return {name: value for name, value in made.items() if value is not None} or None


class _Turn:
    """What was shown of a turn."""

    def __init__(self, id_: str = "", *, voice: bool) -> None:
        self.id = id_
        self.voice = voice
        self.open = bool(id_)
        self.texts = False
        self.answered = False


def _wav(data: bytes) -> tuple[bytes, int | None]:
    """The samples of a WAV file and their rate; None for one that is not 16 bits and mono."""
    with wave.open(io.BytesIO(data)) as file:
        fits = file.getsampwidth() == 2 and file.getnchannels() == 1 and 8000 <= file.getframerate() <= 48_000
        return file.readframes(file.getnframes()), file.getframerate() if fits else None
