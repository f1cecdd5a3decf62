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
import sys

from vrt.errors import ConfigError
from vrt.tools.arguments import same

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
    def declare(function):
        made = Tool(function, name or function.__name__, description, parameters, **options)
        if any(other.name == made.name for other in declared):
            raise ConfigError(f"tool {made.name} is declared twice; give one of the two another name")
        declared.append(made)
        return function

    return declare


class Tool:
    # One declared tool; the constructor takes what `tool` takes, ConfigError says what to change.
    def __init__(
        self,
        function,
        name,
        description,
        parameters=None,
        *,
        effect="reversible",
        timeout_ms=30000,
        confirm=None,
        confirm_when=None,
        phrases=(),
    ):
        from vrt.tools.declaration import check, whole_schema  # noqa: PLC0415  (see `seal`)

        self.function = function
        self.name = name
        self.description = description
        self.parameters = whole_schema(parameters)
        self.effect = effect
        self.timeout_ms = timeout_ms
        self.confirm = confirm
        self.confirm_when = confirm_when
        self.phrases = phrases
        check(self)

    def asks(self, arguments):
        # Whether a call with these (valid) arguments waits for the user's confirmation.
        when = self.confirm_when
        if self.confirm is None or when is None:
            return self.confirm is not None
        return any(same(arguments[name], value) for name in when for value in when[name])

    def declaration(self):
        # The tool in `hello` (vRT §5.2, decisions 16).
        made = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "timeoutMs": self.timeout_ms,
            "effect": self.effect,
            "confirm": self.confirm,
            "confirmWhen": self.confirm_when,
            "phrases": self.phrases,
        }
        return {key: value for key, value in made.items() if value}


def seal():
    # All tools are declared. The checks, a quarter of this package, leave the heap; a later declaration loads them again.
    sys.modules.pop("vrt.tools.declaration", None)
    globals().pop("declaration", None)
