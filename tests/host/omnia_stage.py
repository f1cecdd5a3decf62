"""A dialogue of the agent `omnia` on a stage: its port, its facade and its clock are a test's."""

from peers import vectors
from vrt_host.agents.base import Call, Text, Tool, ToolResult, Transcript, TurnBegin, TurnEnd
from vrt_host.agents.omnia_dialogue import Dialogue
from vrt_host.agents.omnia_errors import judged
from vrt_host.agents.omnia_messages import Connected, Failure, MediaChunk, ToolCall
from vrt_host.agents.omnia_options import Options
from vrt_host.agents.provider import ProviderError

GONE = ProviderError("gone", "it closed the connection (1006)")
SOUND = bytes(4_800)


class Stage:
    """A dialogue, with a port and a facade that keep what they are told."""

    def __init__(self, *tools, context=None, connected=True, told="message", **options):
        self.events = []
        self.sent = []
        self.reports = []
        self.uploads = []
        self.cuts = 0
        self.audio = False
        self.deaf_s = None
        self.expiries = []
        self._now = 0.0
        self._timers = []
        self.options = Options(base_url="wss://h", agent="a", context=told, **options)
        self.dialogue = Dialogue(self, self.options, tools or (Tool("lock"),), context)
        if connected:
            self.connect()

    # the outlet

    def emit(self, event):
        self.events.append(event)

    say = emit

    def hush(self):
        pass

    def send(self, message):
        assert vectors.errors("omnia", "client", message) == []
        self.sent.append(message)

    def cut(self):
        self.cuts += 1

    def later(self, seconds, callback):
        timer = _Timer(self._now + seconds, callback)
        self._timers.append(timer)
        return timer

    def upload(self, files):
        self.uploads.append(files)

    def report(self, failure, turn):
        self.reports.append((failure, turn))

    def calling(self):
        return self.audio

    def deaf(self, seconds):
        self.deaf_s = seconds

    def expired(self, error):
        self.expiries.append(error)

    # the test

    def connect(self, id_="sess-1", *, resumed=False, disclosure=False):
        self.dialogue.connected(Connected(id_, 1 << 24, resumed, disclosure))

    def passes(self, seconds):
        """So much time goes by."""
        end = self._now + seconds
        while due := [one for one in self._timers if one.callback is not None and one.at <= end]:
            timer = min(due, key=lambda one: one.at)
            self._timers.remove(timer)
            self._now = timer.at
            timer.callback()
        self._now = end

    def types(self, text="Hello"):
        """As the turn manager has it: what is alive is interrupted first."""
        alive = self.alive()
        if alive is not None:
            self.dialogue.interrupted(alive, [])
        self.dialogue.user_text(text)

    def comes(self, *incoming):
        for message in incoming:
            self.dialogue.feed(message)

    def fails(self, code, message="what went wrong", **details):
        self.comes(Failure(code, judged(code, message, details)))

    def settles(self, key, output=None, *, code=None, message=""):
        turn = next(event.turn for event in self.all(Call) if event.call == key)
        self.dialogue.tool_result(turn, ToolResult(key, code is None, output, code, message))

    def alive(self):
        begun = self.all(TurnBegin)
        ended = {event.turn for event in self.all(TurnEnd)} | {turn for _, turn in self.reports}
        return begun[-1].turn if begun and begun[-1].turn not in ended else None

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def said(self):
        return "".join(event.text for event in self.all(Text)) + "".join(
            event.text for event in self.all(Transcript) if event.role == "agent"
        )

    def texts(self):
        """What was sent as messages: their texts."""
        return [
            message.get("content") or "\n\n".join(part["text"] for part in message["parts"] if "text" in part)
            for message in self.sent
            if message["type"] == "message"
        ]

    def types_sent(self):
        return [message["type"] for message in self.sent]


class _Timer:
    def __init__(self, at, callback):
        self.at, self.callback = at, callback

    def cancel(self):
        self.callback = None


def call(name="lock", id_="tc-1", consent="", categories=(), **arguments):
    return ToolCall(id_, name, arguments, consent, categories)


def sound(sequence=0, data=SOUND, *, media="", last=False):
    return MediaChunk(media, sequence, last, data, "audio/pcm", 24_000)
