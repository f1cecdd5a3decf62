# One declared tool: checked when it is declared, described to the host in `hello` (vRT §5.2, decisions 16).
from micropython import const

from vrt.errors import ConfigError
from vrt.tools.arguments import check_schema, kind, problem, same

_TIMEOUT_MAX_MS = const(3600000)
_CONFIRM_MIN_MS = const(3000)
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

# What a phrase may be (docs/tools.md), apart from text alone.
_PHRASE = {
    "type": "object",
    "properties": {
        "say": {"type": ["string", "array"], "minLength": 1, "minItems": 1, "items": {"type": "string"}},
        "set": {"type": "object"},
        "words": {"type": "object"},
        "reply": {"type": "string"},
        "ask": {"type": "string"},
        "while": {"type": "string"},
    },
    "required": ["say"],
    "additionalProperties": False,
}


class Tool:
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
        # The arguments of `vrt.tools.tool`; ConfigError says what to change.
        self.function = function
        self.name = name
        self.description = description
        self.parameters = _whole(parameters)
        self.effect = effect
        self.timeout_ms = timeout_ms
        self.confirm = confirm
        self.confirm_when = confirm_when
        self.phrases = phrases
        legal = kind(name) == "string" and 0 < len(name) <= 64 and all(letter in _LETTERS for letter in name)
        self.check(legal, "has an illegal name; use at most 64 of A-Z a-z 0-9 _ . -")
        self.check(
            kind(description) == "string" and description, "needs a description: tell the model what it does"
        )
        self.check(
            effect in ("none", "reversible", "irreversible"),
            f"has effect {effect!r}; use 'none', 'reversible' or 'irreversible'",
        )
        self.check(
            kind(timeout_ms) == "integer" and 0 < timeout_ms <= _TIMEOUT_MAX_MS,
            f"has timeout_ms {timeout_ms!r}; use milliseconds, 1 to 3600000",
        )
        check_schema(self.parameters, f"tool {name}")
        self._check_confirm()
        self._check_phrases()

    def check(self, right, text):
        if not right:
            raise ConfigError(f"tool {self.name} {text}")

    def _check_confirm(self):
        when = self.confirm_when
        if self.confirm is None:
            return self.check(when is None, "has confirm_when without confirm; add confirm='button'")
        self.check(
            self.confirm in ("button", "voice"), f"has confirm {self.confirm!r}; use 'button' or 'voice'"
        )
        self.check(
            self.effect != "none", "only reads (effect='none') and cannot ask; give it its true effect"
        )
        self.check(
            self.timeout_ms >= _CONFIRM_MIN_MS, "asks for confirmation; its timeout_ms must be 3000 or more"
        )
        if when is None:
            return None
        self.check(
            kind(when) == "object" and when, "has confirm_when that is not {parameter: [values that ask]}"
        )
        for name, values in when.items():
            self._known(name, "confirm_when")
            schema = self.parameters["properties"][name]
            finite = "enum" in schema or schema.get("type") in ("boolean", "integer")
            self.check(
                name in self.parameters.get("required", ()),
                f"has confirm_when for {name!r}, which a call may leave out; make it required",
            )
            self.check(
                finite,
                f"has confirm_when for {name!r}; list its values by enum, lest another spelling slip by",
            )
            self.check(
                kind(values) == "array" and values, f"has confirm_when for {name!r} without a list of values"
            )
            for value in values:
                self._possible(name, value, "confirm_when")
        return None

    def _check_phrases(self):
        # The host reads phrases; here slips of the pen are found: members, names of parameters, impossible values.
        self.check(kind(self.phrases) == "array", "has phrases that are no list")
        for one in self.phrases:
            phrase = {"say": one} if kind(one) == "string" else one
            broken = problem(_PHRASE, phrase, "phrase")
            self.check(broken is None, f"has a wrong {broken}")
            says = phrase["say"]
            for say in [says] if kind(says) == "string" else says:
                for part in say.split("{")[1:]:
                    self._known(part.split("}")[0], "a phrase")
            for name, value in phrase.get("set", {}).items():
                self._possible(name, value, "a phrase")
            for name, words in phrase.get("words", {}).items():
                self.check(kind(words) == "object", f"has a phrase whose words for {name!r} are no dict")
                for value in words.values():
                    self._possible(name, value, "a phrase")

    def _known(self, name, where):
        self.check(
            name in self.parameters["properties"], f"has {where} for {name!r}, which is no parameter of it"
        )

    def _possible(self, name, value, where):
        self._known(name, where)
        broken = problem(self.parameters["properties"][name], value, name)
        self.check(broken is None, f"has {where} with {value!r}, which no call can have; {broken}")

    def asks(self, arguments):
        # Whether a call with these (valid) arguments waits for the user's confirmation.
        when = self.confirm_when
        if self.confirm is None or when is None:
            return self.confirm is not None
        return any(same(arguments[name], value) for name in when for value in when[name])

    def declaration(self):
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


def _whole(parameters):
    # The JSON Schema of the arguments from either form; a parameter named `type` has a dict there, not text.
    if kind(parameters) == "object" and parameters.get("type") == "object":
        return dict(parameters, properties=parameters.get("properties", {}))
    return {
        "type": "object",
        "properties": parameters or {},
        "required": sorted(parameters or {}),
        "additionalProperties": False,
    }
