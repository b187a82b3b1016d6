"""Entry of `python -m fermix` and of the frozen program."""

from fermix.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
