# How a user writes tools: plain functions, or generators that yield while they wait, each below its declaration.
#
#   from vrt.tools import tool
#
#   @tool("Lock or unlock a door.", {"door": {"enum": ["front", "back"]}, "state": {"enum": ["locked", "unlocked"]}},
#         effect="irreversible", confirm="button", confirm_when={"state": ["unlocked"]})
#   def lock(door, state): ...          returns a JSON value (1 KiB at most), or raises: the call FAILED with that text
#
# A generator yields None (go on at the next loop), an int (go on after so many ms) or text (progress, for the log). When
# its call is cancelled it is ended at a yield; what it must undo belongs in `finally`. A function cannot be cut: one that
# takes longer than a moment should be a generator. Wrong declarations raise ConfigError where they stand.
from vrt.errors import VrtError
from vrt.tools.arguments import canonical

declared = []  # every Tool, in the order of declaration
running = None  # the call whose tool has control


def current():
    # Inside a tool: the call that it serves (call_id, turn_id, epoch, cancelled), vRT §7.1. Elsewhere None.
    return running


def tool(description, parameters=None, *, name=None, **options):
    # parameters    short form: {parameter: schema}, all required and no others; or a whole schema with type "object"
    # name          what the model calls it; the function's name
    # confirm       "button": the device asks before it runs; "voice": the host asks, if the configuration allows it
    # confirm_when  {parameter: [values that ask]}; without it every call asks
    # effect        "none": reads and can never act; "reversible" (default); "irreversible": runs at most once, also when
    #               the device restarts in between
    # timeout_ms    from the head of the queue, the confirmation included; default 30,000 (decisions 8)
    # phrases       how it is spoken of: see docs/tools.md
    from vrt.tools.declaration import declare  # noqa: PLC0415  (forgotten by Registry.load)

    return declare(name, description, parameters, options)


class Tool:
    # One declared tool; the constructor takes what `tool` takes, ConfigError says what to change.
    def __init__(self, function, name, description, parameters=None, **options):
        from vrt.tools.declaration import fill  # noqa: PLC0415  (forgotten by Registry.load)

        fill(self, function, name, description, parameters, **options)

    def asks(self, arguments):
        # Whether the device itself asks before a call with these (valid) arguments.
        when = self.when  # type: ignore  (see declaration.fill)
        if type(when) is not dict:
            return when is True
        for name, values in when.items():
            for value in values:
                if canonical(arguments[name]) == canonical(value):
                    return True
        return False


class Guarded:
    # The board as tools see it, or one of its outputs (`pin`). A tool that reads can never act (design: "Tools"), whatever
    # its code tries.
    def __init__(self, board, pin=None):
        self._board = board
        self._pin = pin

    def output(self, name):
        return Guarded(None, self._board.output(name))

    def value(self, *level):
        if level and running and running.tool.effect == "none":
            raise VrtError("a tool that only reads (effect='none') cannot set an output")
        return self._pin.value(*level)

    def __getattr__(self, name):
        return getattr(self._board, name)
