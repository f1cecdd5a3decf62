# What is special about this board is in board.json; espboard.py builds its hardware from it.
import espboard  # pyright: ignore[reportMissingImports]

espboard.start(__file__)

from espboard import *  # noqa: E402, F403  # pyright: ignore[reportMissingImports]
