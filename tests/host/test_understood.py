"""agents/understood.py: what is acted on, what is only told, and what is shown as said."""

import pytest
from test_intents import KETTLE, LIGHT, LOCK, sounds
from vrt_host.agents import replies
from vrt_host.agents.base import Tool
from vrt_host.agents.intents import Intents
from vrt_host.agents.understood import compare, stopped

# --- a number that is out of bounds

BLIND = Tool(
    "blind",
    parameters={
        "properties": {
            "window": {"enum": ["left", "right"]},
            "level": {"type": "integer", "minimum": 1, "maximum": 20},
        },
        "required": ["window", "level"],
    },
    phrases=["set the {window} blind to {level}", "{window} blind {level}"],
)


@pytest.mark.parametrize(
    ("grammar", "free", "number"),
    [
        ("set the left blind to nineteen", "Set the left blind to 90.", 90),
        ("set the left blind to nineteen", "Set the left blind to ninety", 90),
        ("left blind nineteen", "Set the left blind to zero.", 0),  # other words for the same call
        ("please set the left blind to nineteen and", "Please set the left blind to minus five.", -5),
        ("turn on the light and set the left blind to ten", "Turn on the light and set the left blind to 100.", 100),
        ("set the left blind to nineteen", "Set the left blind to 19.", None),  # nothing is wrong
        ("set the left blind to nineteen", "Set the left blind to 18.", None),  # nothing is out of bounds
        ("set the left blind to nineteen", "Set the right blind to 90.", None),
        ("set the left blind to nineteen", "Do not set the left blind to 90.", None),
        ("set the left blind to nineteen", "Set the left blind to 90 or so.", None),
        ("set the left blind to nineteen", "Set the left blind to 90.5.", None),
        ("set the left blind to nineteen", "Heat to 90.", None),
        ("heat to eighty", "Set the left blind to 90.", None),
        ("turn on the light", "Turn on the light and set the left blind to 90.", None),
        ("turn on the light and set the left blind to ten", "Turn off the light and set the left blind to 90.", None),
        ("stop", "Set the left blind to 90.", None),
        ("", "Set the left blind to 90.", None),
    ],
)  # fmt: skip
def test_number_out_of_bounds_is_told_when_all_else_agrees(grammar, free, number):
    intents = Intents([BLIND, LIGHT, KETTLE])
    understood = compare(intents, grammar, free, 9.0, sounds)
    assert (understood.beyond and understood.beyond.number) == number
    if number is not None:
        assert understood.meaning is None
        assert understood.text == free
        assert f"heard {number}, but the number must be between 1 and 20." in replies.out_of_range(
            understood.beyond
        )


@pytest.mark.parametrize(
    ("grammar", "others", "agreed"),
    [
        ("turn on the light", [], True),
        ("turn on the light", ["Turn of the light", "Turn on the lamp"], True),
        ("turn on the light", ["Please turn on the light."], True),
        ("turn on the light", ["Turn of the light", "Turn off the light"], False),
        ("turn on the light", ["Lock the front door"], False),
        ("unlock the front door", ["Lock the front door"], True),  # it asks first
        ("lock the front door", ["Unlock the front door"], False),
        ("yes", ["no"], False),
        ("stop", ["turn on the light"], True),  # does no harm
    ],
)
def test_sentence_that_may_as_well_be_another_is_not_agreed_on(grammar, others, agreed):
    understood = compare(Intents([LOCK, KETTLE, LIGHT]), grammar, grammar, 0.0, sounds, others)
    assert (understood.meaning is not None) is agreed
    assert understood.free == grammar


# --- what is shown as said


@pytest.mark.parametrize(
    ("grammar", "free", "shown"),
    [
        ("lock the front door", "Look the front door", "Lock the front door."),
        ("unlock the front door", "Un lock the front door?", "Unlock the front door?"),
        ("heat to eighty five", "Heat to 85!", "Heat to 85!"),  # a sentence, too: as it was written
        ("heat to eighty five", "He to 85", "Heat to eighty five."),
        ("turn on the light", "Turn on the light,", "Turn on the light."),
        ("and then lock the front door", "Lock the front door.", "Lock the front door."),
        ("lock the front door and", "Lock front door", "Lock front door."),
        ("turn on light", "Turn on the light.", "Turn on the light."),
        ("turn the light on", "Turn on the light.", "Turn on the light."),
        ("stop it", "Stop.", "Stop."),
        ("lock the front door", "The front door is made of oak.", "The front door is made of oak."),  # not agreed
        ("", "What time is it?", "What time is it?"),
        ("lock the front door", "", ""),
    ],
)  # fmt: skip
def test_what_was_agreed_on_is_shown_as_said(grammar, free, shown):
    understood = compare(Intents([LOCK, KETTLE, LIGHT]), grammar, free, 9.0, sounds)
    assert (understood.text, understood.free) == (shown, free)


def test_stop_that_one_recogniser_heard_is_shown_as_one():
    intents = Intents([LOCK])
    assert stopped(intents, "stop", "Shop.").text == "Stop."
    assert stopped(intents, "lock the front door", "Never mind!").text == "Never mind!"
    assert stopped(intents, "lock the front door", "Shop.") is None
