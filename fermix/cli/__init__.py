"""The command line. `main` is the entry of every form of the program."""

from fermix.cli.main import main

__all__ = ["main"]
