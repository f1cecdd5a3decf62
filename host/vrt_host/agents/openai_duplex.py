"""A conversation with a Live model, which hears and speaks at the same time and knows no turns: they are made here.

A turn begins with the user's words (as the model hears them), a typed text, work of the backend, or the model's voice. It is
over when the model has been silent for a while and nothing is to come. When the model falls silent because the user speaks,
the user's turn begins. Without sockets and clock; `tick` is to be called a few times in a second while `active`.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vrt_host.agents.base import (
    AgentEvent,
    Audio,
    AudioBegin,
    AudioEnd,
    Format,
    Heard,
    Json,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.openai_backend import Backend
from vrt_host.agents.openai_errors import AGAIN, code_of, from_error
from vrt_host.agents.openai_history import DATA, Entry, History, Said, data_message, data_text, heard_part
from vrt_host.agents.openai_jitter import Jitter, loud
from vrt_host.agents.openai_responses import Item, Message, ModelCall, prune
from vrt_host.agents.provider import ProviderError

log = logging.getLogger(__name__)

_TAIL_S = 0.08
"""So much of a silence is played as it comes; what is longer needs no sound to be silent."""
_HUSH_S = 0.2
"""A silence that separates what is not wanted any more from what comes next."""
_ANSWER_S = 12.0
"""How long the model may take to begin to answer; and how long an answer that nobody wants any more may take to come."""
_WORK_S = 60.0
"""How long the backend may say nothing of its work."""
_STALE_S = 15.0
"""How long a turn waits for a connection."""
_MUTE_S = 4.0
"""No sound at all for so long, silence neither: nothing more comes of what the model was saying."""
_MORE_S = 4.0
"""How long it may take to say what the backend got done while it was speaking of something else."""
_SAID_S = 1.0
"""No word of the user's for so long: that was all. Less would take the "yes" of a "yes, but" for an answer."""
_CHUNK, _CHUNK_ASCII = 300, 1000
"""Characters of one appended message; the protocol takes 500 tokens."""
_OPENING_BYTES = 16_000
"""What a session begins with: the protocol takes 128 messages and 8,192 tokens."""
_STOPPED = "The user has stopped you: nothing of what you are saying is heard any more. Do not go on with it by yourself."


@dataclass(slots=True, eq=False)
class Turn:
    """A turn of ours. The newest alone can be alive."""

    key: str
    since: float
    """When something happened in it."""
    dead: bool = False
    waits: bool = True
    """The model has not answered yet."""
    patience_s: float = _ANSWER_S
    """How long it waits for that."""
    more: bool = False
    """The backend has got something done while the model was speaking."""
    typed: str | None = None
    user: Said | None = None
    hearing: bool = False
    """The user may go on."""
    heard_at: float = 0.0
    talked_over: bool = False
    """The user has spoken while the model did."""
    item: Item | None = None
    """What the model is saying."""
    items: dict[str, Item] = field(default_factory=dict)
    calls: dict[str, ModelCall] = field(default_factory=dict)


class Duplex:
    """See the module. Raises `ProviderError` of kind `malformed` from `feed`, and nothing else."""

    def __init__(
        self,
        emit: Callable[[AgentEvent], None],
        tools: ToolNames,
        format_: Format,
        jitter_s: float,
        pause_s: float,
        *,
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        told: Callable[[ProviderError, str | None], None],
        noted: Callable[[ProviderError], None],
    ) -> None:
        """`pause_s`: silent for so long, the model has said what it wanted.

        `told(error, turn)` reports what the provider said, `noted(error)` in the log alone.
        """
        self._emit = emit
        self._pause_s = pause_s
        self._format = format_
        self._now = now
        self._told = told
        self._noted = noted
        self._keys, self._numbers = itertools.count(1), itertools.count(1)
        self._send: Callable[[Message], None] | None = None
        self._context: Json = None
        self._odd = b""
        """Half a sample, whose other half is to come."""
        self._opened: dict[Entry, str] = {}
        self._opened_context: Json = None
        """What the session in preparation was told."""
        self.history = History()
        self._backend = Backend(emit, tools, self.history, self._working, worked=self._worked, told=told)
        self._jitter = Jitter(self._play, format_.bytes_per_second, jitter_s, now=now, later=later)
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._turn: Turn | None = None
        self._silent_s = pause_s
        """How long the model has been silent."""
        self._unwanted: Literal["", "speech", "sound"] = ""
        """Not to be heard: the model's next speech as a whole, or its sound until it is silent."""
        self._unwanted_until = 0.0
        self._handlers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "session.input_transcript.delta": self._on_user,
            "session.output_transcript.delta": self._on_said,
            "session.delegation.created": self._backend.on_delegation,
            "response.event": self._on_backend,
            "error": self._on_error,
        }

    # --- what the agent tells

    @property
    def active(self) -> bool:
        """Whether the model has to be kept going."""
        return self._alive() is not None or (bool(self._unwanted) and self._now() < self._unwanted_until)

    @property
    def resting(self) -> bool:
        """Whether nothing is going on."""
        return self._alive() is None

    def opening(self) -> list[Message]:
        """What a new session is told of the ones before, as its first messages."""
        made, room = [], _OPENING_BYTES
        if self._context is not None:
            made.append(_message("user", data_message(self._context)))
            room -= len(made[0]["content"][0]["text"].encode())
        self._opened_context = self._context
        self._opened = {entry: _text(entry) for entry in self.history.last(room)}
        return made + [_message(_role(entry), text) for entry, text in self._opened.items()]

    def ready(self, send: Callable[[Message], None]) -> None:
        """A session has begun with the last `opening`; what has come meanwhile is told now."""
        self._send = send
        if self._context != self._opened_context:
            self._append("thinking", data_text(self._context), f"{DATA} ")
        for entry in self.history.last(_OPENING_BYTES):
            if (text := _text(entry)) != self._opened.get(entry):
                self._append("thinking", text, f"{_role(entry)}: ")
        self._silent_s, self._unwanted = self._pause_s, ""
        if self._context is not None:
            self._backend.data(data_message(self._context))
        turn = self._alive()
        again = (
            turn if turn is not None and turn.typed is not None and turn.waits and not turn.calls else None
        )
        if again is not None:
            self._backend.interrupted(again)
        self._backend.begin(send)
        if again is not None and again.typed is not None:
            self._backend.text(again, again.typed)
            again.typed = None

    def lost(self, error: ProviderError) -> None:
        """The session is gone."""
        self._send = None
        turn = self._alive()
        open_ = turn is not None and any(not call.done for call in turn.calls.values())
        self._jitter.flush()
        if error.kind == "refused":
            self.history.clear()  # a session that begins with what was refused would be refused again
        self._backend.begin(None)
        if turn is None and error.retried:
            self._noted(error)  # nobody waits for an answer
        elif turn is None or not error.retried:
            self._fail(turn, error)
        elif turn.item is None and (open_ or (turn.calls and turn.waits)):
            self._told(error, None)  # the tool runs on, and the next session gets its result
        elif turn.typed is not None and turn.waits:
            self._noted(error)
        else:
            self._fail(turn, error)

    def _fail(self, turn: Turn | None, error: ProviderError) -> None:
        """An error is the end of a turn, if that is alive."""
        if turn is None or turn.dead:
            self._told(error, None)
        else:
            turn.dead = True
            self._told(error, turn.key)

    def user_text(self, text: str) -> None:
        """The user typed."""
        turn = self._begin("thinking")
        turn.typed = text
        self.history.add(Said("user", text))
        self._hush("sound")
        if self._send is not None:
            self._backend.text(turn, text)

    def context(self, value: Json) -> None:
        """The application's data. The voice gets it, and its backend."""
        self._context = value
        self._append("thinking", data_text(value), f"{DATA} ")
        self._backend.data(data_message(value))

    def interrupted(self, key: str, heard: Sequence[Heard]) -> None:
        """A turn is dead, and so much of it was heard. The model cannot be stopped, but told."""
        turn = self._turns.get(key)
        if turn is None:
            return
        was_alive, turn.dead = not turn.dead, True
        self._backend.interrupted(turn)
        played = {one.item: one.played_ms for one in heard}
        for item in turn.items.values():
            whole_ms = item.produced * 1000 // self._format.bytes_per_second
            item.said.text = heard_part(item.said.text, played.get(item.id, 0), whole_ms)
        timed_out = [call for call in turn.calls.values() if call.timed_out]
        if turn is not self._turn:
            return
        if was_alive and (turn.item is not None or turn.waits):
            self._jitter.clear()
            self._hush("sound" if turn.item is not None else "speech")
            turn.item = None
            self._append("instructions", _STOPPED)
        if timed_out:  # the turn was closed with it, and the user still waits for a word
            self._unwanted = ""
            self._backend.move(turn, self._begin("thinking"))

    def tool_result(self, key: str, result: ToolResult) -> None:
        """A call is settled."""
        turn = self._turns.get(key)
        if turn is not None:
            if result.code == "TIMEOUT" and result.call in turn.calls:
                turn.calls[result.call].timed_out = True
            turn.waits, turn.since = True, self._now()
            self._backend.result(turn, result)

    def tick(self) -> None:
        """Time goes by."""
        now = self._now()
        if self._unwanted and now >= self._unwanted_until:
            self._unwanted = ""
        turn = self._alive()
        if turn is not None and now - turn.heard_at > _SAID_S:
            self._heard_out(turn)
        if turn is None:
            return
        waited = now - turn.since
        if turn.item is not None:
            if waited > self._pause_s + _MUTE_S:
                self._fall_silent(turn)
        elif any(not call.done for call in turn.calls.values()):
            pass
        elif self._send is None:
            if waited > _STALE_S:
                self._fail(turn, ProviderError("gone", "the server cannot be reached", advice=AGAIN))
        elif self._backend.busy(turn):
            if waited > _WORK_S:
                self._backend.give_up()
                self._fail(turn, ProviderError("gone", "the server does not answer", advice=AGAIN))
        elif waited > turn.patience_s:
            self._end(turn)

    # --- the server's events

    def feed(self, event: Mapping[str, Any]) -> None:
        """One event of the server, sound apart."""
        type_ = event["type"]
        handler = self._handlers.get(type_)
        if handler is None:
            log.debug("an event %.60s was ignored", type_)
            return
        try:
            handler(event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"an event {type_[:60]} that is not as documented ({type(error).__name__}: {error})"
            raise ProviderError("malformed", said) from None

    def audio(self, payload: bytes) -> None:
        """The model's sound, silence included."""
        if self._format.encoding == "pcm16":
            payload = self._odd + payload
            whole = len(payload) // 2 * 2
            payload, self._odd = payload[:whole], payload[whole:]
        seconds = len(payload) / self._format.bytes_per_second
        sounds = loud(payload, self._format.encoding)
        self._silent_s = 0.0 if sounds else self._silent_s + seconds
        if self._unwanted:
            self._pass_over(sounds)
            return
        turn = self._alive()
        if sounds:
            turn, item = self._speaking()
            turn.since = self._now()
            if self._jitter.push(payload):
                item.produced += len(payload)
        elif turn is not None and turn.item is not None:
            if turn.talked_over and self._silent_s >= min(_HUSH_S, self._pause_s):
                self._yield(turn)
            elif self._silent_s <= _TAIL_S:
                if self._jitter.push(payload):
                    turn.item.produced += len(payload)
            elif self._silent_s >= self._pause_s:
                self._fall_silent(turn)

    def _pass_over(self, sounds: bool) -> None:
        if sounds:
            self._hush("sound")  # this is it; it ends with a silence, whenever that comes
        elif self._unwanted == "sound" and self._silent_s >= _HUSH_S:
            self._unwanted = ""

    def _hush(self, what: Literal["speech", "sound"]) -> None:
        self._unwanted, self._silent_s = what, 0.0
        self._unwanted_until = self._now() + _ANSWER_S

    def _play(self, payload: bytes) -> None:
        turn = self._alive()
        if turn is not None and turn.item is not None:
            self._emit(Audio(turn.key, turn.item.id, payload))

    def _speaking(self) -> tuple[Turn, Item]:
        """The turn in which the model speaks, and what it is saying."""
        turn = self._alive() or self._begin("thinking")
        if turn.item is None:
            self._heard_out(turn)
            turn.waits = False
            said = Said("assistant")
            self.history.add(said)
            turn.item = Item(f"item-{next(self._numbers)}", 0, 0, said)
            turn.items[turn.item.id] = turn.item
            self._emit(AudioBegin(turn.key, turn.item.id))
        return turn, turn.item

    def _fall_silent(self, turn: Turn) -> None:
        """The model has said what it wanted; the turn is over unless more is to come."""
        self._jitter.flush()
        item, turn.item = turn.item, None
        assert item is not None
        self._emit(Transcript(turn.key, "agent", "", final=True, item=item.id))
        self._emit(AudioEnd(turn.key, item.id))
        turn.since = self._now()
        if self._backend.busy(turn):
            turn.waits = True
            self._emit(TurnState(turn.key, "thinking"))
        elif turn.more:
            turn.more, turn.waits, turn.patience_s = False, True, _MORE_S
            self._emit(TurnState(turn.key, "thinking"))
        else:
            self._end(turn)

    def _yield(self, turn: Turn) -> None:
        """The model has fallen silent because the user speaks: that is the user's turn now."""
        user = turn.user
        self._jitter.clear()
        turn.item = None
        new = self._begin("listening")
        new.user, new.hearing, new.heard_at = user, True, turn.heard_at
        if user is not None:
            self._emit(Transcript(new.key, "user", user.text, final=False))

    def _on_user(self, event: Mapping[str, Any]) -> None:
        delta = event["delta"]
        if not isinstance(delta, str):
            raise TypeError("a transcript without text")
        turn = self._alive()
        if turn is None:
            turn = self._begin("listening")
            if self._unwanted == "speech":
                self._hush("sound")
        if turn.user is None or (turn.item is not None and not turn.talked_over):
            turn.user = Said("user")
            self.history.add(turn.user)
        turn.talked_over = turn.item is not None
        turn.user.text = (turn.user.text + delta).lstrip()
        turn.hearing, turn.heard_at = True, self._now()
        turn.since = self._now()
        if turn.item is None:
            turn.waits = True
        self._emit(Transcript(turn.key, "user", turn.user.text, final=False))

    def _on_said(self, event: Mapping[str, Any]) -> None:
        delta = event["delta"]
        if not isinstance(delta, str):
            raise TypeError("a transcript without text")
        if self._unwanted:
            return
        turn, item = self._speaking()
        self._silent_s, turn.since = 0.0, self._now()  # its sound is on its way
        item.said.text += delta
        self._emit(Transcript(turn.key, "agent", delta, final=False, item=item.id))

    def _on_error(self, event: Mapping[str, Any]) -> None:
        error = event.get("error")
        error = error if isinstance(error, Mapping) else {"message": error or event.get("message")}
        about = str(error.get("client_event_id") or event.get("client_event_id") or "")
        fault, asked = from_error(error, of_answer=True), self._backend.asked(about)
        refused = self._backend.refused(about, code_of(error))
        if asked and refused is None:
            return
        turn = (
            self._alive()
            if refused is None and fault.retried
            else self._turns.get(refused.key if refused else "")
        )
        self._fail(turn, fault)

    def _on_backend(self, event: Mapping[str, Any]) -> None:
        if (turn := self._alive()) is not None and turn.item is None:
            turn.since = self._now()
        self._backend.on_event(event)

    # --- turns

    def _alive(self) -> Turn | None:
        return self._turn if self._turn is not None and not self._turn.dead else None

    def _working(self) -> Turn:
        """The turn that the backend works for."""
        if self._turn is not None and self._turn.dead and self._unwanted:
            return self._turn  # what was interrupted before it began
        return self._alive() or self._begin("thinking")

    def _worked(self, key: str) -> None:
        """The backend is done: the voice will say so."""
        turn = self._turns[key]
        turn.since = self._now()
        if turn.item is None:
            turn.waits = True
        else:
            turn.more = True

    def _begin(self, state: Literal["listening", "thinking"]) -> Turn:
        for turn in self._turns.values():
            turn.dead = True
        self._jitter.clear()
        turn = self._turn = Turn(f"turn-{next(self._keys)}", self._now())
        self._turns[turn.key] = turn
        prune(self._turns)
        self._emit(TurnBegin(turn.key, state))
        return turn

    def _heard_out(self, turn: Turn) -> None:
        """What the user said is taken for complete: the protocol does not tell."""
        if turn.hearing and turn.user is not None:
            turn.hearing = False
            self._emit(Transcript(turn.key, "user", turn.user.text, final=True))

    def _end(self, turn: Turn) -> None:
        self._heard_out(turn)
        turn.dead = True
        self._emit(TurnEnd(turn.key))

    def _append(self, kind: Literal["thinking", "instructions"], text: str, label: str = "") -> None:
        """Tell the voice something, in pieces that the protocol takes, each under its label."""
        if self._send is None:
            return
        size = _CHUNK_ASCII if text.isascii() else _CHUNK
        for start in range(0, len(text), size):
            part = label + text[start : start + size]
            self._send({"type": f"session.{kind}.append", "content": part, "delegation_id": None})


def _role(entry: Entry) -> str:
    return entry.role if isinstance(entry, Said) else "assistant"


def _text(entry: Entry) -> str:
    if isinstance(entry, Said):
        return entry.text
    return f"[I called {entry.name} with {entry.arguments}; the result: {entry.output}]"


def _message(role: str, text: str) -> Message:
    part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    return {"type": "message", "role": role, "content": [part]}
