"""The conversation with an Omnia facade: its messages on one side, turns of the port on the other. No sockets here.

The facade's messages carry no name of the answer that they belong to. So one answer is in flight at a time (`Sender.reply`): what
comes belongs to it, until its `done` or an error.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from vrt_host.agents import omnia_messages as messages
from vrt_host.agents.alarm import Alarm
from vrt_host.agents.base import Heard, Json, Text, Tool, ToolResult, Transcript, TurnBegin, TurnState
from vrt_host.agents.omnia_calls import Calls, OpenCall
from vrt_host.agents.omnia_errors import UNTAKEN, of_audio
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
from vrt_host.agents.omnia_question import Asker, Question, plain_no
from vrt_host.agents.omnia_sender import Sender
from vrt_host.agents.omnia_turn import Outlet, Reply, Said, Turn
from vrt_host.agents.provider import ProviderError
from vrt_host.consent import plain_yes

log = logging.getLogger(__name__)

HEARD_S = 0.8
"""No more of the user's words for so long: they are complete."""
LISTEN_S = 12.0
"""A spoken turn in which nothing comes is over: the agent may not have been meant."""
DEAF_S = 30.0
"""An audio session that was refused is tried again after so long."""
_HEARD_CHARS = 8_192
"""Of the user's words in one turn."""


class Dialogue:
    """One session's conversation."""

    def __init__(self, outlet: Outlet, options: Options, tools: Sequence[Tool], context: Json) -> None:
        self._outlet = outlet
        self._disclosure = options.disclosure
        self._disclosed = False
        self._calls = Calls(outlet, tools, options.tool_timeout_s)
        self._mouth = Mouth(outlet, options.output_rate)
        self._asker = Asker(outlet, self._calls, self._mouth)
        self.sender = Sender(outlet, options, context, lambda: self._turn)
        self._turns = 0
        self._turn: Turn | None = None
        self._swallow = False
        """A `done` may come that belongs to an answer which was interrupted."""
        self._unwanted = False
        """The device has ended a spoken turn before its answer came."""
        self._done: Done | None = None
        """What came last, if it was that."""
        self._complaints: set[str] = set()
        """Codes of errors about nothing that were told, since something went well."""
        self._hearing = Alarm(outlet.later, self._heard_out)
        self._listening = Alarm(outlet.later, self._deserted)

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
        self._complaints.clear()
        if not hello.resumed:
            self._drop(
                ProviderError("gone", "the session was lost with the connection", advice="say it again")
            )
        if hello.ai_disclosure and self._disclosure:
            if not self._disclosed:
                self._disclosed = True
                self._disclose()
            self._outlet.send(messages.DISCLOSURE_ACK)
        self.sender.pump()

    def _disclose(self) -> None:
        turn = self._turn
        if turn is None or turn.ended:
            turn = self._begin("thinking", typed=True)
            self._mouth.write(turn, self._disclosure)
            self._mouth.end(turn)
        else:  # what the user has begun to say is not ended by it
            turn.wrote = turn.wrote or turn.typed
            self._outlet.say(Text(turn.key, f"{self._disclosure}\n", final=not turn.typed))

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
        self.sender.given_up(untaken=reply is not None and not reply.arrived)
        self._calls.lost()
        self._swallow = self._unwanted = False
        self._asker.refuse("")
        turn = self._turn
        if turn is None or turn.ended or turn.calls:
            return
        if (reply is not None and reply.turn is turn) or self.waiting:
            self._fail(turn, error)

    def close(self) -> None:
        """The session has ended."""
        self._calls.close()
        self.sender.close()
        self._asker.close()
        self._hearing.stop()
        self._listening.stop()

    # --- what the user and the device do

    def user_text(self, text: str) -> None:
        """The user typed."""
        question = self._asker.taken()
        turn = self._begin("thinking", typed=True)
        if question is None or not self._judge(question, text, turn):
            self.sender.add(Said(turn, [text]))

    def interrupted(self, key: str, heard: Sequence[Heard]) -> None:
        """The turn is dead. The facade cannot be told: what it still sends of the answer is dropped."""
        question = self._asker.open
        if question is not None and question.turn.key == key:
            self._asker.refuse("the user interrupted")
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
            self._listening.set(LISTEN_S)
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
            self._listening.set(LISTEN_S)
        turn.overdue = turn.overdue or result.code == "TIMEOUT"
        turn.files += settled.files
        turn.notes += notes
        if turn.notes and not turn.calls and self.sender.reply is None:
            self._follow(turn)

    def _follow(self, turn: Turn) -> None:
        """A message that nobody typed: results and files that the facade has to know of, to go on in this turn."""
        said = Said(turn, [], turn.notes or ["(What the tool gave:)"], turn.files)
        turn.notes, turn.files = [], []
        self.sender.add(said)

    # --- the facade

    def feed(self, message: Incoming) -> None:
        """One message of the facade's."""
        before, self._done = self._done, message if isinstance(message, Done) else None
        match message:
            case Chunk(text, user=True):
                self._on_heard(text)
            case Chunk(text):
                self._on_chunk(text)
            case MediaChunk():
                self._on_media(message)
            case Done():
                if message != before or self.sender.reply is not None:  # else it came twice
                    self._on_done(message)
            case ToolCall():
                self._on_call(message)
            case GivenUp(id_):
                self._on_given_up(id_)
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
        self._complaints.clear()
        if len(turn.heard) < _HEARD_CHARS:
            turn.heard = (turn.heard + text)[:_HEARD_CHARS]
            self._outlet.emit(Transcript(turn.key, "user", turn.heard.strip(), final=False))
        self._hearing.set(HEARD_S)
        self._listening.set(LISTEN_S)

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
        question = self._asker.open
        if question is None or question.turn is turn:
            return
        if not (question.turn.typed or question.turn.heard or question.before):
            question.before = turn, len(turn.heard)
            return
        if words := question.words(turn).strip():
            self._asker.taken()
            self._judge(question, words, turn)

    def _deserted(self) -> None:
        self._unwanted = False
        self._heard_out()
        turn = self._turn
        if turn is None or turn.typed or turn.calls or self._asker.open is not None:
            return
        reply = self.sender.reply
        if reply is None or reply.turn is not turn:
            self._mouth.end(turn)

    def _answering(self) -> Turn | None:
        """The turn to which what the facade says now belongs; None: nobody hears it."""
        self._complaints.clear()
        if self._turn is not None and not self._asker.doubtful(self._turn):
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
            if self._asker.open is not None:
                self._asker.open.turn = turn
        turn.out = True
        return turn

    def _on_chunk(self, text: str) -> None:
        turn = self._answering()
        if self.sender.reply is not None:
            self.sender.reply.text.add(text)
        if turn is not None and text:
            self._mouth.write(turn, text)
            self._asker.more()

    def _on_media(self, chunk: MediaChunk) -> None:
        turn = self._answering()
        if turn is not None:
            self._mouth.media(turn, chunk)
            self._asker.more()

    def _on_done(self, done: Done) -> None:
        if self.sender.reply is None and not (done.text or done.media):
            swallow, self._swallow = self._swallow, False
            if swallow or not self.waiting:
                self._unwanted = False
                return
        turn = self._answering()
        reply, self.sender.reply = self.sender.reply, None
        if turn is not None and reply is not None:
            self._mouth.complete(turn, reply.text.whole, done)
            self._mouth.end_item(turn)
            self._completed(turn, reply)
        self._mouth.forget()
        self._calls.answer_over()
        self.sender.pump()

    def _completed(self, turn: Turn, reply: Reply) -> None:
        """An agent that speaks may say that it is done while a call of it runs, or is asked about: there is more to come."""
        if reply.said is not None:
            self._asker.refuse("the agent does not wait for it")
        if (turn.notes or turn.files) and not turn.calls:
            self._follow(turn)
        elif reply.said is not None or not (turn.calls or self._asker.open):
            self._mouth.end(turn)

    def _on_interrupt(self) -> None:
        """The user speaks into an answer. One to speech is over with that; one to a text goes on, and nobody hears it."""
        self._outlet.hush()
        self._mouth.forget()
        answering = self._asker.open is not None and self._asker.open.asked
        if not answering:
            self._asker.refuse("the user interrupted")
        reply = self.sender.reply
        if reply is not None and reply.said is None and not answering:
            self.sender.reply, self._swallow = None, True
        if not self.waiting:
            self._begin("listening", typed=False)
        self._unwanted = False
        self._listening.set(LISTEN_S)
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
            self._asker.ask(made, call, turn)
        else:
            self._run(made, turn)

    def _run(self, call: OpenCall, turn: Turn) -> None:
        turn.out = True
        turn.calls.add(call.key)
        self._calls.run(call, turn.key, spoken=not turn.typed)

    def _judge(self, question: Question, text: str, turn: Turn) -> bool:
        """The user's next words after a question: only a plain yes is one. Whether the agent answers to them in that turn."""
        agreed = plain_yes(text)
        reply = self.sender.reply
        if agreed:
            self._run(question.call, turn)
        else:
            self._calls.refuse(question.call, "REJECTED: the user did not agree")
        answers = agreed or not turn.typed or plain_no(text)
        if answers and reply is not None:
            reply.turn = turn
        return answers

    def _on_given_up(self, id_: str) -> None:
        call = self._calls.given_up(id_)
        if call is None:
            return
        log.warning("omnia: the facade has given up the call of %s", call.name)
        if self._asker.open is not None and self._asker.open.call is call:
            self._asker.refuse("")

    # --- what is wrong

    def _on_failure(self, failure: Failure) -> None:
        code, said = failure.code, failure.error.said
        audio = self._outlet.calling() and code in (
            "DUPLEX_ERROR",
            "UNSATISFIABLE_FORMAT",
            *(("MEDIA_NOT_ENABLED", "RATE_LIMITED", "INVALID_MESSAGE") if of_audio(said) else ()),
        )
        reply = self.sender.reply
        if code == "INVALID_MESSAGE" and "no pending tool call" in said:
            log.debug("omnia: a result came too late for the facade")
        elif code == "RATE_LIMITED" and "media rate" in said:
            if self._complains("media rate"):
                log.warning("omnia: the facade has dropped audio: it takes no more at once")
        elif code == "CREDENTIAL_EXPIRED":
            self.sender.back()
            self._outlet.expired(failure.error)
        elif audio:
            self._on_audio_failure(failure)
        elif self.sender.retried(code):
            pass
        elif reply is not None or self.waiting:
            self._asker.refuse("the answer has failed")
            self.sender.given_up(untaken=code in UNTAKEN)
            turn = self._turn
            if turn is not None and not turn.ended and (reply is None or reply.turn is turn):
                self._fail(turn, failure)
            else:
                log.info("omnia: an answer that nobody waits for has failed: %s", code)
            self.sender.pump()
        elif self._complains(code):
            self._outlet.report(failure, None)

    def _complains(self, of: str) -> bool:
        """Whether this is the first of its kind since something went well."""
        new = of not in self._complaints
        self._complaints.add(of)
        return new

    def _on_audio_failure(self, failure: Failure) -> None:
        """The audio session has failed, or there is none to be had."""
        lasting = failure.code in ("UNSATISFIABLE_FORMAT", "MEDIA_NOT_ENABLED")
        anew = failure.code == "DUPLEX_ERROR" and self._complains("DUPLEX_ERROR")
        self._outlet.deaf(float("inf") if lasting else 0.0 if anew else DEAF_S)
        reply, turn = self.sender.reply, self._turn
        if reply is None or reply.said is None:
            self._asker.refuse("the audio session has failed")
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
        self._calls.answer_over()
        self._turns += 1
        turn = self._turn = Turn(f"turn-{self._turns}", typed)
        self._outlet.emit(TurnBegin(turn.key, state))
        return turn
