"""What `fermix sandbox`, `grant` and `revoke` share: ask the daemon, or the files where none runs; and let
the owner agree to what opens anything.

A yes is typed at this very terminal, after the whole difference was shown; there is no option that says it. The daemon
refuses both questions to a program that it started itself or that is confined.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fermix.cli import output
from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning, RequestFailed, socket_path
from fermix.protocol.methods import Code

EXIT_CODES = "exit codes: 0 done, 1 refused or failed, 2 wrong use. Works with and without a running daemon."


class Failed(Exception):
    """Why there is no answer; `code` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Words:
    """What was typed behind a verb; what follows a `--` is a program with its arguments and is not looked at."""

    words: tuple[str, ...]
    as_json: bool
    reveals: bool


def parse(verb: str, argv: Sequence[str], *, usage: str, description: str, may_reveal: bool = False) -> Words:
    """Read the words; `may_reveal`: the verb takes --unsafe-print. Ends the program with help, or with exit code 2."""
    parser = argparse.ArgumentParser(
        prog=f"fermix {verb}",
        usage=usage,
        description=description,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if may_reveal:
        parser.add_argument("--unsafe-print", action="store_true", help="with `env get`: print the value itself")
    end = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(list(argv[:end]))
    return Words((*options.words, *argv[end:]), options.json, may_reveal and options.unsafe_print)


def ask(method: str, params: Mapping[str, object]) -> dict[str, object]:
    """Ask the daemon, or the files where none runs. Raises: Failed."""
    try:
        connection = Connection(socket_path(os.environ), client="sandbox")
        try:
            return connection.request(method, params)
        finally:
            connection.close()
    except DaemonNotRunning:
        return _ask_files(method, params)
    except RequestFailed as error:
        raise Failed(str(error), 2 if error.code == Code.INVALID_PARAMS else 1) from error
    except (OSError, DaemonGone) as error:
        raise Failed(f"cannot talk to the daemon: {error}") from error


def change(verb: str, words: Sequence[str], *, as_json: bool) -> int:
    """Make a change, after a yes when it opens anything; returns the exit code."""
    try:
        proposed = ask("sandbox.propose", {"words": list(words)})
        if proposed["widens"]:
            _agree(verb, str(proposed["text"]))
        applied = ask("sandbox.apply", {"words": list(words), "seal": proposed["seal"]})
    except Failed as error:
        return fail(verb, error, as_json=as_json)
    if as_json:
        output.print_json({"status": "ok", "text": applied["text"]})
    else:
        print(f"Done.\n{applied['text']}")
    return 0


def fail(verb: str, error: Failed, *, as_json: bool) -> int:
    """Say why; returns the exit code."""
    if error.code == 2 and not as_json:
        return output.wrong_use(verb, str(error))
    output.failed(verb, str(error), as_json=as_json)
    return error.code


def whole(path: str) -> str:
    """Return a path as seen from anywhere; the daemon stands elsewhere."""
    return path if path.startswith(("/", "~")) else os.path.abspath(path)  # noqa: PTH100 - pathlib's keeps ".."


def _agree(verb: str, text: str) -> None:
    """Show what is asked and wait for a yes. Raises: Failed without one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failed(
            f"this opens something, so it needs your yes at a terminal; run it there, or ask in a chat by `/{verb}`"
        )
    shown = "\n".join(line for line in text.splitlines() if line.strip("`"))
    print(f"{shown}\nType yes to agree: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() != "yes":
        raise Failed("nothing was changed")


def _ask_files(method: str, params: Mapping[str, object]) -> dict[str, object]:
    from fermix.cli.offline import answer, told
    from fermix.daemon.socket import RequestError
    from fermix.errors import FermixError
    from fermix.home import Home

    try:
        return answer(Home.locate(os.environ), os.environ, method, params)
    except RequestError as error:
        raise Failed(str(error), 2 if error.code == Code.INVALID_PARAMS else 1) from error
    except FermixError as error:
        raise Failed(told(error)) from error
