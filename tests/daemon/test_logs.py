"""The log is private, bounded and clean, and a log that fails disturbs nobody."""

from __future__ import annotations

import io
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from fermix.config.secrets import Secret
from fermix.daemon import logs
from fermix.daemon.logs import configure_logging
from fermix.errors import ConfigError, NeedsOperator
from fermix.home import Home
from tests.requirements import covers

CANARY = "canary-4f9a/key+0123"
log = logging.getLogger("tests.logs")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture(autouse=True)
def _restored() -> Generator[None]:
    """Give the test runner its own logging back."""
    root = logging.getLogger()
    handlers, level, hooks = root.handlers[:], root.level, (sys.excepthook, threading.excepthook)
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)
    sys.excepthook, threading.excepthook = hooks


def written(home: Home) -> str:
    return home.log_file.read_text(encoding="utf-8")


@covers("home.logs")
def test_log_rotates_at_its_size_and_keeps_five_private_files(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 2_000)
    configure_logging(home, {})

    for number in range(200):
        log.info("line %d %s", number, "ü" * 50)

    files = sorted(home.logs.iterdir())
    assert [file.name for file in files] == ["fermix.log", *(f"fermix.log.{number}" for number in range(1, 5))]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert all(file.stat().st_size < 2_300 for file in files)
    assert "line 199 " in written(home)


def test_size_and_number_are_those_of_the_spec(home: Home) -> None:
    assert (logs.FILE_BYTES, logs.KEPT_FILES) == (10_000_000, 5)


def test_secret_reaches_neither_message_nor_traceback_nor_screen(home: Home) -> None:
    """SEC-01"""
    screen = io.StringIO()
    secret = Secret(CANARY)
    configure_logging(home, {}, screen=screen)

    log.info("calling https://api.example/bot%s/getMe", secret.reveal())
    try:
        raise ConnectionError(f"POST https://user:{secret.reveal()}@host/ failed")
    except ConnectionError:
        log.exception("transport failed")
    logging.getLogger("httpx").info("GET https://api.example/?key=%s", secret.reveal())
    logging.getLogger("aiohttp.access").info("GET /%s", secret.reveal())

    text = written(home)
    assert CANARY not in text + screen.getvalue()
    assert "ConnectionError: POST https://[redacted]@host/ failed" in text
    assert "api.example/?key" not in text
    assert text == screen.getvalue()


def test_crash_goes_to_the_log_and_the_terminal_gets_one_sentence(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = Secret(CANARY)
    configure_logging(home, {})

    try:
        raise ValueError(secret.reveal())
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    thread = threading.Thread(target=lambda: {}[CANARY], name="worker")
    thread.start()
    thread.join(5)

    errors = capsys.readouterr().err
    assert errors == "fermix: stopped by an error (ValueError); `fermix logs` has the details\n"
    assert "Traceback" in written(home)
    assert "KeyError" in written(home)
    assert CANARY not in written(home)


def test_foreign_text_cannot_drive_the_terminal_or_break_the_file(home: Home) -> None:
    configure_logging(home, {})

    log.info("esc \x1b[2J nul \0 bell \x07 lone \udc80 tab\t你好")
    log.info("%s", "x" * 100_000)

    text = written(home)
    assert "esc \\x1b[2J nul \\x00 bell \\x07 lone \\udc80 tab\t你好\n" in text
    assert "(+" in text
    assert len(text) < 70_000


def test_log_file_of_the_environment_is_used(home: Home, tmp_path: Path) -> None:
    configure_logging(home, {"FERMIX_LOG_FILE": str(tmp_path / "elsewhere.log")})
    log.info("hello")

    assert "tests.logs: hello" in (tmp_path / "elsewhere.log").read_text(encoding="utf-8")
    assert not home.log_file.exists()


def test_output_of_a_background_daemon_does_not_grow_with_the_log(home: Home, tmp_path: Path) -> None:
    with (tmp_path / "daemon.out").open("w+", encoding="utf-8") as output:
        configure_logging(home, {}, screen=output)
        log.info("hello")
        output.flush()

        assert (tmp_path / "daemon.out").stat().st_size == 0
    assert "hello" in written(home)


def test_screen_that_nobody_reads_holds_nobody_up(home: Home) -> None:
    """A full pipe, or a terminal stopped with Ctrl-S, must not stop the loop that logs to it."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w", encoding="utf-8") as screen:
        configure_logging(home, {}, screen=screen)
        for number in range(100):
            log.info("line %d %s", number, "你" * 1_000)

        assert b"line 0 " in os.read(reader.fileno(), 65_536)
        log.info("goes on")
        assert b"goes on" in os.read(reader.fileno(), 65_536)
    assert "line 99 " in written(home)


def test_place_that_cannot_be_used_is_named(home: Home, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="FERMIX_LOG_FILE: must be an absolute path"):
        configure_logging(home, {"FERMIX_LOG_FILE": "fermix.log"})
    with pytest.raises(NeedsOperator, match="No such file or directory"):
        configure_logging(home, {"FERMIX_LOG_FILE": str(tmp_path / "missing" / "x.log")})


def test_second_call_replaces_the_first(home: Home) -> None:
    configure_logging(home, {})
    configure_logging(home, {})
    log.info("once")

    assert written(home).count("once") == 1


def test_full_disk_costs_records_but_not_the_program(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(home, {"FERMIX_LOG_FILE": "/dev/full"})

    log.info("first")
    log.info("second")

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fermix: log records are lost: OSError at ")
    with pytest.raises(OSError, match="No space left"):
        logging.getLogger().handlers[0].close()


def test_mistake_in_a_log_call_is_said_with_its_place(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(home, {})

    log.info("%d", "no number")

    assert f"log records are lost: TypeError at {__file__}" in capsys.readouterr().err


def test_crash_of_the_whole_program_leaves_no_secret_behind(home: Home) -> None:
    program = (
        "import os\nfrom fermix.config.secrets import Secret\nfrom fermix.daemon.logs import configure_logging\n"
        "from fermix.home import Home\n"
        "configure_logging(Home.locate(os.environ), os.environ)\n"
        f"key = Secret({CANARY!r})\nraise RuntimeError('with ' + key.reveal())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"FERMIX_HOME": str(home.root), "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
    )

    assert done.returncode == 1
    assert CANARY not in done.stdout + done.stderr + written(home)
    assert "RuntimeError: with [redacted]" in written(home)
