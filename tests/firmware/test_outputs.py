# The board as tools see it: who only reads cannot act.
from support import raises
from vrt import tools
from vrt.errors import VrtError
from vrt.tools.outputs import ToolBoard


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
    relay = ToolBoard(Board()).output("relay")
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
    board = ToolBoard(Board())
    assert board.NAME == "test"
    raises(AttributeError, getattr, board, "nonsense")
    raises(KeyError, board.output, "nonsense")
