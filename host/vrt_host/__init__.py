"""vRT Edge host: the CPython bridge between voice boards and the agent that answers."""

__version__ = "0.1.0"
