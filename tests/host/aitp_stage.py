"""A server and a device, both played by a test, around an `aitp_dialogue.Dialogue` with a clock of the test's; all that it sends is judged."""

import json

from peers import vectors
from vrt_host.agents import aitp_messages as messages
from vrt_host.agents.aitp_dialogue import Dialogue
from vrt_host.agents.base import AgentError, Call, Text, Tool, ToolResult, TurnBegin, TurnEnd

PAY = Tool("pay", "Pay.", confirm="button", effect="irreversible")
LOCK = Tool("lock")
SPOKEN = Tool("unlock", confirm="voice")


class Stage:
    """A dialogue between a server and a device, both played by the test."""

    def __init__(self, **options):
        self.clock = 100.0
        self.events = []
        self.sent = []
        self.soonest = []
        self.notes = []
        self.contexts = 0
        self._alive = None
        self.dialogue = Dialogue(self, (PAY, LOCK, SPOKEN), **options)
        self.dialogue.connected()

    # --- the outlet

    def now(self):
        return self.clock

    def idle(self):
        return self._alive is None

    def emit(self, event):
        self.events.append(event)
        if isinstance(event, TurnEnd) and event.turn == self._alive:
            self._alive = None
        if isinstance(event, TurnBegin) or (isinstance(event, AgentError) and event.turn == self._alive):
            old, self._alive = self._alive, event.turn if isinstance(event, TurnBegin) else None
            if old is not None:
                self.soonest.append(lambda: self.dialogue.interrupted(old, []))

    say = emit

    def hush(self):
        pass

    def reopen(self, turn):
        return False

    def send(self, type_, payload):
        assert vectors.errors("aitp", "client", messages.message(type_, payload)) == []
        self.sent.append((type_, payload))

    def report(self, text, turn=None, *, final=False, advice=None):
        self.emit(AgentError(text, recoverable=not final, turn=turn))

    def note(self, text, advice):
        self.notes.append(text)

    def soon(self, work):
        self.soonest.append(work)

    def context_changed(self):
        self.contexts += 1

    # --- the two

    def settle(self):
        """What the turn manager does between two messages."""
        while self.soonest:
            self.soonest.pop(0)()

    def server(self, type_, **payload):
        self.dialogue.feed(messages.parse(json.dumps(messages.message(type_, payload))))
        self.settle()

    def answers(self, chunk="Yes.", *, done=True):
        self.server("AGENT_RESPONSE", chunk=chunk, done=done)

    def sounds(self, mime="audio/pcm;rate=24000"):
        self.server("AUDIO_STREAM", data="AAAAAA==", mimeType=mime)

    def state(self, event, **more):
        self.server("VOICE_STATE_EVENT", event=event, **more)

    def event(self, kind, message="", **data):
        self.server("SYSTEM_EVENT", kind=kind, message=message, data=data)

    def transcript(self, role, text):
        self.event("transcript", role=role, text=text)

    def call(self, name="lock", id_="tc_1", **args):
        self.server("TOOL_CALL", callId=id_, name=name, args=args)

    def types(self, text="Hello"):
        """As the turn manager does: what is in flight is interrupted first."""
        if self._alive is not None:
            self.interrupts()
        self.dialogue.user_text(text)
        self.settle()

    def interrupts(self):
        old, self._alive = self._alive, None
        self.dialogue.interrupted(old, [])

    def result(self, output=None, *, code=None, message="", key=-1):
        call = self.all(Call)[key]
        self.dialogue.tool_result(call.turn, ToolResult(call.call, code is None, output, code, message))
        self.settle()

    def later(self, seconds):
        """Time goes by."""
        for _ in range(round(seconds / 0.1)):
            self.clock += 0.1
            self.dialogue.tick()
            self.settle()

    # --- what came of it

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def types_sent(self):
        return [type_ for type_, _ in self.sent]

    def last(self, type_):
        return [payload for name, payload in self.sent if name == type_][-1]

    @property
    def said(self):
        return "".join(text.text for text in self.all(Text))
