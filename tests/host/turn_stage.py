"""What turns are tested on: a manager between a recording agent and a real session over a link that only records."""

import json

from vrt_host.agents.base import (
    PCMU,
    Abilities,
    Agent,
    Audio,
    AudioBegin,
    Call,
)
from vrt_host.config import TurnLimits
from vrt_host.protocol import wire
from vrt_host.runner import to_json
from vrt_host.session import Hello, Session, State
from vrt_host.tools import DeclaredTools
from vrt_host.turns import TurnManager

LOCK = {
    "name": "lock",
    "parameters": {
        "type": "object",
        "properties": {"door": {"enum": ["front", "back"]}},
        "required": ["door"],
        "additionalProperties": False,
    },
    "timeoutMs": 5000,
}
STATUS = {"name": "status"}
FRAME = bytes(160)  # 20 ms of mu-law


class RecordingAgent(Agent):
    """Notes what it is told; `answers` maps a method's name to what it does then."""

    name = "recording"

    def __init__(self, interruption="truncate"):
        self.abilities = Abilities(interruption=interruption)
        self.told = []
        self.answers = {}

    async def start(self, session, port):
        pass

    def _note(self, method, *args):
        self.told.append((method, *args))
        if method in self.answers:
            self.answers[method](*args)

    def user_text(self, text):
        self._note("user_text", text)

    def user_audio(self, payload):
        self._note("user_audio", payload)

    def interrupted(self, turn, heard):
        self._note("interrupted", turn, list(heard))

    def tool_result(self, turn, result):
        self._note("tool_result", turn, result)

    def context(self, value):
        self._note("context", value)

    def take(self):
        told, self.told = self.told, []
        return told


class FakeLink:
    def __init__(self):
        self.frames = []
        self.closed = None

    def carry(self, frame):
        self.frames.append(frame)

    def end(self, close):
        self.closed = close


class Stage:
    """Everything around one manager; `now` is moved by hand. Every server message is checked against its schema."""

    def __init__(self, hello=None, interruption="truncate", connect=True, admit=None, output=PCMU, **limits):
        self.now = 100.0
        self.agent = RecordingAgent(interruption)
        self.wakes = 0
        message = {"v": 1, "seq": 0, "type": "hello", "tools": [LOCK, STATUS], **(hello or {})}
        capabilities = tuple(message.get("capabilities", ()))
        self.session = Session(
            "s-1",
            "",
            Hello(message),
            input=to_json(PCMU),
            output=to_json(output),
            capabilities=capabilities,
            on_state=self._on_state,
        )
        self.notes = []
        self.manager = TurnManager(
            self.session,
            self.agent,
            DeclaredTools(message["tools"]),
            output,
            limits=TurnLimits(**limits),
            streams="tool-stream-v1" in capabilities,
            wake=self._wake,
            admit=admit or (lambda seconds: True),
            observe=lambda name, /, **fields: self.notes.append((name, fields)),
        )
        self.link = None
        self.seen = 0
        if connect:
            self.connect()

    def _wake(self):
        self.wakes += 1

    def _on_state(self, state):
        {
            State.CONNECTED: self.manager.resumed,
            State.PARKED: self.manager.parked,
            State.CLOSED: self.manager.close,
        }[state](self.now)

    def connect(self, seen=None):
        """A new link. `seen`: take in what follows as well, after the last of these messages."""
        resume = None if self.link is None else self.session.outbox.last
        if seen is not None:
            resume = max((message["seq"] for message in seen if isinstance(message, dict)), default=0)
        self.link = FakeLink()
        assert self.session.bind(self.link, resume, self.now)
        self.tick()
        if seen is None:
            self.take()

    def park(self):
        self.session.park(self.now)

    def tick(self, at=None):
        if at is not None:
            self.now = at
        self.manager.tick(self.now)

    def run_until(self, until):
        """Tick whenever the manager says so."""
        for _ in range(100_000):
            due = self.manager.deadline(self.now)
            if due is None or due > until:
                break
            self.tick(max(due, self.now))
        else:
            raise AssertionError("the manager asks to be called again and again")
        self.tick(until)

    def emit(self, *events):
        for event in events:
            self.manager.emit(event)
        self.tick()

    def say(self, type_, **members):
        self.manager.receive({"v": 1, "seq": 1, "type": type_, **members}, self.now)
        self.tick()

    def take(self):
        """The messages sent since the last call; audio as its payload."""
        frames, self.link.frames = self.link.frames, []
        taken = []
        for frame in frames:
            if isinstance(frame, str):
                message = json.loads(frame)
                wire.decode(frame, "server")
                taken.append(message)
            else:
                taken.append(frame[5:])
        return taken

    def kinds(self):
        """The same, as short words: states and types, `a` for a frame of audio."""
        return [word(message) for message in self.take()]


def word(message):
    if isinstance(message, bytes):
        return "a"
    if message["type"] == "turn.state":
        return message["state"]
    if message["type"] == "interrupted":
        return f"interrupted {message['epoch']} {message['reason']}"
    return message["type"]


def only(messages, type_):
    return [message for message in messages if isinstance(message, dict) and message["type"] == type_]


def speak(turn, seconds, item="i"):
    return [AudioBegin(turn, item), Audio(turn, item, bytes(int(seconds * 8000)))]


def call(turn="t", key="c", name="status", arguments="{}"):
    return Call(turn, key, name, arguments)
