# The board as tools see it: a tool that reads can never act (design: "Tools"), whatever its code tries.
from vrt import tools
from vrt.errors import VrtError


class ToolBoard:
    def __init__(self, board):
        self._board = board

    def output(self, name):
        return _Output(self._board.output(name))

    def __getattr__(self, name):
        return getattr(self._board, name)


class _Output:
    def __init__(self, pin):
        self._pin = pin

    def value(self, *level):
        if level and tools.running and tools.running.tool.effect == "none":
            raise VrtError("a tool that only reads (effect='none') cannot set an output")
        return self._pin.value(*level)
