"""`fermix ask`: one question, one answer, over the daemon's socket. Imports stay minimal: this verb is timed."""

from __future__ import annotations

import argparse
import os
import sys
import time

from fermix.cli import output
from fermix.cli.answer import Answer, Printer
from fermix.protocol.ask import (
    Connection,
    DaemonGone,
    DaemonNotRunning,
    LineTooLong,
    RequestFailed,
    socket_path,
)

TYPE_CHECKING = False  # to import `typing` for a name would cost milliseconds
if TYPE_CHECKING:
    from typing import NoReturn

DEFAULT_TIMEOUT_S = 300.0  # as the original: reference 3, section 7.6
MAX_ATTACHMENT_BYTES = 20 * 1024 * 1024
MAX_ATTACHMENTS = 16  # as many descriptors as the daemon takes with one message
STOP_WAIT_S = 5.0
TICK_S = 1.0
_GONE = "the daemon ended before it answered; `fermix start` starts it, then ask again"
_GONE_TAKEN = (
    "the daemon ended before it answered. Your question is kept: after `fermix start` the answer comes into this "
    "conversation, which `fermix` shows; do not ask again"
)


class Unfit(Exception):
    """The call cannot be carried out as written; the text says why."""


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    try:
        text = _prompt(options)
        attachments = [_open_attachment(path) for path in options.attach]
    except Unfit as problem:
        return output.wrong_use("ask", str(problem))
    try:
        connection = Connection(socket_path(os.environ), client="ask")
    except DaemonNotRunning:
        return output.not_running("ask", as_json=options.json)
    except (DaemonGone, RequestFailed, OSError) as error:
        return output.failed("ask", f"cannot talk to the daemon: {error}", as_json=options.json)
    try:
        return _converse(connection, options, text, attachments)
    finally:
        connection.close()
        for descriptor, _ in attachments:
            os.close(descriptor)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fermix ask", description="Ask one question and print the answer.", formatter_class=_Formatter
    )
    parser.add_argument("message", nargs="*", help="the question")
    parser.add_argument("-s", "--session", default="cli", help="conversation to use (default: cli)")
    parser.add_argument(
        "-t", "--timeout", type=_seconds, default=DEFAULT_TIMEOUT_S, help="seconds to wait (also 500ms, 90s, 5m)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--stdin", action="store_true", help="read the question, or more of it, from standard input")
    parser.add_argument("--attach", action="append", default=[], metavar="PATH", help="attach a file (repeatable)")
    parser.add_argument("--no-stream", action="store_true", help="print the answer when it is whole")
    return parser


class _Parser(argparse.ArgumentParser):
    """Takes a question that starts with a dash for options, as all programs do, and says what to do about it."""

    def error(self, message: str) -> NoReturn:
        if "ignored explicit argument" in message:
            message = "no such option"
        super().error(f"{message} (put `--` before a question that starts with a dash: fermix ask -- '-1 + 2')")


class _Formatter(argparse.HelpFormatter):
    """As wide as the terminal. To ask that, argparse imports shutil and three compressors, at each start."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS", "")) if "COLUMNS" in os.environ else os.get_terminal_size().columns
        except (ValueError, OSError):
            columns = 80
        super().__init__(prog, width=columns - 2)


def _seconds(text: str) -> float:
    unit = next(unit for unit in ("ms", "s", "m", "") if text.endswith(unit))
    factor = {"ms": 0.001, "m": 60.0}.get(unit, 1.0)
    try:
        seconds = float(text.removesuffix(unit)) * factor
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e7:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write seconds, or 500ms, 90s, 5m")
    return seconds


def _prompt(options: argparse.Namespace) -> str:
    session = str(options.session)
    if not (0 < len(session) <= 128 and session.isascii() and session.replace("-", "").replace("_", "").isalnum()):
        raise Unfit("--session takes 1 to 128 letters, digits, _ and -")
    parts = [" ".join(options.message)]
    if options.stdin:
        try:
            parts.append(sys.stdin.buffer.read().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise Unfit("standard input is not UTF-8 text; pass files with --attach") from error
    if len(options.attach) > MAX_ATTACHMENTS:
        raise Unfit(f"at most {MAX_ATTACHMENTS} files can be attached, got {len(options.attach)}")
    text = "\n\n".join(part for part in parts if part.strip())
    if not text and not options.attach:
        raise Unfit("the question is empty")
    return text


def _open_attachment(path: str) -> tuple[int, dict[str, str]]:
    """Open a regular file for the daemon to read. Returns the descriptor and its wire form."""
    import mimetypes
    import stat

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unfit(f"cannot attach {path}: {error.strerror}") from error
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        raise Unfit(f"cannot attach {path}: not a regular file")
    if state.st_size > MAX_ATTACHMENT_BYTES:
        raise Unfit(f"cannot attach {path}: larger than {MAX_ATTACHMENT_BYTES // 2**20} MiB")
    mime = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return descriptor, {"name": os.path.basename(path), "mime": mime}  # noqa: PTH119 - pathlib costs 10 ms


def _converse(
    connection: Connection, options: argparse.Namespace, text: str, attachments: list[tuple[int, dict[str, str]]]
) -> int:
    message_id = os.urandom(16).hex()  # uuid asks the platform who it is first
    printer = Printer(as_json=options.json, stream=not options.no_stream)
    message: dict[str, object] = {
        "id": message_id,
        "session": options.session,
        "text": text,
        "cwd": _working_directory(),
        "attachments": [wire for _, wire in attachments],
    }
    is_taken = False
    try:
        connection.request("events.subscribe", {"sessions": [options.session], "services": True})
        connection.request("message.send", message, descriptors=[descriptor for descriptor, _ in attachments])
        is_taken = True  # it is on disk: the next daemon answers it, and asked again it would be answered twice
        answer = _follow(connection, printer, Answer(message_id, options.session), options.timeout)
    except KeyboardInterrupt:
        return _interrupted(connection, printer, message_id, options.session)
    except TimeoutError:
        _stop(connection, message_id, options.session)
        return printer.failed(
            options.session, "timeout", f"no answer within {options.timeout:g} s; the turn was stopped"
        )
    except (DaemonGone, OSError):
        return printer.failed(options.session, "daemon_gone", _GONE_TAKEN if is_taken else _GONE)
    except LineTooLong as error:
        return printer.failed(options.session, "too_long", f"{error}; save it as a file and ask about its path")
    except RequestFailed as error:
        return printer.failed(options.session, "refused", str(error))
    return printer.finish(answer)


def _follow(connection: Connection, printer: Printer, answer: Answer, timeout_s: float) -> Answer:
    """Fold events until this message is settled. A running download does not count against the time."""
    began_at = time.monotonic()
    deadline = began_at + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        printer.waiting(time.monotonic() - began_at)
        connection.wait_s(min(left_s, TICK_S))
        try:
            name, params = next(connection.events())
        except TimeoutError:
            continue
        if name == "download":
            deadline = time.monotonic() + timeout_s
        printer.show(answer, name, params)
        if answer.take(name, params):
            return answer
    raise TimeoutError


def _interrupted(connection: Connection, printer: Printer, message_id: str, session: str) -> int:
    _stop(connection, message_id, session)
    printer.interrupted()
    return 130


def _stop(connection: Connection, message_id: str, session: str) -> None:
    """Stop the turn in the daemon and wait until it says so."""
    try:
        connection.wait_s(STOP_WAIT_S)
        connection.request("turn.stop", {"session": session, "message_id": message_id})
        answer = Answer(message_id, session)
        for name, params in connection.events():
            if answer.take(name, params):
                return
    except (OSError, DaemonGone, RequestFailed):
        return  # the daemon is gone or busy: nothing more can be done from here


def _working_directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib costs 10 ms
    except OSError:
        return None  # the directory was deleted under us
