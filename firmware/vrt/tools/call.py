# One call of a tool: what it is bound to. The registry decides when it runs.
import sys
from binascii import hexlify
from hashlib import sha256

from micropython import const

from vrt import tools
from vrt.errors import VrtError
from vrt.tools.arguments import canonical

_TEXT = const(200)  # characters of a message to the model
_OUTPUT_BYTES = const(1024)  # JSON text of an output


class Call:
    # What `tools.current()` shows: call_id, turn_id, epoch, cancelled (vRT §7.1).
    def __init__(self, message):
        self.call_id = message["callId"]
        self.turn_id = message["turnId"]
        self.epoch = message["epoch"]
        self.name = message["name"]
        self.arguments = message["arguments"]
        self.tool = None
        self.digest, self.size, self.problem = digest_of(self.name, self.arguments)
        self.cancelled = False
        self.asked = False  # the device waits for a confirmation
        self.result = None  # JSON text, once it has ended and is not yet answered
        self.since = None  # ticks at which it reached the head of the queue
        self.paused = None  # ticks of the tool's start or last yield, and how long it waits from there
        self.wait_ms = 0
        self.generator = None

    def close(self):
        # Ends a generator at its yield: its `finally` runs, whatever it still says is discarded.
        generator, self.generator = self.generator, None
        if generator is not None:
            tools.running = self
            try:
                generator.close()
            except Exception as error:
                explain(error)
            finally:
                tools.running = None


def digest_of(name, arguments):
    # (digest, bytes, problem) of what is asked for: a confirmation and a journal entry are bound to it.
    data = name.encode()
    problem = None if arguments is not None else "arguments: none, or more values than this device can hold"
    try:
        data += canonical(arguments).encode()
    except ValueError as error:
        problem = f"arguments: {error}"
    return hexlify(sha256(data).digest()[:8]).decode(), len(data), problem


def explain(error):
    # An exception as text for the model. Other than VrtError it was not meant for it: printed for the tool's author.
    if isinstance(error, VrtError):
        return str(error)
    if hasattr(sys, "print_exception"):
        sys.print_exception(error)
    return f"{type(error).__name__}: {error}"[:_TEXT]


def output(value):
    # The JSON text of what a tool returned; also a copy that the tool can no longer change.
    try:
        text = canonical(value)
    except ValueError as error:
        raise VrtError(f"it ran, but: {error}") from None
    if len(text.encode()) > _OUTPUT_BYTES:
        raise VrtError(f"it ran, but: more than {_OUTPUT_BYTES} bytes")
    return text
