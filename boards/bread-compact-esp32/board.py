# What is special about this board is in board.json; espboard.py builds its hardware from it.
import espboard

espboard.start(__file__)

from espboard import *  # noqa: E402, F403
