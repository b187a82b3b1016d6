"""The daemon's log: one private rotating file, and no secret in any line of it, tracebacks included.

Called once by the composition root before anything else may log. A log that cannot be written is said once on
standard error and never disturbs the program.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import TextIO

from fermix.config.environment import log_file
from fermix.config.secrets import redact
from fermix.errors import NeedsOperator
from fermix.home import PRIVATE_FILE, Home

FILE_BYTES = 10_000_000
KEPT_FILES = 5  # the current one and four before it
SCREEN_CHARS = select.PIPE_BUF // 4  # a pipe that can be written to takes so much at once; UTF-8 has 1 to 4 bytes each
RECORD_CHARS = 65_536  # a longer one is cut; somebody else's error text may be of any size
QUIET = ("aiohttp", "httpx", "httpcore", "asyncio", "urllib3", "markdown_it")
"""Libraries that log addresses at INFO, and an address may hold a token (SEC-01)."""

log = logging.getLogger(__name__)


def configure_logging(home: Home, environ: Mapping[str, str], *, screen: TextIO | None = None) -> None:
    """Send every record to the log file, and to `screen` when one is given. A second call replaces the first.

    A screen that is a regular file gets nothing: a daemon in the background writes there, and nobody rotates it.

    Raises: ConfigError for a relative FERMIX_LOG_FILE, NeedsOperator when the file cannot be opened.
    """
    path = log_file(home, environ)
    try:
        handlers: list[logging.Handler] = [_PrivateFile(path)]
    except OSError as error:
        raise NeedsOperator(
            f"cannot open the log {path}: {error.strerror}", advice="set FERMIX_LOG_FILE to a file you can write"
        ) from error
    if screen is not None and not _is_file(screen):
        handlers.append(_Screen(screen))
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    for handler in handlers:
        handler.setFormatter(RedactingFormatter())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.excepthook = _log_crash
    threading.excepthook = _log_thread_crash


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Other people's text must not drive the terminal that shows the log."""


def _is_file(screen: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(screen.fileno()).st_mode)
    except OSError:  # a stream without a descriptor
        return False


class RedactingFormatter(logging.Formatter):
    """One record as text: time in UTC, level, logger, message, traceback; secrets replaced, length bounded."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if len(text) > RECORD_CHARS:
            text = f"{text[:RECORD_CHARS]}… (+{len(text) - RECORD_CHARS} characters)"
        return redact(text).translate(_CONTROLS)


class _LossIsSaidOnce(logging.Handler):
    """A handler whose first failure is one line on standard error, instead of a traceback for each record."""

    _said = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if self._said:
            return
        self._said = True
        kind = type(sys.exception()).__name__
        print(f"fermix: log records are lost: {kind} at {record.pathname}:{record.lineno}", file=sys.stderr)


class _PrivateFile(_LossIsSaidOnce, RotatingFileHandler):
    """The rotating file, each one made with mode 0600."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path, maxBytes=FILE_BYTES, backupCount=KEPT_FILES - 1, encoding="utf-8", errors="backslashreplace"
        )

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=_open_private)

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - logging's name
        """Judge by bytes on disk: logging's own test counts characters and formats each record a second time."""
        return self.stream is not None and os.fstat(self.stream.fileno()).st_size >= self.maxBytes


class _Screen(_LossIsSaidOnce, logging.StreamHandler[TextIO]):
    """The terminal of `fermix --daemon`. A stopped terminal or a pipe that nobody reads misses what it has no room for:
    the daemon does not wait for it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record) + self.terminator
            for at in range(0, len(text), SCREEN_CHARS):
                if not _has_room(self.stream):
                    return
                self.stream.write(text[at : at + SCREEN_CHARS])
                self.flush()
        except Exception:  # noqa: BLE001 - as logging's own handlers do
            self.handleError(record)


def _has_room(screen: TextIO) -> bool:
    try:
        descriptor = screen.fileno()
    except OSError:  # a stream without a descriptor
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write what nobody caught to the log, where it is redacted; the terminal gets one sentence."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    log.critical("stopped by an error nobody caught", exc_info=(kind, error, trace))
    print(f"fermix: stopped by an error ({kind.__name__}); `fermix logs` has the details", file=sys.stderr)


def _log_thread_crash(crash: threading.ExceptHookArgs) -> None:
    error = crash.exc_value
    log.critical("a thread was stopped by an error nobody caught", exc_info=error)
