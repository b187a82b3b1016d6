"""Choose the verb. Everything a verb needs is imported by the verb itself, so that the quick ones stay quick.

Exit codes: 0 done, 1 error, 2 wrong use, 3 no daemon runs, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import sys

from fermix import __version__
from fermix.cli.catalog import VERBS, Verb

OK, ERROR, USAGE, NOT_RUNNING, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: list[str] | None = None) -> int:
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    return code


def usage() -> str:
    """The text of `fermix --help`."""
    width = max(len("--version"), *(len(verb.name) for verb in VERBS))
    rows = (f"  {verb.name:<{width}}  {verb.summary}" for verb in VERBS if not verb.hidden)
    return "\n".join(
        (
            "usage: fermix [VERB] [OPTIONS]",
            "",
            "Without a verb the terminal interface opens; it starts the daemon when none runs.",
            "",
            *rows,
            f"  {'--daemon':<{width}}  run the daemon in the foreground",
            f"  {'--version':<{width}}  print the version",
            "",
            "`fermix VERB --help` tells more about one verb.",
        )
    )


def _run(arguments: list[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("tui", [])
    if name in ("--version", "-V"):
        print(f"fermix {__version__}")
        return OK
    if name in ("help", "--help", "-h"):
        print(usage())
        return OK
    verb = _find("run" if name == "--daemon" else name)
    return _unknown(name) if verb is None else verb.run(rest)


def _find(name: str) -> Verb | None:
    return next((verb for verb in VERBS if verb.name == name), None)


def _unknown(name: str) -> int:
    kind = "option" if name.startswith("-") else "verb"
    print(f"fermix: unknown {kind} {name!r}\n\n{usage()}", file=sys.stderr)
    return USAGE


def _reader_left() -> int:
    """The reader of our output is gone (`fermix logs | head`): end quietly, also at the interpreter's last flush."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ERROR
