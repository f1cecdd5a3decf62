"""What the local agent says. What it claims to have happened comes from results, never from the wish."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vrt_host.agents.base import Json, ToolResult
from vrt_host.agents.intents import Beyond, Command
from vrt_host.agents.phrases import speakable

NOT_CAUGHT = "Sorry, I did not catch that."
NOTHING_TO_CONFIRM = "There is nothing to confirm."
DROPPED = "Okay, I will leave it."
FIXED = (NOT_CAUGHT, NOTHING_TO_CONFIRM, DROPPED)
"""Said again and again; each is a single clause."""

_MOST = 300
"""Characters of a result that are spoken."""
_FIELD = re.compile(r"\{([^{}]*)\}")
_NOT_ORDERS = frozenset(
    [
        "is",
        "are",
        "was",
        "what",
        "which",
        "who",
        "where",
        "when",
        "how",
        "does",
        "do",
        "did",
        "has",
        "have",
        "tell",
    ]
)


def ask(command: Command) -> str:
    """What is said while the device waits for its button."""
    return _told(command, command.phrase.ask) or f"Hold the button for one second to {_deed(command)}."


def during(command: Command) -> str | None:
    """What is said while the tool runs."""
    return _told(command, command.phrase.during)


def question(commands: Sequence[Command]) -> str:
    """Asks for an explicit yes."""
    return f"Shall I {' and '.join(map(_deed, commands))}? Say yes to go on."


def foreseen(command: Command) -> str | None:
    """What will be said if the call succeeds, when that does not depend on its result."""
    text = command.phrase.reply
    return None if text is None or "{output" in text else _told(command, text)


def reply(command: Command, result: ToolResult) -> str:
    """What is said when a call is settled."""
    if result.ok:
        return foreseen(command) or _success(command, result.output)
    deed = _deed(command)
    if result.code == "REJECTED":
        return f"Not confirmed, so I did not {deed}." if command.asks else f"The device refused to {deed}."
    if result.code == "INVALID":
        return f"The device does not know how to {deed}."
    if result.code == "TIMEOUT":
        return "That took too long. I cannot say whether it was done."
    if "unknown" in result.message.lower() and command.tool.effect != "none":
        return "Something went wrong. I cannot say whether it was done, please check."
    return f"I tried to {deed}, but it failed."


def not_understood(examples: Sequence[str]) -> str:
    """The answer to a text that is no sentence of ours."""
    return f"I did not understand that. {can_say(examples)}"


def out_of_range(beyond: Beyond) -> str:
    """The answer to a command with a number that it does not take."""
    slot = beyond.slot
    steps = f", in steps of {slot.step}" if slot.step > 1 else ""
    return (
        f"I heard {beyond.number}, but the number must be between {slot.minimum} and {slot.maximum}{steps}."
    )


def can_say(examples: Sequence[str]) -> str:
    """What can be done, by example."""
    if not examples:
        return "This device has no tools that can be spoken of."
    return f"You can say: {', or '.join(examples)}."


def _deed(command: Command) -> str:
    """The command as something to do: "unlock the back door"."""
    return "do that" if command.text.split()[0] in _NOT_ORDERS else command.text


def _told(command: Command, template: str | None, output: Json = None) -> str | None:
    """A template with its fields filled in; None when there is none, or a field of the result is missing."""
    if template is None:
        return None
    missing = False

    def fill(match: re.Match[str]) -> str:
        nonlocal missing
        name = match[1]
        if name == "output" or name.startswith("output."):
            value = output
            for key in name.split(".")[1:]:
                if not isinstance(value, dict) or key not in value:
                    missing = True
                    return ""
                value = value[key]
            return speakable(value)[:_MOST]
        if name not in command.arguments:
            missing = True
            return ""
        return command.phrase.spoken(name, command.arguments[name])

    text = _FIELD.sub(fill, template)
    return None if missing else text


def _success(command: Command, output: Json) -> str:
    told = _told(command, command.phrase.reply, output)
    if told is not None:
        return told
    if output is None or output == {} or output is True:
        return "Done."
    if isinstance(output, dict):
        parts = [f"{speakable(key)}: {speakable(value)}" for key, value in list(output.items())[:5]]
        return _sentence(", ".join(parts))
    return _sentence(speakable(output))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:_MOST]}."
