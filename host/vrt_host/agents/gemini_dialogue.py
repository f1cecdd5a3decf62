"""What Gemini Live's messages mean for turns: a `Dialogue` without sockets and clock.

The protocol names no responses. What tells one from the next is its order: whatever the model makes belongs to one generation
until `turnComplete`, or `interrupted` and then a `turnComplete` of its own. So a turn that the device interrupted leaves the
generation behind it *dead*: what it still brings is dropped until one of those, or until the user says something more where it
had not brought anything yet (the server may then answer both at once, and end nothing first).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Literal

from vrt_host.agents import gemini_messages as messages
from vrt_host.agents.base import (
    AgentError,
    Audio,
    AudioBegin,
    AudioEnd,
    Heard,
    Json,
    Text,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.agents.gemini_calls import Calls
from vrt_host.agents.gemini_history import History
from vrt_host.agents.gemini_messages import Dialect, Incoming, ModelCall
from vrt_host.agents.gemini_turn import Outlet, Turn
from vrt_host.agents.model_tools import ToolNames

log = logging.getLogger(__name__)

_TURNS = 8
"""Turns that are remembered: an interruption may name one that was made long ago, and is still being played."""
_REASONS = frozenset({"", "TURN_COMPLETE_REASON_UNSPECIFIED", "NEED_MORE_INPUT"})
"""Reasons for the end of a turn that are no fault."""


class Dialogue:
    """One session's conversation, over any number of connections."""

    def __init__(
        self, outlet: Outlet, *, speaks: Dialect, tools: ToolNames, instructions: str, context: Json
    ) -> None:
        self._outlet = outlet
        self._speaks = speaks
        self._tools = tools
        self._instructions = instructions
        self._keys = itertools.count(1)
        self._turns: dict[str, Turn] = {}
        self._turn: Turn | None = None
        self._calls = Calls(outlet, speaks, tools, self._keys)
        self._overheard = ""
        """What the user said while the model was talking: part of what interrupts it, or late."""
        self._captions = ""
        """What the model says, ahead of its audio."""
        self._online = False
        self._generating = False
        self._complete = False
        """Its content is all there; the server waits until it would have been played."""
        self._flowing = False
        """Its last sign was content: an interruption by the server will be told."""
        self._dead: Literal["", "unsure", "pending", "flowing"] = ""
        self._dropped = False
        """Something was, up to the end of its generation."""
        self._swallow = False
        """The next `turnComplete` is that of a generation that was interrupted."""
        self.history = History(context)
        self.hears = False
        """The user's audio came since the last answer was complete."""
        self.context_due = False
        """The model is still to be told of the context, which a new session begins with."""

    # --- for the owner of the connections

    @property
    def at_rest(self) -> bool:
        """Whether nothing would be lost with the connection."""
        return not (self._generating or self._dead or self._calls) and (
            self._turn is None or self._turn.ended
        )

    @property
    def waiting(self) -> bool:
        """Whether the user began to speak, and the model has answered nothing."""
        turn = self._turn
        return turn is not None and not (turn.out or turn.ended or turn.typed)

    def connected(self, *, anew: bool) -> None:
        """There is a connection; one that begins `anew` was given the `history`."""
        self._calls.connection += 1
        self._online = True
        self.context_due = self.context_due and not anew
        self._reset()

    def lost(self) -> str | None:
        """The connection is gone; the key of the turn that ends with it.

        A turn goes on where nothing is lost: a call runs, and its result can be told later; what was typed can be sent again.
        """
        complete = self._complete
        self._reset()
        self._online = False
        self._calls.held.clear()
        turn = self._turn
        if turn is None or turn.ended:
            return None
        if complete:
            self._finish(turn)
        elif not turn.calls:
            if not turn.again and (turn.late or (turn.typed and not turn.out)):
                self.ask_again()
                return None
            self._turn = None
            self._heard_out(turn)
            turn.record_late(self.history)
            self._outlet.hush()
            return turn.key
        return None

    @property
    def doubtful(self) -> bool:
        """Whether the model may be waiting for something, or has answered what was taken for something else."""
        turn = self._turn
        if turn is None or turn.ended:
            return False
        return turn.lingers or (not turn.out and (turn.doubt or bool(self._calls.held)))

    @property
    def deaf(self) -> bool:
        """Whether the model takes nothing but results now."""
        return self._calls.deaf

    def insist(self) -> None:
        """No news came of what is `doubtful`."""
        if self._turn is not None and self._turn.lingers:
            self._finish(self._turn)
        elif self._calls.held:
            self._calls.insist()
        else:
            self.ask_again()

    def ask_again(self) -> None:
        """Send what the user typed, or what tools said, a second time."""
        turn = self._turn
        if turn is not None:
            turn.again, turn.doubt = True, False
            self._outlet.send(messages.typed("\n\n".join(turn.late) or turn.heard, self._speaks))

    def give_up_waiting(self) -> None:
        """The user said nothing more, and the model nothing to it."""
        if self.waiting and self._turn is not None:
            self._finish(self._turn)

    def _reset(self) -> None:
        self._generating = self._complete = self._flowing = self._swallow = False
        self._dead = ""
        self._overheard = self._captions = ""

    # --- the user and the device

    def user_text(self, text: str) -> None:
        """The user typed; a response in flight was interrupted before."""
        if self._dead == "unsure":
            self._dead = ""
        turn = self._begin("thinking", typed=True)
        turn.heard = text
        if self.context_due and self._speaks.context == "later":
            self.context_due = False
            text = f"{messages.context_text(self.history.context)}\n\n{text}"
        self._outlet.send(messages.typed(text, self._speaks))

    def context(self, value: Json) -> None:
        """The application's context changed."""
        self.history.set_context(value)
        if self._speaks.context == "update":
            self._outlet.send(messages.context_update(self._instructions, value))
        else:
            self.context_due = True
            self._tell_context()

    def _tell_context(self) -> None:
        """The older models get it as content, which would interrupt a response."""
        if self.context_due and self._speaks.context == "content" and self.at_rest:
            self.context_due = False
            said = [("user", messages.context_text(self.history.context))]
            self._outlet.send(messages.content(said, complete=False))

    def interrupted(self, key: str, heard: Sequence[Heard]) -> None:
        """The turn is dead, and that much of it was heard."""
        turn = self._turns.get(key)
        if turn is None:
            return
        if turn.answer is not None:
            turn.answer.cut({one.item: one.played_ms for one in heard})
        if turn is not self._turn:
            return
        self._turn = None
        turn.record_late(self.history)
        self._outlet.hush()
        if turn.ended or turn.overdue or (turn.out and not (self._generating or turn.unwelcome)):
            return
        if self._complete:
            self._pass()
        else:
            spoken = not (turn.out or turn.typed or turn.heard_out)
            self._dead = "flowing" if self._flowing else "unsure" if spoken else "pending"

    def _pass(self) -> None:
        """What there was of a generation is over; the message that says so is still to come."""
        self._reset()
        self._swallow = True

    def tool_result(self, turn_key: str, result: ToolResult) -> None:
        """A call is settled."""
        found = self._calls.settle(result.call)
        if found is None:
            return
        batch, call = found
        turn = self._turns.get(turn_key)
        if turn is not None:
            turn.calls.discard(result.call)
            turn.overdue = turn.overdue or result.code == "TIMEOUT"
        text = messages.result_text(self._tools.own(call.name), result)
        alive = turn if turn is self._turn and result.code != "INTERRUPTED" else None
        if alive is None:
            self.history.add("user", text)
        else:
            alive.late.append(text)
        if batch.connection == self._calls.connection and self._online:
            self._calls.answer(turn, batch, call, result)
        elif alive is not None and not alive.calls:
            self._outlet.send(messages.typed("\n\n".join(alive.late), self._speaks))

    # --- the model

    def feed(self, message: Incoming) -> None:
        """One message of the server."""
        if message.activity == "start":
            self._user_speaks()
        elif message.activity == "end" and self.waiting and self._turn is not None:
            self._turn.heard_out = True
            self._outlet.emit(TurnState(self._turn.key, "thinking"))
        if message.heard or message.guess or message.heard_out:
            self._on_heard(message)
        if message.interrupted:
            self._on_interrupted()
        if message.cancelled:
            self._on_cancelled(message.cancelled)
        if message.said or message.parts:
            self._on_content(message)
        if message.calls:
            self._on_calls(message.calls)
        if message.generation_complete:
            self._on_generation_complete()
        if message.turn_complete:
            self._on_turn_complete(message)

    def _user_speaks(self) -> None:
        """The server has noticed speech."""
        if self._turn is not None and self._turn.typed and not self._turn.out:
            return  # or it was told of the text
        if self._dead in ("unsure", "pending"):
            self._dead = ""
        elif self._complete:
            self._pass()
        elif self._generating:
            self._dead = "flowing"  # until it says that it has stopped
        if not self.waiting:
            self._begin("listening")

    def _on_heard(self, message: Incoming) -> None:
        turn = self._turn
        if self._dead in ("unsure", "pending"):
            self._dead = ""
        if self._generating or self._dead or (turn is not None and turn.typed and not turn.out):
            self._overheard += message.heard
            return
        if turn is None or not self.waiting:
            late = turn is not None and turn.ended and not self.hears  # of what was answered already
            if late or not (message.heard.strip() or message.guess.strip()):
                return
            turn = self._begin("listening")
        turn.heard += message.heard
        text = message.guess if len(message.guess) > len(turn.heard) else turn.heard
        if message.heard_out:
            turn.heard_out = True
            self._heard_out(turn)
            self._outlet.emit(TurnState(turn.key, "thinking"))
        elif text.strip():
            self._outlet.emit(Transcript(turn.key, "user", text.strip(), final=False))

    def _heard_out(self, turn: Turn) -> None:
        """The user has said all that they said in this turn, as far as is known."""
        text = turn.heard.strip()
        if not text or (turn.asked is not None and str(turn.asked) == text):
            return
        if turn.asked is None:
            turn.asked = self.history.add("user")
        turn.asked.said = [(None, text)]
        if not turn.typed:
            self._outlet.emit(Transcript(turn.key, "user", text, final=True))

    def _on_interrupted(self) -> None:
        was, dead, overheard = self._generating or bool(self._dead), bool(self._dead), self._overheard
        self._dropped = False
        self._calls.held.clear()
        self._pass()
        turn = self._turn
        if was and (overheard.strip() if turn is None else turn.out and not (turn.ended or dead)):
            self._listen(overheard)
        self._tell_context()

    def _listen(self, overheard: str) -> None:
        """The user is speaking; what was heard of that already."""
        turn = self._begin("listening")
        turn.heard = overheard
        if overheard.strip():
            self._outlet.emit(Transcript(turn.key, "user", overheard.strip(), final=False))

    def _on_cancelled(self, ids: Sequence[str]) -> None:
        """The server has taken calls back, because the user went on: it wants no results."""
        taken = self._calls.take_back(ids)
        if self._dead in ("unsure", "pending"):
            self._dead = ""
        if self._turn is not None and self._turn.key in taken:
            overheard = self._overheard
            self._reset()
            self._listen(overheard)

    def _on_content(self, message: Incoming) -> None:
        if not message.parts:
            self._on_caption(message.said)
            return
        turn = self._responding()
        if turn is None:
            return
        if turn.answer is None:
            turn.answer = self.history.add("model")
        sounds = any(isinstance(part, bytes) for part in message.parts)
        if sounds and not turn.open:
            turn.item, turn.open = f"item-{next(self._keys)}", True
            self._outlet.say(AudioBegin(turn.key, turn.item))
        self._captions += message.said
        if turn.open:
            self._caption(turn)
        for part in message.parts:
            if isinstance(part, str):
                turn.answer.text(None, part)
                self._outlet.say(Text(turn.key, part))
            elif turn.item is not None:
                whole = turn.odd + part
                cut = len(whole) // 2 * 2
                turn.odd = whole[cut:]
                turn.answer.sound(turn.item, cut / 2 / messages.OUTPUT_RATE)
                self._outlet.say(Audio(turn.key, turn.item, whole[:cut]))

    def _on_caption(self, text: str) -> None:
        """What the model says comes as it likes, ahead of the audio or behind it: alone it is no answer."""
        self._captions += text
        turn = self._turn
        if turn is not None and turn.item is not None and not turn.ended and (turn.open or self._complete):
            self._caption(turn)

    def _caption(self, turn: Turn) -> None:
        text, self._captions = self._captions, ""
        if text and turn.answer is not None:
            turn.answer.text(turn.item, text)
            self._outlet.say(Transcript(turn.key, "agent", text, final=False, item=turn.item))
            if turn.typed:
                self._outlet.say(Text(turn.key, text))

    def _responding(self) -> Turn | None:
        """The turn that gets what the model makes now; None: it is dead."""
        self._generating = self._flowing = True
        self._complete = False
        if self._dead:
            self._dead = "flowing"
            return None
        self._swallow = False
        self._calls.held.clear()
        turn = self._turn
        if turn is None or turn.ended:
            captions, self._captions = self._captions, ""
            turn = self._begin("thinking")
            self._captions = captions
        turn.record_late(self.history)
        turn.lingers = False
        if not turn.out:
            turn.out = True
            self._heard_out(turn)
        return turn

    def _on_calls(self, calls: Sequence[ModelCall]) -> None:
        turn = self._responding()
        self._flowing = False
        if turn is None:
            self._calls.refuse(calls)
            self._dead = "pending"
            return
        self._caption(turn)
        self._end_item(turn)
        self._calls.begin(turn, calls)

    def _on_generation_complete(self) -> None:
        if self._dead == "flowing":
            self._pass()
            self._dropped = True
        elif self._generating:
            self._complete, self._flowing = True, False
            if self._turn is not None and not self._turn.ended:
                self._end_item(self._turn)

    def _on_turn_complete(self, message: Incoming) -> None:
        over, overheard, captions = self._dead or self._swallow, self._overheard, self._captions
        dropped = self._dead == "flowing" or self._dropped
        self._dropped = False
        self._reset()
        turn = self._turn
        if over:
            if overheard.strip() and turn is None:
                self._listen(overheard)
            if dropped and turn is not None and turn.typed:
                turn.doubt = not (turn.out or turn.again)
        elif turn is not None and turn.calls:
            turn.parted = True
        elif not (message.status == "IN_PROGRESS" or turn is None or turn.ended):
            if overheard and not turn.typed:
                turn.heard += overheard
            behind = turn.late and not turn.parted and message.status != "IDLE"
            if message.reason in _REASONS and (behind or message.status == "REQUIRES_ACTION"):
                self._captions = captions
                turn.lingers = True
            elif message.reason == "MALFORMED_FUNCTION_CALL" or (
                not turn.out and message.reason not in _REASONS
            ):
                self._turn = None
                what = (
                    f"gemini: the model gave no answer ({message.reason.lower()}); ask again in other words"
                )
                log.warning("%s", what)
                self._outlet.hush()
                self._outlet.emit(AgentError(what, turn=turn.key))
            else:
                self._captions = captions
                self._finish(turn)
        self._tell_context()

    def _finish(self, turn: Turn) -> None:
        self._heard_out(turn)
        turn.record_late(self.history)
        if self._captions and turn.answer is None:  # it came without a sound
            turn.answer = self.history.add("model")
        self._caption(turn)
        if turn.item is not None:
            self._outlet.say(Transcript(turn.key, "agent", "", final=True, item=turn.item))
        self._end_item(turn)
        self._captions = ""
        turn.ended, self.hears = True, False
        if turn.typed:
            self._outlet.say(Text(turn.key, "", final=True))
        self._outlet.say(TurnEnd(turn.key))

    def _end_item(self, turn: Turn) -> None:
        if turn.open:
            self._outlet.say(AudioEnd(turn.key, turn.item or ""))
            turn.open, turn.odd = False, b""

    def _begin(self, state: Literal["listening", "thinking"], *, typed: bool = False) -> Turn:
        """A new turn, and the end of the one before."""
        self._outlet.hush()
        turn = self._turn = Turn(f"turn-{next(self._keys)}", typed)
        self._turns[turn.key] = turn
        if len(self._turns) > _TURNS:
            del self._turns[next(iter(self._turns))]
        self._outlet.emit(TurnBegin(turn.key, state))
        return turn
