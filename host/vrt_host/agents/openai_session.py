"""A conversation with a Realtime model (OpenAI, GA shapes, and servers of its dialect), without a socket and without a clock.

The agent feeds it what the server sends and what the user does; it calls `emit` with events for the turn manager, and
`send` with messages for the server. It outlives connections: `lost` takes the server away, `ready` brings a new one.

Of turns the newest alone is alive. What the server still says of an older one is told apart by the id of its response.
A server has one response at a time, so a wanted one waits until the one before is done.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from vrt_host.agents.base import (
    AgentEvent,
    Audio,
    AudioBegin,
    AudioEnd,
    Format,
    Heard,
    Json,
    Text,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.openai_calls import ModelCalls
from vrt_host.agents.openai_conversation import Conversation
from vrt_host.agents.openai_errors import AGAIN, BUSY, NOT_ACTIVE, code_of, from_error
from vrt_host.agents.openai_history import Said, sound
from vrt_host.agents.openai_responses import (
    LATE,
    OLD_NAMES,
    Item,
    Message,
    Response,
    Responses,
    Turn,
    prune,
)
from vrt_host.agents.openai_utterances import Utterances
from vrt_host.agents.provider import ProviderError

log = logging.getLogger(__name__)

_STALE_S = 15.0
"""How long an answer that was lost with the connection waits for the next one."""
_BEGIN_S = 20.0
"""How long the server may take to begin an answer."""
_DOUBT_S = 2.0
"""So long, once it has said that something is wrong, and not what; and until what was cancelled has ended."""
_TRANSCRIPT_S = 3.0
"""How long the end of a turn waits for the text of what the user said."""
_INCOMPLETE = "look at max_output_tokens, and at what was asked"
_HARMLESS = (NOT_ACTIVE, "input_audio_buffer_commit_empty")
"""The server was quicker, or there was nothing to do."""


class Dialogue:
    """See the module. Raises `ProviderError` of kind `malformed` from `feed`, and nothing else."""

    def __init__(
        self,
        emit: Callable[[AgentEvent], None],
        tools: ToolNames,
        output: Format,
        *,
        later: Callable[[float, Callable[[], None]], object],
        told: Callable[[ProviderError, str | None], None],
        noted: Callable[[ProviderError], None],
    ) -> None:
        """`later(seconds, work)` runs work; `told(error, turn)` reports what the provider said, `noted(error)` in the log alone."""
        self._emit = emit
        self._later = later
        self._told = told
        self._noted = noted
        self._keys = itertools.count(1)
        self._conversation = Conversation(output.bytes_per_second)
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._turn: Turn | None = None
        """The newest."""
        self._responses = Responses(self._expect)
        self._utterances = Utterances(emit, self._conversation.history, self._heard_out, noted)
        self._calls = ModelCalls(emit, tools, self._responses, lambda: self._conversation.session)
        self.speaking = False
        """Whether the server hears the user speak."""
        self._handlers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "input_audio_buffer.speech_started": self._on_speech_started,
            "input_audio_buffer.speech_stopped": self._on_speech_stopped,
            "input_audio_buffer.committed": self._on_committed,
            "conversation.item.input_audio_transcription.delta": self._utterances.on_delta,
            "conversation.item.input_audio_transcription.completed": self._utterances.on_completed,
            "conversation.item.input_audio_transcription.failed": self._utterances.on_failed,
            "response.created": self._on_created,
            "response.output_item.added": self._on_item_added,
            "response.output_item.done": self._on_item_done,
            "response.content_part.added": self._on_part_added,
            "response.output_audio.delta": self._on_audio,
            "response.output_audio.done": self._on_audio_done,
            "response.output_audio_transcript.delta": self._on_said,
            "response.output_audio_transcript.done": self._on_said_all,
            "response.output_text.delta": self._on_text,
            "response.output_text.done": self._on_text_done,
            "response.function_call_arguments.delta": self._calls.on_delta,
            "response.function_call_arguments.done": self._calls.on_arguments,
            "response.done": self._on_done,
            "error": self._on_error,
        }

    # --- what the agent tells

    @property
    def unheard(self) -> bool:
        """Whether the user's last words are nowhere but in the server: it has neither answered them nor told their text."""
        turn = self._turn
        if self.speaking or turn is None or turn.dead or turn.answered:
            return self.speaking
        return turn.hearing or (turn.user is not None and not turn.user.text)

    @property
    def resting(self) -> bool:
        """Whether nothing is going on with the server."""
        turn = self._turn
        waits = turn is not None and turn.owes and not turn.dead
        return not self.speaking and not waits and self._responses.resting

    def ready(self, send: Callable[[Message], None], *, transcribed: bool) -> None:
        """A session of the server has begun: tell it what was said, and go on."""
        self._responses.begin(send)
        self._conversation.begin(send)
        self._utterances.transcribed = transcribed
        if self._turn is not None:
            if self._responses.awaited(self._turn):
                self._expect(self._turn)
            self._go_on(self._turn)
        self._responses.ask()

    def lost(self, error: ProviderError) -> bool:
        """The server is gone. Returns whether what the user said last has to be said to the next one again."""
        unheard, turn = self.unheard, self._turn
        self._responses.begin(None)
        self._conversation.begin(None)
        self.speaking = False
        if not error.retried:
            self._fail(turn, error)
        elif turn is None or turn.dead or turn.ended:
            self._noted(error)  # nobody waits for an answer
        elif self._responses.due is turn or turn.owes:
            self._told(error, None)  # the next session is asked, with the results of what runs meanwhile
        elif not turn.answered and not unheard and not turn.asked_again and (turn.user or turn.calls):
            turn.asked_again = True
            self._responses.due = turn
            self._later(_STALE_S, lambda: self._give_up(turn, error))
            self._noted(error)
        else:
            self._fail(turn, error)
        return unheard

    def _give_up(self, turn: Turn, error: ProviderError) -> None:
        """An answer that waits for a connection is not given that late."""
        if self._responses.send is None and self._responses.due is turn and not turn.dead:
            self._fail(turn, error)

    def _fail(self, turn: Turn | None, error: ProviderError) -> None:
        """An error is the end of a turn, if that is alive."""
        if turn is None or turn.dead or turn.ended:
            self._told(error, None)
        else:
            turn.die()
            self._responses.forget(turn)
            self._told(error, turn.key)

    def _expect(self, turn: Turn, seconds: float = _BEGIN_S, error: ProviderError | None = None) -> None:
        """The server owes an answer in a turn; it is not waited for without end."""
        turn.asks += error is None
        number, active = turn.asks, self._responses.active
        if active is not None and active.cancelled:  # not every server tells its end
            self._later(_DOUBT_S, lambda: self._responses.gone(active))
        self._later(seconds, lambda: self._overdue(turn, number, error))

    def _overdue(self, turn: Turn, number: int, error: ProviderError | None) -> None:
        responses, active = self._responses, self._responses.active
        heard = not (turn.answered or turn.ended or turn.dead or turn.listening or turn.open)
        if turn.asks != number or not (responses.awaited(turn) or heard):
            if error is not None:
                self._told(error, None)
        elif active is not None and not active.cancelled:
            self._expect(turn)  # it is still busy
        else:
            why = "does not answer" if responses.send is not None else "cannot be reached"
            responses.forget(turn)
            if not turn.dead:
                self._fail(turn, error or ProviderError("gone", f"the server {why}", advice=AGAIN))

    def user_text(self, text: str) -> None:
        """The user typed."""
        turn = self._begin("thinking")
        turn.user = Said("user", text)
        self._conversation.add(turn.user)
        self._responses.want(turn)

    def context(self, value: Json) -> None:
        """The application's data, in place of what it was before."""
        self._conversation.context(value)

    def interrupted(self, key: str, heard: Sequence[Heard]) -> None:
        """A turn is dead, and so much of it was heard."""
        turn = self._turns.get(key)
        if turn is None:
            return
        turn.die()
        responses = self._responses
        if responses.due is turn:
            responses.due = None
        if responses.active is not None and responses.active.turn is turn:
            responses.cancel()
        played = {one.item: one.played_ms for one in heard}
        for item in turn.items.values():
            self._conversation.truncate(item, played.get(item.id, 0))
        if turn.timed_out and self._turn is turn:
            responses.want(self._begin("thinking"))  # the user still waits for a word

    def tool_result(self, key: str, result: ToolResult) -> None:
        """A call is settled."""
        turn = self._turns.get(key)
        call = turn.calls.get(result.call) if turn is not None else None
        if turn is None or call is None or call.done:
            return
        call.done = True
        self._conversation.settle(call, result)
        turn.timed_out |= result.code == "TIMEOUT"
        if result.code != "INTERRUPTED":
            self._go_on(turn)

    def cut(self, key: str) -> None:
        """A turn says more than anybody wants to hear: no more of it."""
        active = self._responses.active
        if active is not None and active.turn.key == key and not active.cancelled:
            log.warning("the model does not stop to speak; it was cut off")
            self._responses.cancel()

    # --- the server's events

    def feed(self, event: Mapping[str, Any]) -> None:
        """One event of the server."""
        type_ = event["type"]
        handler = self._handlers.get(OLD_NAMES.get(type_, type_))
        if handler is None:
            log.debug("an event %.60s was ignored", type_)
            return
        try:
            handler(event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"an event {type_[:60]} that is not as documented ({type(error).__name__}: {error})"
            raise ProviderError("malformed", said) from None

    def _on_speech_started(self, event: Mapping[str, Any]) -> None:
        if self.speaking and self._utterances.turn(event.get("item_id")) is not None:
            return
        self.speaking = True
        if self._responses.active is not None:
            self._responses.active.cancelled = True  # by the server, which was told to
        turn = self._begin("listening")
        turn.listening = True
        self._utterances.begin(turn, event.get("item_id"))

    def _on_speech_stopped(self, event: Mapping[str, Any]) -> None:
        self.speaking = False
        turn = self._utterances.turn(event.get("item_id")) or self._turn
        if turn is not None and turn.listening:
            turn.listening = False
            if not turn.dead:
                self._emit(TurnState(turn.key, "thinking"))
                self._expect(turn)

    def _on_committed(self, event: Mapping[str, Any]) -> None:
        item = str(event["item_id"])
        self._on_speech_stopped(event)
        if self._utterances.turn(item) is None:  # of what the server did not hear begin
            turn = self._turn
            if turn is None or turn.dead or turn.ended:
                turn = self._begin("thinking")
            if not turn.answered and turn.user is None:
                self._utterances.begin(turn, item)
        self._utterances.complete(item)
        if (said := self._utterances.turn(item)) is not None and said is self._turn:
            self._expect(said)

    def _heard_out(self, turn: Turn) -> None:
        turn.hearing = False
        if turn.ended and not turn.dead:
            self._emit(TurnEnd(turn.key))

    def _on_created(self, event: Mapping[str, Any]) -> None:
        self._responses.created(event["response"], self._turns, self._adopt)

    def _adopt(self) -> Turn:
        """The turn of a response that the server began by itself."""
        last = self._turn
        if last is not None and not last.ended and not last.dead:
            return last
        if last is not None and last.dead and not last.spoken_on and not last.answered:
            return last  # interrupted before its answer began: that is not wanted any more
        turn = self._begin("thinking")
        if last is not None and last.spoken_on:
            self._utterances.move(last, turn)
        return turn

    def _on_item_added(self, event: Mapping[str, Any]) -> None:
        response, item = self._responses.of(event), event["item"]
        if item.get("type") == "function_call" and response is not None:
            self._calls.begin(response, item)

    def _on_item_done(self, event: Mapping[str, Any]) -> None:
        response, item = self._responses.of(event), event["item"]
        if item.get("type") == "function_call":
            self._calls.item(response, item)
        elif response is not None and (found := response.turn.items.get(str(item.get("id")))) is not None:
            self._end_item(response.turn, found)

    def _on_part_added(self, event: Mapping[str, Any]) -> None:
        if event["part"].get("type") in ("audio", "output_audio"):
            self._item(event)

    def _item(self, event: Mapping[str, Any]) -> tuple[Turn, Item] | None:
        """The audio item of an event, None if nobody wants to hear it any more."""
        response = self._responses.of(event)
        if response is None or response.dead:
            return None
        turn, id_ = response.turn, str(event["item_id"])
        item = turn.items.get(id_)
        if item is None:
            turn.answered = True
            said = Said("assistant")
            self._conversation.history.add(said)
            item = turn.items[id_] = Item(
                id_, int(event.get("content_index") or 0), self._conversation.session, said
            )
            self._emit(AudioBegin(turn.key, id_))
        return turn, item

    def _on_audio(self, event: Mapping[str, Any]) -> None:
        if (found := self._item(event)) is not None:
            turn, item = found
            payload = sound(event["delta"])
            item.produced += len(payload)
            if payload:
                self._emit(Audio(turn.key, item.id, payload))

    def _on_audio_done(self, event: Mapping[str, Any]) -> None:
        if (found := self._item(event)) is not None:
            self._end_item(*found)

    def _end_item(self, turn: Turn, item: Item) -> None:
        if not item.ended:
            item.ended = True
            self._emit(AudioEnd(turn.key, item.id))

    def _on_said(self, event: Mapping[str, Any]) -> None:
        if (found := self._item(event)) is not None:
            turn, item = found
            item.said.text += event["delta"]
            item.shown = len(item.said.text)
            if event["delta"]:
                self._emit(Transcript(turn.key, "agent", event["delta"], final=False, item=item.id))

    def _on_said_all(self, event: Mapping[str, Any]) -> None:
        if (found := self._item(event)) is not None:
            turn, item = found
            if isinstance(event.get("transcript"), str):
                item.said.text = event["transcript"]
            rest = item.said.text[item.shown :]
            item.shown += len(rest)
            if not item.told:
                item.told = True
                self._emit(Transcript(turn.key, "agent", rest, final=True, item=item.id))

    def _on_text(self, event: Mapping[str, Any]) -> None:
        response = self._responses.of(event)
        if response is not None and not response.dead:
            turn, delta = response.turn, str(event.get("delta") or "")
            turn.answered = True
            turn.text += delta
            if delta:
                self._emit(Text(turn.key, delta))

    def _on_text_done(self, event: Mapping[str, Any]) -> None:
        response = self._responses.of(event)
        if response is not None and not response.dead:
            turn = response.turn
            turn.answered = True
            whole = event["text"] if isinstance(event.get("text"), str) else turn.text
            rest, turn.text = whole[len(turn.text) :], ""
            self._conversation.history.add(Said("assistant", whole))
            self._emit(Text(turn.key, rest, final=True))

    def _on_done(self, event: Mapping[str, Any]) -> None:
        said, responses = event["response"], self._responses
        response = responses.done(said)
        if response is None and responses.asked is not None and responses.active is None:
            self._on_created(event)  # it has ended before it began: an error, as a rule
            response = responses.done(said)
        try:
            if response is not None and not response.ended:
                response.ended = True
                self._close(response, said)
        finally:
            responses.ask()

    def _close(self, response: Response, said: Mapping[str, Any]) -> None:
        turn, status, details = response.turn, said.get("status"), said.get("status_details")
        details = details if isinstance(details, Mapping) else {}
        for item in turn.items.values():
            self._end_item(turn, item)
        if status == "failed" and not turn.dead:
            self._fail(turn, from_error(details.get("error") or "the response failed", of_answer=True))
            return
        if status == "incomplete" and not turn.dead:
            words = f"the answer is incomplete: {details.get('reason') or 'the server does not say why'}"
            self._told(ProviderError("refused", words, advice=_INCOMPLETE), None)
        try:
            self._calls.rest(response, said)
        finally:
            if turn.owes:
                self._go_on(turn)
            elif not turn.dead and not turn.ended:
                self._end(turn)

    def _on_error(self, event: Mapping[str, Any]) -> None:
        error = event.get("error")
        error = error if isinstance(error, Mapping) else {"message": error or event.get("message")}
        about, code = str(error.get("event_id") or ""), code_of(error)
        fault = from_error(error, of_answer=True)
        turn, owed = self._responses.refused(about, code), self._owed()
        if turn is not None and not turn.dead:
            self._fail(turn, fault)
        elif turn is not None or code in _HARMLESS or about.startswith(LATE):
            log.debug("an error that does no harm: %.60s", code)
            if code == NOT_ACTIVE:
                self._responses.gone()
        elif code == BUSY:
            responses, active = self._responses, self._responses.active
            busy = active is not None and active.turn is owed
            if owed is not None and not owed.answered and not busy and not responses.awaited(owed):
                responses.want(owed)  # the server could not answer what it heard; it is asked to, later
        elif fault.retried:  # a fault of the server's own is the end of what it makes; that may repeat it
            self._fail(owed, fault)
        elif owed is not None and not about and self._responses.awaited(owed):
            self._expect(owed, _DOUBT_S, fault)  # not every server says what an error is about
        else:
            self._told(fault, None)

    def _owed(self) -> Turn | None:
        """The turn in which the server makes an answer, or has to."""
        responses, turn = self._responses, self._turn
        if responses.active is not None and not responses.active.dead:
            return responses.active.turn
        if turn is None or turn.dead or turn.ended or turn.open:
            return None
        return turn if responses.awaited(turn) or (turn.user is not None and not turn.answered) else None

    # --- turns

    def _begin(self, state: Literal["listening", "thinking"]) -> Turn:
        for turn in self._turns.values():
            turn.die()
        turn = self._turn = Turn(f"turn-{next(self._keys)}")
        self._turns[turn.key] = turn
        prune(self._turns)
        self._responses.due = None
        self._emit(TurnBegin(turn.key, state))
        return turn

    def _end(self, turn: Turn) -> None:
        """The model will say nothing more in a turn. Its end waits for the text of what the user said, not for ever."""
        turn.ended = True
        if turn.hearing:
            self._later(_TRANSCRIPT_S, lambda: self._heard_out(turn) if turn.hearing else None)
        else:
            self._emit(TurnEnd(turn.key))

    def _go_on(self, turn: Turn) -> None:
        """Let the model go on with a turn, once it has all results."""
        active = self._responses.active
        if turn.owes and not turn.dead and not turn.open and (active is None or active.turn is not turn):
            turn.owes = turn.answered = False
            self._responses.want(turn)
