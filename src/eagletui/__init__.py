"""eagletui: one terminal for one remote multi-GPU host."""

__version__ = "0.1.0"
