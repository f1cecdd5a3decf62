"""The modules of the model are found by their names alone."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
