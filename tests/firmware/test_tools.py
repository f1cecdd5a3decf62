# What the author of tools works with: the board, on which who only reads cannot act; and what the start leaves behind.
import sys

from support import raises
from vrt import forget, tools
from vrt.errors import ConfigError, VrtError
from vrt.tools import Guarded, Tool


class Pin:
    level = 0

    def value(self, *level):
        if level:
            self.level = level[0]
        return self.level


class Board:
    NAME = "test"

    def output(self, name):
        return {"relay": Pin()}[name]


class Running:
    def __init__(self, effect):
        self.tool = self
        self.effect = effect


def test_outputs_obey_whoever_may_act():
    relay = Guarded(Board()).output("relay")
    try:
        for who in (None, Running("reversible"), Running("irreversible")):
            tools.running = who
            for level in (1, 0):
                relay.value(level)
                assert relay.value() == level
        tools.running = Running("none")
        assert relay.value() == 0
        for level in (1, 0):
            assert "only reads" in str(raises(VrtError, relay.value, level))
        assert relay.value() == 0
    finally:
        tools.running = None


def test_rest_of_the_board_is_passed_through():
    board = Guarded(Board())
    assert board.NAME == "test"
    raises(AttributeError, getattr, board, "nonsense")
    raises(KeyError, board.output, "nonsense")
    relay = board.output("relay")
    raises(AttributeError, getattr, relay, "level")  # an output has nothing but value()
    raises(AttributeError, getattr, relay, "NAME")


def test_what_only_the_start_needs_leaves_the_heap_and_comes_back():
    names = ("vrt.tools.declaration", "vrt.tools.recovery")
    for name in names:
        __import__(name)
    forget(*names)
    for name in names:
        assert name not in sys.modules
        assert not hasattr(tools, name.rpartition(".")[2])
    assert "illegal name" in str(raises(ConfigError, Tool, len, "a b", "Do it."))
    assert "vrt.tools.declaration" in sys.modules
