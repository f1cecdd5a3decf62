"""The conversation with an Omnia facade: its messages on one side, turns of the port on the other. No sockets here.

The facade's messages carry no name of the answer that they belong to. So one answer is in flight at a time (`Sender.reply`): what
comes belongs to it, until its `done` or an error.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vrt_host.agents import omnia_messages as messages
from vrt_host.agents.base import Heard, Json, Text, Tool, ToolResult, Transcript, TurnBegin, TurnState
from vrt_host.agents.omnia_calls import Calls, OpenCall
from vrt_host.agents.omnia_messages import (
    Chunk,
    Connected,
    Done,
    Failure,
    GivenUp,
    Incoming,
    Interrupt,
    MediaChunk,
    SessionConfig,
    ToolCall,
    Unknown,
)
from vrt_host.agents.omnia_mouth import Mouth
from vrt_host.agents.omnia_options import Options
from vrt_host.agents.omnia_sender import Sender
from vrt_host.agents.omnia_turn import Alarm, Outlet, Reply, Said, Turn
from vrt_host.agents.provider import ProviderError
from vrt_host.consent import ANSWER_S, plain_yes
from vrt_host.speech.words import normalise

log = logging.getLogger(__name__)

HEARD_S = 0.8
"""No more of the user's words for so long: they are complete."""
QUIET_S = 1.0
"""Nothing more was said to a question for so long: it has been asked."""
LISTEN_S = 12.0
"""A spoken turn in which nothing comes is over: the agent may not have been meant."""
DEAF_S = 30.0
"""An audio session that was refused is tried again after so long."""
_NO = frozenset(("no", "no thanks", "no thank you", "do not", "stop", "cancel", "never mind"))


@dataclass(slots=True, eq=False)
class Question:
    """What the facade wants to know of the user before a call."""

    call: OpenCall
    turn: Turn
    asked: bool = False
    before: tuple[Turn, int] | None = None
    """Words of a turn that are late ones of what was said before the question, and so no answer to it."""


class Dialogue:
    """One session's conversation."""

    def __init__(self, outlet: Outlet, options: Options, tools: Sequence[Tool], context: Json) -> None:
        self._outlet = outlet
        self._disclosure = options.disclosure
        self._disclosed = False
        self._calls = Calls(outlet, tools, options.tool_timeout_s)
        self._mouth = Mouth(outlet, options.output_rate)
        self.sender = Sender(outlet, options, context, lambda: self._turn)
        self._turns = 0
        self._turn: Turn | None = None
        self._question: Question | None = None
        self._swallow = False
        """A `done` may come that belongs to an answer which was interrupted."""
        self._unwanted = False
        """The device has ended a spoken turn before its answer came."""
        self._hearing = Alarm(outlet, HEARD_S, self._heard_out)
        self._asking = Alarm(outlet, QUIET_S, self._asked)
        self._listening = Alarm(outlet, LISTEN_S, self._deserted)
        self._answer_due = Alarm(outlet, ANSWER_S, self._unanswered)

    @property
    def waiting(self) -> bool:
        """Whether the turn is one of the user's speech that is not answered yet."""
        turn = self._turn
        return turn is not None and not (turn.typed or turn.out or turn.ended)

    # --- connections

    def connected(self, hello: Connected) -> None:
        """There is a connection, the first or another one."""
        self.sender.connected(hello)
        self._mouth.forget()
        if not hello.resumed:
            self._drop(
                ProviderError("gone", "the session was lost with the connection", advice="say it again")
            )
        if hello.ai_disclosure and self._disclosure:
            if not self._disclosed:
                self._disclosed = True
                turn = self._begin("thinking", typed=True)
                self._mouth.write(turn, self._disclosure)
                self._mouth.end(turn)
            self._outlet.send(messages.DISCLOSURE_ACK)
        self.sender.pump()

    def lost(self, error: ProviderError, *, parked: bool) -> None:
        """The connection is gone. `parked`: there is an audio session, which may be taken up again."""
        self.sender.lost()
        reply = self.sender.reply
        if not parked or (reply is not None and reply.said is not None):
            self._drop(error)

    def _drop(self, error: ProviderError) -> None:
        """What was in flight is lost; what the device does goes on, and its results are told later."""
        reply = self.sender.reply
        if reply is not None and not reply.arrived and self.sender.back():
            reply = None
        self.sender.reply = None
        self._calls.lost()
        self._swallow = self._unwanted = False
        question = self._taken_question()
        if question is not None:
            self._calls.refuse(question.call, "")
        turn = self._turn
        if turn is None or turn.ended or turn.calls:
            return
        if (reply is not None and reply.turn is turn) or self.waiting:
            self._fail(turn, error)

    def close(self) -> None:
        """The session has ended."""
        self._calls.close()
        self.sender.close()
        for alarm in (self._hearing, self._asking, self._listening, self._answer_due):
            alarm.stop()

    # --- what the user and the device do

    def user_text(self, text: str) -> None:
        """The user typed."""
        question = self._taken_question()
        turn = self._begin("thinking", typed=True)
        if question is None or not self._judge(question, text, turn):
            self.sender.add(Said(turn, [text]))

    def interrupted(self, key: str, heard: Sequence[Heard]) -> None:
        """The turn is dead. The facade cannot be told: what it still sends of the answer is dropped."""
        if self._question is not None and self._question.turn.key == key:
            self._refuse("the user interrupted")
        turn = self._turn
        if turn is None or turn.key != key:
            return
        self._outlet.hush()
        self._turn = None
        reply = self.sender.reply
        if reply is not None and reply.turn is turn:
            if turn.overdue:
                reply.turn = self._begin("thinking", typed=turn.typed)
        elif not (turn.ended or turn.typed):
            self._unwanted = True
            self._listening.set()
        self.sender.tell(turn.notes, turn.files)
        self.sender.pump()

    def tool_result(self, key: str, result: ToolResult) -> None:
        """A call is settled."""
        settled = self._calls.settle(result)
        if settled is None:
            return
        notes = [settled.note] if settled.note else []
        turn = self._turn
        if turn is None or turn.key != key or turn.ended or result.code == "INTERRUPTED":
            self.sender.tell(notes, settled.files)
            return
        turn.calls.discard(result.call)
        if not turn.typed:
            self._listening.set()
        turn.overdue = turn.overdue or result.code == "TIMEOUT"
        turn.files += settled.files
        turn.notes += notes
        if turn.notes and not turn.calls and self.sender.reply is None:
            self._follow(turn)

    def _follow(self, turn: Turn) -> None:
        """A message that nobody typed: results and files that the facade has to know of, to go on in this turn."""
        said = Said(turn, turn.notes or ["(What the tool gave:)"], turn.files)
        turn.notes, turn.files = [], []
        self.sender.add(said)

    # --- the facade

    def feed(self, message: Incoming) -> None:
        """One message of the facade's."""
        match message:
            case Chunk(text, user=True):
                self._on_heard(text)
            case Chunk(text):
                self._on_chunk(text)
            case MediaChunk():
                self._on_media(message)
            case Done():
                self._on_done(message)
            case ToolCall():
                self._on_call(message)
            case GivenUp(id_, error):
                self._on_given_up(id_, error)
            case Interrupt():
                self._on_interrupt()
            case SessionConfig():
                self._mouth.configure(message)
            case Failure():
                self._on_failure(message)
            case Unknown(type_):
                log.debug("omnia: a message of an unknown type, %.40r, was ignored", type_)
            case _:
                log.debug("omnia: %s, for which nobody asked, was ignored", type(message).__name__)

    def _on_heard(self, text: str) -> None:
        """The next of the user's words. Within an answer to speech they are late, and no interruption."""
        if not text.strip():
            return
        turn, reply = self._turn, self.sender.reply
        late = (
            reply is not None and reply.turn is turn and turn is not None and not (turn.typed or turn.ended)
        )
        if turn is None or not (self.waiting or late):
            turn = self._begin("listening", typed=False)
        elif turn.heard_out and not late:
            self._outlet.emit(TurnState(turn.key, "listening"))
        self._unwanted = turn.heard_out = False
        turn.heard += text
        self._outlet.emit(Transcript(turn.key, "user", turn.heard.strip(), final=False))
        self._hearing.set()
        self._listening.set()

    def _heard_out(self) -> None:
        """The user's words are complete, as far as is known."""
        self._hearing.stop()
        turn = self._turn
        if turn is None or turn.heard_out or not turn.heard.strip():
            return
        turn.heard_out = True
        self._outlet.emit(Transcript(turn.key, "user", turn.heard.strip(), final=True))
        if self.waiting:
            self._outlet.emit(TurnState(turn.key, "thinking"))
        question = self._question
        if question is None or question.turn is turn:
            return
        if not (question.turn.typed or question.turn.heard or question.before):
            question.before = turn, len(turn.heard)
            return
        old = question.before[1] if question.before and question.before[0] is turn else 0
        if turn.heard[old:].strip():
            self._taken_question()
            self._judge(question, turn.heard[old:], turn)

    def _deserted(self) -> None:
        self._unwanted = False
        self._heard_out()
        turn = self._turn
        if turn is None or turn.typed or turn.calls or self._question is not None:
            return
        reply = self.sender.reply
        if reply is None or reply.turn is not turn:
            self._mouth.end(turn)

    def _answering(self) -> Turn | None:
        """The turn to which what the facade says now belongs; None: nobody hears it."""
        self._heard_out()
        reply = self.sender.reply
        if reply is None:
            turn = self._turn
            if self._unwanted:
                turn = None
            elif turn is None or turn.typed or turn.ended:
                turn = self._begin("thinking", typed=False)
            self._unwanted = False
            reply = self.sender.reply = Reply(turn)
        reply.flowing = True
        self._swallow = False
        turn = reply.turn
        if turn is None or turn is not self._turn:
            return None
        if turn.ended:  # it goes on after a question
            turn = reply.turn = self._begin("thinking", typed=turn.typed)
            if self._question is not None:
                self._question.turn = turn
        turn.out = True
        return turn

    def _on_chunk(self, text: str) -> None:
        turn = self._answering()
        if self.sender.reply is not None:
            self.sender.reply.text += text
        if turn is not None and text:
            self._mouth.write(turn, text)
            self._more_asked()

    def _on_media(self, chunk: MediaChunk) -> None:
        turn = self._answering()
        if turn is not None:
            self._mouth.media(turn, chunk)
            self._more_asked()

    def _on_done(self, done: Done) -> None:
        if self.sender.reply is None and not (done.text or done.media):
            swallow, self._swallow = self._swallow, False
            if swallow or not self.waiting:
                self._unwanted = False
                return
        turn = self._answering()
        reply, self.sender.reply = self.sender.reply, None
        if turn is not None and reply is not None:
            self._mouth.complete(turn, reply.text, done)
            self._mouth.end_item(turn)
            self._completed(turn, reply)
        self._mouth.forget()
        self.sender.pump()

    def _completed(self, turn: Turn, reply: Reply) -> None:
        """An agent that speaks may say that it is done while a call of it runs, or is asked about: there is more to come."""
        if reply.said is not None and self._question is not None:
            self._refuse("the agent does not wait for it")
        if (turn.notes or turn.files) and not turn.calls:
            self._follow(turn)
        elif reply.said is not None or not (turn.calls or self._question):
            self._mouth.end(turn)

    def _on_interrupt(self) -> None:
        """The user speaks into an answer. One to speech is over with that; one to a text goes on, and nobody hears it."""
        self._outlet.hush()
        self._mouth.forget()
        answering = self._question is not None and self._question.asked
        if self._question is not None and not answering:
            self._refuse("the user interrupted")
        reply = self.sender.reply
        if reply is not None and reply.said is None and not answering:
            self.sender.reply, self._swallow = None, True
        if not self.waiting:
            self._begin("listening", typed=False)
        self._unwanted = False
        self._listening.set()
        self.sender.pump()

    # --- calls and questions

    def _on_call(self, call: ToolCall) -> None:
        turn = self._answering()
        if turn is None:
            self._calls.decline(call.id, "INTERRUPTED: the user interrupted; it was not run")
            return
        made = self._calls.take(call)
        if made is None:
            return
        self._mouth.end_item(turn)
        if call.consent:
            self._ask(made, call, turn)
        else:
            self._run(made, turn)

    def _run(self, call: OpenCall, turn: Turn) -> None:
        turn.out = True
        turn.calls.add(call.key)
        self._calls.run(call, turn.key, spoken=not turn.typed)

    def _ask(self, call: OpenCall, wanted: ToolCall, turn: Turn) -> None:
        if self._question is not None:
            self._calls.refuse(call, "REJECTED: the user is being asked something else")
            return
        self._question = Question(call, turn)
        self._answer_due.set()
        concerns = f" ({', '.join(wanted.categories)})" if wanted.categories else ""
        self._outlet.say(Text(turn.key, wanted.consent + concerns, final=not turn.typed))
        turn.wrote = turn.wrote or turn.typed
        if turn.typed:
            self._asked()
        else:
            self._more_asked()

    def _more_asked(self) -> None:
        """Where there is speech, the agent may speak its question itself."""
        if self._question is not None and not self._question.asked:
            self._asking.set()

    def _asked(self) -> None:
        question = self._question
        if question is not None and not question.asked:
            question.asked = True
            self._mouth.end(question.turn)

    def _unanswered(self) -> None:
        question = self._question
        if question is not None:
            self._refuse("the user did not answer in time")
            self._mouth.end(question.turn)

    def _taken_question(self) -> Question | None:
        """The open question, which is not open any more."""
        question, self._question = self._question, None
        self._asking.stop()
        self._answer_due.stop()
        return question

    def _judge(self, question: Question, text: str, turn: Turn) -> bool:
        """The user's next words after a question: only a plain yes is one. Whether the agent answers to them in that turn."""
        agreed = plain_yes(text)
        reply = self.sender.reply
        if agreed:
            self._run(question.call, turn)
        else:
            self._calls.refuse(question.call, "REJECTED: the user did not agree")
        answers = agreed or not turn.typed or " ".join(normalise(text)) in _NO
        if answers and reply is not None:
            reply.turn = turn
        return answers

    def _refuse(self, why: str) -> None:
        question = self._taken_question()
        if question is not None:
            self._calls.refuse(question.call, f"REJECTED: {why}")

    def _on_given_up(self, id_: str, error: str) -> None:
        call = self._calls.given_up(id_)
        if call is None:
            return
        log.warning(
            "omnia: the facade has given up the call of %s: %.200s", call.name, error or "for no reason"
        )
        if self._question is not None and self._question.call is call:
            self._refuse("")

    # --- what is wrong

    def _on_failure(self, failure: Failure) -> None:
        code, said = failure.code, failure.error.said
        audio = self._outlet.calling() and code in (
            "DUPLEX_ERROR",
            "UNSATISFIABLE_FORMAT",
            *(("MEDIA_NOT_ENABLED", "RATE_LIMITED", "INVALID_MESSAGE") if "audio" in said else ()),
        )
        reply = self.sender.reply
        if code == "INVALID_MESSAGE" and "no pending tool call" in said:
            log.debug("omnia: a result came too late for the facade")
        elif code == "RATE_LIMITED" and "media rate" in said:
            log.warning("omnia: the facade has dropped audio: %.200s", said)
        elif code == "CREDENTIAL_EXPIRED":
            self.sender.back()
            self._outlet.expired(failure.error)
        elif audio:
            self._on_audio_failure(failure)
        elif self.sender.retried(code):
            pass
        elif reply is not None or self.waiting:
            self._refuse("the answer has failed")
            self.sender.reply = None
            turn = self._turn
            if turn is not None and not turn.ended and (reply is None or reply.turn is turn):
                self._fail(turn, failure)
            else:
                log.info("omnia: an answer that nobody waits for has failed: %s", code)
            self.sender.pump()
        else:
            self._outlet.report(failure, None)

    def _on_audio_failure(self, failure: Failure) -> None:
        """The audio session has failed, or there is none to be had."""
        lasting = failure.code in ("UNSATISFIABLE_FORMAT", "MEDIA_NOT_ENABLED")
        self._outlet.deaf(float("inf") if lasting else 0.0 if failure.code == "DUPLEX_ERROR" else DEAF_S)
        reply, turn = self.sender.reply, self._turn
        if reply is None or reply.said is None:
            self._refuse("the audio session has failed")
            self.sender.reply = None
        if turn is not None and not (turn.typed or turn.ended):
            self._fail(turn, failure)
        else:
            self._outlet.report(failure, None)
        self.sender.pump()

    def _fail(self, turn: Turn, failure: Failure | ProviderError) -> None:
        if self._turn is turn:
            self._turn = None
        self._outlet.hush()
        self._outlet.report(failure, turn.key)

    # --- turns

    def _begin(self, state: Literal["listening", "thinking"], *, typed: bool) -> Turn:
        """A new turn, and the end of the one before."""
        self._outlet.hush()
        self._hearing.stop()
        self._turns += 1
        turn = self._turn = Turn(f"turn-{self._turns}", typed)
        self._outlet.emit(TurnBegin(turn.key, state))
        return turn
