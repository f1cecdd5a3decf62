# Tools with which a conformance suite steers this client (docs/conformance.md): vrt sim --tools boards/sim/conformance.py
# They reach into the firmware, as no tool of a user's should: a conversation is to be interrupted from inside.
from vrt.conversation import Conversation
from vrt.errors import VrtError
from vrt.tools import tool

device = None  # the Conversation, as soon as it runs
started = 0  # calls of these tools, since the device was switched on


def setup(board):
    advance = Conversation.step

    def first(self, now):
        global device  # noqa: PLW0603  (a tool has nobody else to hand it on)
        device = self
        Conversation.step = advance
        advance(self, now)

    Conversation.step = first


def start():
    global started  # noqa: PLW0603
    started += 1


@tool("Take so many milliseconds.", {"ms": {"type": "integer", "minimum": 0, "maximum": 60000}}, name="test.slow", timeout_ms=90000)  # fmt: skip
def slow(ms):
    start()
    yield ms
    return {"started": started}


@tool("Fail.", name="test.fail")
def fail():
    start()
    raise VrtError("this tool always fails")


REASON = {"type": "object", "properties": {"reason": {"enum": ["speech", "user", "keyboard"]}}}


@tool("Interrupt the agent, as the user does.", REASON, name="test.interrupt")
def interrupt(reason="user"):
    start()
    device.silence(reason)


@tool("Say something as the user, by text.", {"text": {"type": "string"}}, name="test.say")
def say(text):
    start()
    if not device.session.offer("text", text):
        raise VrtError("the outbox is full")
