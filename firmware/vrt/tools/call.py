# One call of a tool: what it is bound to, and its tool's control flow. The registry decides when; here it happens.
import sys
from binascii import hexlify
from hashlib import sha256

from micropython import const

from vrt import tools
from vrt.errors import VrtError
from vrt.tools.arguments import canonical, kind

_TEXT = const(200)  # characters of a message to the model


def _nothing():
    yield


_GENERATOR = type(_nothing())


class Call:
    # What `tools.current()` shows: call_id, turn_id, epoch, cancelled (vRT §7.1).
    def __init__(self, message, tool, digest, size):
        self.call_id = message["callId"]
        self.turn_id = message["turnId"]
        self.epoch = message["epoch"]
        self.arguments = message["arguments"]
        self.tool = tool
        self.digest = digest
        self.size = size  # bytes of the arguments
        self.cancelled = False
        self.started = False
        self.since = 0  # ticks at which it reached the head of the queue
        self.paused = 0  # ticks of the tool's last yield, and how long it waits from there
        self.wait_ms = 0
        self._generator = None

    @property
    def asks(self):
        # Whether the device itself asks; a confirmation by voice is the host's (design: "Confirmation").
        return self.tool.confirm == "button" and self.tool.asks(self.arguments)

    def resume(self):
        # Runs the function, or the generator up to its next yield: (True, what it returned) or (False, what it yielded).
        tools.running = self
        try:
            if self._generator is None:
                value = self.tool.function(**self.arguments)
                if not isinstance(value, _GENERATOR):
                    return True, value
                self._generator = value
            try:
                return False, next(self._generator)
            except StopIteration as stop:
                return True, stop.value
        finally:
            tools.running = None

    def pause(self, value, now):
        # Takes what the tool yielded; text is progress and returned.
        self.paused = now
        self.wait_ms = value if kind(value) == "integer" else 0
        if kind(value) not in ("null", "integer", "string"):
            raise VrtError(f"a tool yields None, whole milliseconds or text, not {value!r}")
        return value if kind(value) == "string" else None

    def close(self):
        # Ends a generator at its yield: its `finally` runs, whatever it still says is discarded.
        generator, self._generator = self._generator, None
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
    text, problem = "", None
    try:
        text = canonical(arguments)
    except ValueError as error:
        problem = f"arguments: {error}"
    data = (name + text).encode()
    return hexlify(sha256(data).digest()[:8]).decode(), len(data), problem


def explain(error):
    # An exception as text for the model. Other than VrtError it was not meant for it: printed for the tool's author.
    if isinstance(error, VrtError):
        return str(error)
    if hasattr(sys, "print_exception"):
        sys.print_exception(error)
    return f"{type(error).__name__}: {error}"[:_TEXT]
