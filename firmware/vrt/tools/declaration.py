# The checks of a declaration: what its author must change, said where it stands. Needed while tools are declared only.
from micropython import const

from vrt import tools
from vrt.errors import ConfigError
from vrt.tools.arguments import kind
from vrt.tools.rules import problem

_SCHEMA_DEPTH = const(6)
_TIMEOUT_MAX_MS = const(3600000)
_CONFIRM_MIN_MS = const(3000)


def declare(name, description, parameters, options):
    # What vrt.tools.tool gives: takes the function below it, and one more tool of the user's is there.
    def take(function):
        add(tools.Tool(function, name or function.__name__, description, parameters, **options))
        return function

    return take


def add(tool):
    if any(one.declaration["name"] == tool.declaration["name"] for one in tools.declared):
        raise ConfigError(
            f"tool {tool.declaration['name']} is declared twice; give one of the two another name"
        )
    tools.declared.append(tool)


def forbid_voice(declared):
    # The configuration does not let the host ask for confirmations.
    for tool in declared:
        if tool.declaration.get("confirm") == "voice":
            name = tool.declaration["name"]
            raise ConfigError(f"tool {name} has confirm='voice', which the configuration forbids")


def fill(tool, function, name, description, parameters=None, **options):
    # A new Tool.
    made = declaration(name, description, parameters, **options)
    tool.function = function
    tool.declaration = made  # what `hello` says of it; None once it is on flash, see shelf.py
    tool.name = made["name"]
    tool.effect = made["effect"]
    tool.timeout_ms = made["timeoutMs"]
    # When the device itself asks: never, always, or for these values of parameters. By voice the host does.
    tool.when = made.get("confirmWhen", True) if made.get("confirm") == "button" else None


def declaration(
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
    # What `hello` says of a tool (vRT §5.2, decisions 16). ConfigError says what to change.
    made = {"name": name, "description": description, "timeoutMs": timeout_ms, "effect": effect}
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
    legal = kind(name) == "string" and 0 < len(name) <= 64
    legal = legal and all(letter in letters for letter in name.encode())  # of a text they would become names
    _must(legal, made, "has an illegal name; use at most 64 of A-Z a-z 0-9 _ . -")
    _must(
        kind(description) == "string" and description,
        made,
        "needs a description: tell the model what it does",
    )
    known = effect in ("none", "reversible", "irreversible")
    _must(known, made, f"has effect {effect!r}; use 'none', 'reversible' or 'irreversible'")
    possible = kind(timeout_ms) == "integer" and 0 < timeout_ms <= _TIMEOUT_MAX_MS
    _must(possible, made, f"has timeout_ms {timeout_ms!r}; use milliseconds, 1 to 3600000")
    made["parameters"] = whole_schema(parameters)
    check_schema(made["parameters"], f"tool {name}")
    _confirm(made, confirm, confirm_when)
    _check_phrases(made, phrases)
    for member, value in (("confirm", confirm), ("confirmWhen", confirm_when), ("phrases", phrases)):
        if value:
            made[member] = value
    return made


def whole_schema(parameters):
    # The JSON Schema of the arguments from either form; a parameter named `type` has a dict there, not text.
    if kind(parameters) == "object" and parameters.get("type") == "object":
        return dict(parameters, properties=parameters.get("properties", {}))
    return {
        "type": "object",
        "properties": parameters or {},
        "required": sorted(parameters or {}),
        "additionalProperties": False,
    }


def _must(right, tool, text):
    if not right:
        raise ConfigError(f"tool {tool['name']} {text}")


def _confirm(tool, confirm, when):
    if confirm is None:
        return _must(when is None, tool, "has confirm_when without confirm; add confirm='button'")
    _must(confirm in ("button", "voice"), tool, f"has confirm {confirm!r}; use 'button' or 'voice'")
    _must(
        tool["effect"] != "none", tool, "only reads (effect='none') and cannot ask; give it its true effect"
    )
    _must(
        tool["timeoutMs"] >= _CONFIRM_MIN_MS,
        tool,
        "asks for confirmation; its timeout_ms must be 3000 or more",
    )
    if when is None:
        return None
    _must(
        kind(when) == "object" and when, tool, "has confirm_when that is not {parameter: [values that ask]}"
    )
    for name, values in when.items():
        where = f"has confirm_when for {name!r}"
        _known(tool, name, "confirm_when")
        schema = tool["parameters"]["properties"][name]
        required = name in tool["parameters"].get("required", ())
        _must(required, tool, f"{where}, which a call may leave out; make it required")
        finite = "enum" in schema or schema.get("type") in ("boolean", "integer")
        _must(finite, tool, f"{where}; list its values by enum, lest another spelling slip by")
        _must(kind(values) == "array" and values, tool, f"{where} without a list of values")
        for value in values:
            _possible(tool, name, value, "confirm_when")
    return None


def _check_phrases(tool, phrases):
    # The host reads phrases; here slips of the pen are found: members, names of parameters, impossible values.
    _must(kind(phrases) == "array", tool, "has phrases that are no list")
    # What a phrase may be (docs/tools.md), apart from text alone.
    schema = {
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
    for one in phrases:
        phrase = {"say": one} if kind(one) == "string" else one
        broken = problem(schema, phrase, "phrases")
        _must(broken is None, tool, f"has a wrong {broken}")
        says = phrase["say"]
        for say in [says] if kind(says) == "string" else says:
            for part in say.split("{")[1:]:
                _known(tool, part.split("}")[0], "phrases")
        for name, value in phrase.get("set", {}).items():
            _possible(tool, name, value, "phrases")
        for name, words in phrase.get("words", {}).items():
            _must(kind(words) == "object", tool, f"has a phrase whose words for {name!r} are no dict")
            for value in words.values():
                _possible(tool, name, value, "phrases")


def _known(tool, name, where):
    _must(
        name in tool["parameters"]["properties"],
        tool,
        f"has {where} for {name!r}, which is no parameter of it",
    )


def _possible(tool, name, value, where):
    _known(tool, name, where)
    broken = problem(tool["parameters"]["properties"][name], value, name)
    _must(broken is None, tool, f"has {where} with {value!r}, which no call can have; {broken}")


def check_schema(schema, where, depth=0):
    # ConfigError when the schema uses what `problem` does not know, or says what cannot be meant.
    if kind(schema) != "object":
        raise ConfigError(f"{where}: a schema is a dict, not {schema!r}")
    if depth > _SCHEMA_DEPTH:
        raise ConfigError(f"{where}: schemas nest {_SCHEMA_DEPTH} deep at most")
    properties = schema.get("properties", {})
    if kind(properties) != "object" or not all(kind(name) == "string" for name in properties):
        raise ConfigError(f"{where}: 'properties' is a dict of schemas by name")
    for word, rule in schema.items():
        fits = _fits(word, rule, properties)
        if fits is None:
            raise ConfigError(
                f"{where}: the keyword {word!r} is not supported; these are: type, enum, const, properties, required, "
                "additionalProperties, items, multipleOf, minLength, maxLength, minItems, maxItems, minimum, maximum, "
                "exclusiveMinimum, exclusiveMaximum, title, description, default, examples"
            )
        if not fits:
            raise ConfigError(f"{where}: {word!r} cannot be {rule!r}")
    for name in properties:
        check_schema(properties[name], f"{where}.{name}", depth + 1)
    if "items" in schema:
        check_schema(schema["items"], where + "[]", depth + 1)
    others = {word: schema[word] for word in schema if word != "enum"}
    for value in schema.get("enum", ()):
        broken = problem(others, value, "it")
        if broken:
            raise ConfigError(f"{where}: the enum has {value!r}, but {broken}")


def _fits(word, rule, properties):
    # Whether the rule is one that the word can have; None: an unknown word.
    what = kind(rule)
    if word in (
        "title",
        "description",
        "default",
        "examples",
    ):  # they rule nothing: a default is not filled in
        return True
    if word in ("properties", "items"):  # looked into by the caller
        return True
    if word in ("minLength", "maxLength", "minItems", "maxItems", "multipleOf"):
        return what == "integer" and rule >= (word == "multipleOf")
    if word == "type":
        kinds = ("null", "boolean", "integer", "number", "string", "array", "object")
        return bool(rule) and all(one in kinds for one in (rule if what == "array" else (rule,)))
    if word == "required":  # a name without a schema is a slip of the pen
        fits = what == "array" and all(kind(name) == "string" and name in properties for name in rule)
    elif word == "enum":
        fits = what == "array" and len(rule) > 0 and all(kind(one) for one in rule)
    elif word == "additionalProperties":
        fits = what == "boolean"
    elif word == "const":
        fits = what is not None
    else:
        bound = word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        fits = what in ("integer", "number") if bound else None
    return fits
