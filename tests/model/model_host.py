"""The host: the real server, seats, connections, sessions and turns, on a loop whose clock is moved by hand.

Only the sockets are left out. The agent says what it is told to and notes what it hears.
"""

import json
from collections import Counter

from faulty_wire import HostLink
from hand_loop import HandLoop
from vrt_host.agents import base
from vrt_host.config import ServerConfig, TurnLimits
from vrt_host.errors import AgentStartError
from vrt_host.seat import Seat
from vrt_host.server import Host
from vrt_host.session import Limits, State

LIMITS = Limits(resume_window_s=10, heartbeat_s=6, kept_messages=48)
TURN_LIMITS = TurnLimits(agent_silence=15)
START_S = 5000.0
NEW_TYPE = "x-new"  # of a message that its receiver does not know


class ModelAgent(base.Agent):
    """What happened in one session, as its host sees it; `sent` and `handled` are the two numbered streams."""

    name = "model"

    def __init__(self, host, witness, numbers, answers):
        """`numbers()`: one that was not there before. `answers`: text -> what it says to that, see `perform`."""
        self.host = host
        self.witness = witness
        self.numbers = numbers
        self.answers = answers
        self.turn = None  # the key of the last turn begun
        self.ended = True  # and whether we have said all of it
        self.calls = []
        self.results = {}  # call -> ToolResult
        self.texts = []
        self.cut = Counter()  # turn -> how often we heard that it was interrupted
        self.sent = []
        self.handled = []
        self.call_ids = {}  # public id -> our key

    async def start(self, session, port):
        if self.host.wire.now < self.host.starts_at:
            raise AgentStartError("the model is not there")
        self.host.agents.append(self)
        self.runner = port
        self.session = port.session
        self.witness.opened(self)

    def user_text(self, text):
        self.texts.append(text)
        if text in self.answers:
            self.begin()
            self.perform(*self.answers[text])

    def user_audio(self, payload):
        pass

    def interrupted(self, turn, heard):
        self.cut[turn] += 1
        if turn == self.turn:
            self.ended = True

    def tool_result(self, turn, result):
        self.witness.result(self, result)

    # --- what it says

    def begin(self, state="thinking"):
        self.turn, self.ended = f"t{self.numbers()}", False
        self.emit(base.TurnBegin(self.turn, state))

    def perform(self, parts, ended):
        """`parts`: ("say", messages), ("speak", frames), ("call", tool) or ("look", calls)."""
        for what, value in parts:
            getattr(self, what)(value)
        if ended:
            self.end()

    def say(self, count=1):
        for _ in range(count):
            text = f"text {self.numbers()}"
            self.emit(base.Transcript(self.turn, "agent", text, True), base.Text(self.turn, text))

    def speak(self, frames):
        """Audio of `frames` * 20 ms; each frame begins with a number of its own."""
        item = f"i{self.numbers()}"
        payloads = [self.numbers().to_bytes(4, "big") + bytes(156) for _ in range(frames)]
        self.emit(
            base.AudioBegin(self.turn, item),
            *[base.Audio(self.turn, item, payload, whole=True) for payload in payloads],
            base.AudioEnd(self.turn, item),
        )
        return payloads[-1][:4]

    def call(self, name):
        key = f"c{self.numbers()}"
        self.calls.append(key)
        text = json.dumps({"key": key})
        self.emit(
            base.CallBegin(self.turn, key, name),
            base.CallDelta(self.turn, key, text),
            base.Call(self.turn, key, name, text),
        )
        return key

    def look(self, calls):
        for _ in range(calls):
            self.call("look")

    def end(self):
        if not self.ended:
            self.ended = True
            self.emit(base.TurnEnd(self.turn))

    def fail(self, recoverable):
        self.emit(base.AgentError("it failed", recoverable, self.turn if recoverable else None))

    def emit(self, *events):
        for event in events:
            self.runner.emit(event)

    def send_unknown(self):
        """Sends a message of a type that the device does not know."""
        session = self.session
        frame = session._numbered(NEW_TYPE, {})
        session.outbox.keep(frame)
        if session._link is not None:
            session._link.carry(frame)

    @property
    def alive(self):
        return self.session.state is not State.CLOSED


class ModelHost:
    def __init__(self, wire, witness, numbers, answers):
        self.wire = wire
        self.witness = witness
        self._of_agents = witness, numbers, answers
        self.starts_at = 0  # no agent gets ready before
        self.skew_ms = 0  # its clock runs ahead of the model's
        wire.accept = self._accept
        self.boot()

    def boot(self):
        """Started anew: no session has survived."""
        self.loop = HandLoop(self._time())
        self.agents = []
        self.links = []
        with self.loop.running():
            self.host = Host(ServerConfig(), self._agent, LIMITS, TURN_LIMITS, None)

    def stop(self):
        """In good order, as far as the network lets it."""
        with self.loop.running():
            self.loop.create_task(self.host.stop())
        self.loop.run()

    def step(self):
        loop = self.loop
        loop.now = self._time()
        with loop.running():
            for link in list(self.links):
                link.deliver()
                if link.over:
                    self.links.remove(link)
                    self.host._seats.discard(link.receiver)
                    link.receiver.gone()
        loop.run()
        assert not loop.faults, loop.faults

    @property
    def agent(self):
        """That of the newest session that is alive, or None."""
        return next((agent for agent in reversed(self.agents) if agent.alive), None)

    def _time(self):
        return START_S + (self.wire.now + self.skew_ms) / 1000

    def _agent(self):
        return ModelAgent(self, *self._of_agents)

    def _accept(self, line):
        link = HostLink(line)
        with self.loop.running():
            link.receiver = Seat(self.host, link)
        self.host._seats.add(link.receiver)
        self.links.append(link)
