# What the simulated house can do, written the way you would write your own tools (docs/tools.md). To try yours on this
# board: vrt sim --tools FILE. Tools take states, never "toggle": doing one twice is then harmless.
from vrt.errors import VrtError
from vrt.tools import tool

DOOR = {"enum": ["front", "back"]}

outputs = {}


def setup(board):
    # Called once, before the device says hello.
    for name in ["front_lock", "back_lock", "light"]:
        outputs[name] = board.output(name)


def state():
    # What is true now; the device reports it to the host.
    return {"front_door": bolt("front"), "back_door": bolt("back"), "light": lamp()}


def bolt(door):
    return "unlocked" if outputs[door + "_lock"].value() else "locked"


def lamp():
    return "on" if outputs["light"].value() else "off"


@tool(
    "Lock or unlock a door. Unlocking waits until the user holds the button for a second.",
    {"door": DOOR, "state": {"enum": ["locked", "unlocked"]}},
    effect="irreversible",
    confirm="button",
    confirm_when={"state": ["unlocked"]},
    phrases=[
        {
            "say": "(lock|close) [the] {door} door",
            "set": {"state": "locked"},
            "reply": "The {door} door is locked.",
        },
        {
            "say": "(unlock|open) [the] {door} door",
            "set": {"state": "unlocked"},
            "ask": "To unlock the {door} door, hold the button for one second.",
            "reply": "The {door} door is unlocked.",
        },
    ],
)
def lock(door, state):
    outputs[door + "_lock"].value(state == "unlocked")
    if bolt(door) != state:
        raise VrtError(f"the {door} door did not move, it is {bolt(door)}")
    return {"door": door, "state": state}


@tool(
    "Switch the light in the living room.",
    {"state": {"enum": ["on", "off"]}},
    phrases=[
        {
            "say": ["(turn|switch) [the] light {state}", "(turn|switch) {state} [the] light"],
            "reply": "The light is {state}.",
        }
    ],
)
def light(state):
    outputs["light"].value(state == "on")
    return {"state": lamp()}


@tool(
    "Tell whether a door is locked.",
    {"door": DOOR},
    effect="none",
    phrases=[
        {
            "say": "is the {door} door (locked|unlocked)",
            "reply": "The {door} door is {output.state}.",
        }
    ],
)
def door_state(door):
    return {"state": bolt(door)}


@tool(
    "Report on the doors and the light. Takes about six seconds.",
    effect="none",
    phrases=[
        {
            "say": ["check [the] house", "is (everything|the house) (locked|closed|all right)"],
            "while": "I am checking the house now. First I look at the front door, then at the back door, and last at "
            "the light in the living room. This takes a few seconds, and I will tell you what I find.",
            "reply": "The front door is {output.front_door}, the back door is {output.back_door}, "
            "and the light is {output.light}.",
        }
    ],
)
def check_house():
    found = {}
    for place in ["front_door", "back_door", "light"]:
        yield "looking at the " + place.replace("_", " ")
        yield 2000
        found[place] = state()[place]
    return found
