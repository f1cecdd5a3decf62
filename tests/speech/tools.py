# The tools that the sentences in corpus.json are about. They do nothing but remember; the real product knows none of them.
from vrt.tools import tool

DOOR = {"enum": ["front", "back"]}
was = {}


def setup(board):
    pass


def keep(name, value):
    was[name] = value
    return {"state": value}


@tool(
    "Lock or unlock a door.",
    {"door": DOOR, "state": {"enum": ["locked", "unlocked"]}},
    effect="irreversible",
    confirm="button",
    confirm_when={"state": ["unlocked"]},
    phrases=[
        {"say": "lock [the] {door} door", "set": {"state": "locked"}, "reply": "The {door} door is locked."},
        {
            "say": "unlock [the] {door} door",
            "set": {"state": "unlocked"},
            "reply": "The {door} door is unlocked.",
        },
    ],
)
def lock(door, state):
    return keep(door, state)


@tool(
    "Tell whether a door is locked.",
    {"door": DOOR},
    effect="none",
    phrases=[
        {"say": "is [the] {door} door (locked|unlocked)", "reply": "The {door} door is {output.state}."}
    ],
)
def door_state(door):
    return {"state": was.get(door, "locked")}


@tool(
    "Switch a lamp.",
    {"room": {"enum": ["kitchen", "bedroom", "garden"]}, "state": {"enum": ["on", "off"]}},
    phrases=[
        {
            "say": ["(turn|switch) {state} [the] {room} light", "(turn|switch) [the] {room} light {state}"],
            "reply": "The {room} light is {state}.",
        }
    ],
)
def lamp(room, state):
    return keep(room, state)


@tool(
    "Set the fan's speed.",
    {"speed": {"type": "integer", "minimum": 0, "maximum": 5}},
    phrases=[{"say": "set [the] fan [speed] to {speed}", "reply": "The fan runs at {speed}."}],
)
def fan(speed):
    return keep("fan", speed)


@tool(
    "Tell the temperature.",
    effect="none",
    phrases=[{"say": "(what is|what's|tell me) the temperature", "reply": "It is {output.degrees} degrees."}],
)
def temperature():
    return {"degrees": 21}


@tool(
    "Water the plants.",
    {"minutes": {"type": "integer", "minimum": 1, "maximum": 60}},
    phrases=[
        {
            "say": "water [the] plants for {minutes} (minute|minutes)",
            "reply": "Watering for {minutes} minutes.",
        }
    ],
)
def plants(minutes):
    return keep("plants", minutes)


@tool(
    "Move the blinds.",
    {"percent": {"type": "integer", "minimum": 0, "maximum": 100}},
    phrases=[
        {
            "say": "{percent} [the] blinds",
            "words": {"percent": {"close": 0, "lower": 0, "open": 100, "raise": 100}},
            "reply": "The blinds are moving.",
        }
    ],
)
def blinds(percent):
    return keep("blinds", percent)
