"""What AITP's messages mean for turns: a `Dialogue` without sockets and clock.

The protocol names no answers. What the server sends belongs to the answer that it owes, until it says that this is done
(`done`, `turn_complete`, `interrupted`, `waiting_for_input`; live voice may say so twice). So an answer that was interrupted leaves
the dialogue *dead*: what still comes is dropped until the server says so, and what the user types meanwhile waits for that, since a
server answers one thing at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from vrt_host.agents import aitp_calls as calls
from vrt_host.agents import aitp_messages as messages
from vrt_host.agents.aitp_approvals import Approvals, response
from vrt_host.agents.aitp_messages import (
    AgentResponse,
    ApprovalRequest,
    AudioStream,
    Frame,
    Message,
    SystemEvent,
    ToolCall,
    VoiceState,
)
from vrt_host.agents.aitp_sound import Sound, Unplayable
from vrt_host.agents.aitp_turn import Outlet, Turn
from vrt_host.agents.aitp_turns import Turns
from vrt_host.agents.base import (
    Audio,
    AudioBegin,
    Call,
    Heard,
    Text,
    Tool,
    ToolResult,
    Transcript,
    TurnState,
)

log = logging.getLogger(__name__)

Reason = Literal["user_stop", "vad", "timeout"]

_EMPTY_S = 3.0
"""So long an answer that was said to be done and empty may still begin: live voice says twice that the one before is done."""
_HELD_S = 5.0
"""How long a text waits for what the server says to a refusal, and the end of an answer in text for its sound."""
_LAST_S = 1.0
"""So long that may be in coming once it has begun."""
_ANSWERED_S = 1.0
"""An answer to the server's question is complete when no more words have come for so long."""
_QUESTION_S = 2.0
"""So long after a question no words that come are an answer to it, where nobody but the server hears when they were said."""
_REPEATED_S = 10.0
"""A server without voice complains of each piece of audio, also while it answers a text."""
_HEARD_BEFORE = "[Transcription] "
"""What a server without a live model begins its answer to a recording with."""


class Dialogue(Turns):
    """One session's conversation, over any number of connections."""

    def __init__(
        self, outlet: Outlet, tools: Sequence[Tool], *, pending_results: bool = True, ears: bool = False
    ) -> None:
        """`pending_results`: a call that waits for the user has a TOOL_RESULT that says so. `ears`: speech is told by `speech_began`."""
        super().__init__(outlet)
        self._tools = {tool.name: tool for tool in tools}
        self._pending_results = pending_results
        self._ears = ears
        self._calls = calls.ServerCalls()
        self._approvals = Approvals()
        self._asked_at = float("-inf")
        self._ambient = ("", 0.0)
        """The last error that was about no answer, and when it was last told."""
        self._unplayable = False

    # --- for the owner of the connections

    @property
    def waiting(self) -> bool:
        """Whether `tick` is needed."""
        turn = self._turn
        return self._dead or bool(self._inputs or self._approvals) or (turn is not None and not turn.ended)

    def connected(self) -> None:
        """There is a session of the server's, which knows nothing but what it is told from now on."""
        if self._calls.connection:
            self.history.renew(sum(said["modality"] == "text" for said in self._inputs))
        self._calls.connected()
        self._online = True
        self._unplayable = False
        self._news()
        self._send_inputs()

    def lost(self, unsent: Sequence[Frame] = ()) -> str | None:
        """The connection is gone, and these inputs did not arrive; the key of the turn that ends with it.

        A turn goes on where nothing is lost: a call runs, and its result can be told later; what was typed can be sent later.
        """
        self._inputs[:0] = unsent
        self._online = self._dead = False
        self._echoes = 0
        if self._approvals.asked or self._approvals.again:
            said = "the connection was lost, and with it the question: a yes does nothing now"
            self._outlet.report(said, advice="ask again")
        self._approvals.forget()
        turn = self._turn
        if turn is not None and unsent and not turn.out:
            turn.asked = False
        if turn is None or turn.ended or turn.calls or (self._inputs and not turn.asked):
            return None
        self._drop(turn)
        return turn.key

    def unreachable(self) -> str | None:
        """There is no connection yet: what the user waits for will not come; the key of that turn."""
        self._inputs.clear()
        turn = self._turn
        if turn is None or turn.ended or turn.calls:
            return None
        self._drop(turn)
        return turn.key

    # --- the user and the device

    def user_text(self, text: str) -> None:
        """The user typed; a response in flight was interrupted before."""
        turn = self._begin("thinking", typed=True)
        if (length := messages.length(text)) > messages.TEXT_CHARS:
            self._drop(turn)
            said = f"a text of {length:,} characters was not sent: the server takes {messages.TEXT_CHARS:,}"
            self._outlet.report(said, turn.key, advice="send a shorter one")
            return
        self.history.add("user", text)
        if self._approvals.asked:
            answer = self._approvals.judge(text)
            self._settle(approved=answer == "yes")
            if answer != "other":
                self._ask(turn)
                return
            self._held_until = self._outlet.now() + _HELD_S
        self._input({"modality": "text", "content": text})

    def speech_began(self) -> None:
        """The user speaks, as this host's ear finds."""
        self.speaking = True
        self._late_until = 0.0
        turn = self._turn
        if turn is not None and not (turn.ended or turn.out or turn.early) and (turn.typed or not turn.asked):
            return  # typed and not answered: part of it
        if turn is not None and not turn.out:
            turn.left = True  # the user goes on after a pause: nobody was talking
        elif turn is not None and not (turn.ended and self._outlet.idle()):
            self._leave(turn)
        self._begin("listening")

    def speech_ended(self, reason: Reason | None, recording: Frame | None = None) -> None:
        """The user has finished; reason None: it was nothing. `recording`: the USER_INPUT that it is."""
        self.speaking = False
        turn = self._turn
        listening = turn is not None and not (turn.ended or turn.out or turn.asked or turn.typed)
        if reason is None:
            if listening and turn is not None and not turn.heard:
                self._finish(turn)
            return
        if recording is not None:
            if listening and turn is not None:
                turn.recorded = True
            self._input(recording)
        else:
            self._outlet.send("VOICE_INPUT_END", {"reason": reason})
        if listening and turn is not None:
            self._outlet.emit(TurnState(turn.key, "thinking"))
            if recording is None:
                self._ask(turn)

    def interrupted(self, key: str, heard: Sequence[Heard]) -> None:
        """The turn is dead."""
        if self._approvals.asked_in(key):
            self._settle(approved=False)
        turn = self._turns.get(key)
        if turn is not None:
            self._leave(turn)

    def tool_result(self, key: str, result: ToolResult) -> None:
        """A call is settled."""
        call = self._calls.pop(result.call)
        if call is None:
            return
        turn = self._turns.get(key)
        if turn is not None:
            turn.calls.discard(result.call)
            turn.overdue = turn.overdue or result.code == "TIMEOUT"
        if turn is not None and result.code == "INTERRUPTED":
            self._leave(turn)  # before it has the result, which it would answer
        alive = turn if turn is self._turn else None
        words = calls.words(call.name, result)
        if call.connection != self._calls.connection or not self._online:
            self.history.tell("tool", words)
            self._outlet.context_changed()
            if alive is not None and not alive.calls:
                self._drop(alive)
                said = f"the connection was lost while {call.name} ran, and the server learns what came of it"
                self._outlet.report(said, alive.key, advice="ask again")
            return
        self.history.add("tool", words)
        self._outlet.send(*calls.answer(call, result))
        if alive is not None:
            self._ask(alive)
            if alive.parted and not alive.calls:
                alive.ends_at = self._outlet.now() + _HELD_S

    # --- the server

    def feed(self, message: Message) -> None:
        """One message of the server."""
        self._news()
        match message:
            case AgentResponse():
                self._on_text(message)
            case AudioStream():
                self._on_sound(message.data, message.mime_type)
            case ToolCall():
                self._on_call(message)
            case ApprovalRequest():
                self._on_approval(message)
            case VoiceState():
                self._on_voice_state(message)
            case SystemEvent():
                self._on_event(message)

    def _responding(self, *, late: bool = True) -> Turn | None:
        """The turn that gets what the server sends now; None: it is dead. `late`: it may be the rest of one that is."""
        turn = self._turn
        if self._dead:
            return None
        fresh = turn is None or turn.ended or not turn.asked
        if late and fresh and self._outlet.now() < self._late_until:
            self._expect_late()  # until there is a pause
            return None
        self._echoes = 0
        if turn is None or turn.ended:
            turn = self._go_on()
            self._approvals.said_more(turn.key)
        turn.out, turn.parted, turn.ends_at = True, False, None
        return turn

    def _on_text(self, said: AgentResponse) -> None:
        asked = self._turn is not None and not (self._turn.ended or self._turn.out or self._turn.typed)
        if said.chunk.startswith(_HEARD_BEFORE) and not said.done and asked:
            self._on_heard(said.chunk.removeprefix(_HEARD_BEFORE))
        elif said.chunk and (turn := self._responding()) is not None:
            self._tell_heard(turn, now=True)
            turn.texted = True
            turn.speak(said.chunk)
            self._approvals.distract()
            self._outlet.say(Text(turn.key, said.chunk))
        if said.audio_data:
            self._on_sound(said.audio_data, messages.sound_type(messages.OUTPUT_RATE))
        if said.done:
            self._on_done()

    def _on_sound(self, data: bytes, mime: str) -> None:
        turn = self._responding()
        if turn is None:
            return
        self._tell_heard(turn, now=True)
        if not turn.open:
            turn.item, turn.open, self._sound = f"item-{next(self._keys)}", True, Sound()
            self._outlet.say(AudioBegin(turn.key, turn.item))
        try:
            pcm = self._sound.feed(data, mime)
        except Unplayable as error:
            if not self._unplayable:
                self._unplayable = True
                self._outlet.report(
                    str(error), advice="let the server send PCM or WAV: the rest is not heard"
                )
            return
        if pcm and turn.item is not None:
            self._outlet.say(Audio(turn.key, turn.item, pcm))
        if turn.done:
            turn.ends_at = self._outlet.now() + _LAST_S

    def _on_done(self) -> None:
        """The server says that an answer is over."""
        turn = self._turn
        if self._dead:
            self._revive()
        elif turn is None or turn.ended:
            pass
        elif turn.calls:
            turn.parted = True
        elif self._inputs:
            self._held_until = 0.0
            self._send_inputs()
        elif turn.out and turn.recorded and turn.item is None:
            turn.done, turn.ends_at = True, self._outlet.now() + _HELD_S
        elif turn.out:
            self._finish(turn)
        elif turn.asked:
            turn.ends_at = self._outlet.now() + _EMPTY_S

    def _on_voice_state(self, said: VoiceState) -> None:
        if said.event != "interrupted":
            self._on_done()
            return
        if self._echoes or self._dead:
            self._echoes = max(0, self._echoes - 1)
            self._held_until = 0.0
            if self._dead:
                self._revive()
            self._send_inputs()
            return
        turn = self._turn
        if turn is None or not turn.out or (turn.ended and self._outlet.idle()):
            return
        turn.left = True  # the server has heard the user by itself
        self._outlet.hush()
        self._expect_late()
        self._begin("listening")

    def _on_event(self, said: SystemEvent) -> None:
        turn = self._turn if self._turn is not None and not self._turn.ended else None
        match said.kind:
            case "error":
                self._on_error(said.message or "the server has an error and does not say which", turn)
            case "disconnect":
                self._outlet.report(
                    f"the server ends the session: {said.message or 'no reason given'}", final=True
                )
            case "waiting":
                self._outlet.note(f"the server asks for patience: {said.message}", "it is waited for")
                if turn is not None and turn.asked and not turn.out:
                    self._outlet.emit(TurnState(turn.key, "thinking"))
            case "transcript":
                self._on_transcript(said)
            case "tools_effective":
                self._calls.without(said.ignored_tools())
            case _:
                told = f"the server says {said.kind}: {said.message} {said.data or ''}"
                self._outlet.note(told, "a device cannot follow that")

    def _on_error(self, text: str, turn: Turn | None) -> None:
        if self._dead:
            self._revive()
        now = self._outlet.now()
        if turn is None or not turn.asked or turn.calls:
            self._ambient = text, now
            self._outlet.report(text)
        elif self._ambient[0] == text and now - self._ambient[1] < _REPEATED_S:
            self._ambient = text, now  # it goes on, and is about the microphone
        elif turn.out:
            turn.ends_at = self._outlet.now() + _EMPTY_S
            self._outlet.report(text)
        else:
            self._drop(turn)
            self._outlet.report(text, turn.key)

    def _on_transcript(self, said: SystemEvent) -> None:
        found = said.transcript()
        if found is None:
            return
        role, text = found
        if role == "user":
            self._on_heard(text)
            return
        turn = self._turn
        if (
            turn is None
            or not (turn.asked or turn.heard or turn.out)
            or (turn.ended and not self._reopen(turn))
        ):
            return
        if self._responding() is not None:
            turn.captioned = True
            turn.speak("" if turn.texted else text)
            self._outlet.say(Transcript(turn.key, "agent", text, final=False, item=turn.item))

    def _on_heard(self, text: str) -> None:
        """The next of the user's words."""
        now, before = self._outlet.now(), self._heard_at
        self._heard_at = now
        self._late_until = 0.0
        turn = self._turn
        if turn is not None and turn.typed and not turn.ended:
            return
        early = self._approvals.asked and (self._ears or now - self._asked_at < _QUESTION_S)
        if turn is None or turn.ended or (turn.early and not early and now - before >= _ANSWERED_S):
            if not text.strip() or self._dead:
                return
            turn = self._begin("listening")
            turn.early = early
        turn.heard = (turn.heard + text)[: messages.TEXT_CHARS]
        if not turn.out:
            self._outlet.emit(Transcript(turn.key, "user", turn.heard.strip(), final=False))

    # --- calls and approvals

    def _on_call(self, said: ToolCall) -> None:
        if not self._calls.is_new(said):
            log.debug("aitp: a call was made twice; it runs once")
            return
        turn = self._responding(late=False)
        if turn is None:
            gone = ToolResult("", False, code="INTERRUPTED", message="the user interrupted; it was not run")
            self._outlet.send("TOOL_RESULT", calls.outcome(said.call_id, gone))
            return
        self._end_item(turn)
        turn.asked = True  # it goes on with the result
        key = f"call-{next(self._keys)}"
        self._calls.add(key, said)
        turn.calls.add(key)
        self._outlet.emit(Call(turn.key, key, said.name, said.args))
        tool = self._tools.get(said.name)
        if tool is not None and tool.confirm == "button" and tool.asks(said.args):
            self._outlet.soon(lambda: self._announce(key, tool))

    def _announce(self, key: str, tool: Tool) -> None:
        """The device asks its user; what was refused at once, for its arguments, is not asked about."""
        call = self._calls.get(key)
        if call is None or call.connection != self._calls.connection or not self._online:
            return
        call.announced = True
        if self._pending_results:
            self._outlet.send("TOOL_RESULT", calls.pending(call))
        self._outlet.send("APPROVAL_REQUEST", calls.request(call, tool))

    def _on_approval(self, request: ApprovalRequest) -> None:
        if not self._approvals.is_new(request):
            log.debug("aitp: an approval was asked for twice; the user is asked once")
        elif self._dead or not self._approvals.add(request):
            self._outlet.send("APPROVAL_RESPONSE", response(request.call_id, approved=False))
        else:
            self._ask_user()

    def _ask_user(self) -> None:
        """Ask the first question, if there is peace for it."""
        turn = self._turn
        if not self._approvals.unasked or self._dead or self.speaking or (turn is not None and turn.calls):
            return
        if turn is None or turn.ended:
            if self._approvals.again and not self._outlet.idle():
                return
            turn = self._go_on()
        elif self._approvals.again:
            return
        words = self._approvals.ask(turn.key)
        turn.speak(f" {words}")
        turn.texted = True
        self._outlet.say(Text(turn.key, words))
        self._finish(turn)
        self._asked_at = self._outlet.now()

    def _settle(self, *, approved: bool) -> None:
        """The first question is answered; the next is asked when there is peace."""
        self._outlet.send("APPROVAL_RESPONSE", self._approvals.settle(approved=approved))

    def _judge_speech(self, turn: Turn) -> None:
        """What the user says is the answer to the server's question, once it is complete."""
        if self.speaking or not turn.heard.strip() or self._outlet.now() - self._heard_at < _ANSWERED_S:
            return
        if turn.early:  # transcripts are late: these words answer something else
            return
        if self._approvals.asked and not self._approvals.asked_in(turn.key):
            self._settle(approved=self._approvals.judge(turn.heard) == "yes")
            if not turn.ended:
                self._ask(turn)

    # --- time

    def tick(self) -> None:
        """Do what is due."""
        now = self._outlet.now()
        if self._approvals:
            if self._outlet.idle():
                self._approvals.heard_out(now)
            if self._approvals.overdue(now) and not self.speaking:
                self._settle(approved=False)
            elif self._turn is not None and not self._turn.typed:
                self._judge_speech(self._turn)
            self._ask_user()
        self._wait(now)
