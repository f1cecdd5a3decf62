# The tools of tools/soak.py's boards, on MicroPython. Each run leaves two marks outside of the device: a pulse of an
# output and a line on the console. `ahead` takes its effect at once and then takes its time, `behind` the other way round.
# mypy: ignore-errors
from vrt.tools import tool

WORK = {"n": {"type": "integer"}, "ms": {"type": "integer", "minimum": 0}}

outputs = {}
reports = [0]


def setup(board):
    for name in ("light", "front_lock"):
        outputs[name] = board.output(name)


def state():
    # No two reports are alike, so that one which is lost or doubled shows.
    reports[0] += 1
    return {"report": reports[0]}


def effect(name, n):
    outputs[name].value(1)
    outputs[name].value(0)
    print("ran", n)


@tool("Take effect, then take some time.", WORK)
def ahead(n, ms):
    effect("light", n)
    yield ms
    return {"n": n}


@tool("Take some time, then take effect. Kept in the journal.", WORK, effect="irreversible")
def behind(n, ms):
    yield ms
    effect("front_lock", n)
    return {"n": n}
