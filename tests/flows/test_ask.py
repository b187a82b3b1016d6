"""`fermix ask` against the real daemon over the real socket, with a scripted model over real HTTP."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.flows.product import Product, compatible, running, scripted
from tests.requirements import covers

pytestmark = pytest.mark.slow


@pytest.fixture
def product(tmp_path: Path) -> Generator[Product]:
    answers: list[dict[str, object]] = [{"text": "Hello from the script."}]
    with scripted(tmp_path, answers) as url, running(tmp_path, compatible(url)) as product:
        yield product


@covers("cli.ask.one-shot", "daemon.socket.unix", "daemon.headless", "reply.by-channel-api")
def test_a_question_is_answered_in_plain_text_when_piped(product: Product) -> None:
    done = product.run("ask", "hello")

    assert (done.returncode, done.stdout) == (0, "Hello from the script.\n")
    assert "openai_compatible/scripted" in done.stderr


def test_json_holds_answer_session_and_model(product: Product) -> None:
    done = product.run("ask", "--json", "--session", "work", "hello")
    answer = json.loads(done.stdout)

    assert done.returncode == 0
    assert answer["status"] == "ok"
    assert answer["response"] == "Hello from the script."
    assert answer["session_id"] == "work"
    assert answer["model"] == "openai_compatible/scripted"
    assert answer["usage"]["input_tokens"] > 0


def test_the_question_may_come_from_standard_input(product: Product) -> None:
    assert product.run("ask", "--stdin", stdin="grüße 你好".encode()).returncode == 0


@pytest.mark.parametrize(
    ("argv", "stdin", "says"),
    [
        (("ask",), b"", "empty"),
        (("ask", "  "), b"", "empty"),
        (("ask", "--stdin"), b"", "empty"),
        (("ask", "--stdin"), b"\xff\xfe\x00binary", "not UTF-8"),
        (("ask", "--session", "no spaces", "hi"), b"", "--session"),
        (("ask", "--attach", "missing.png", "hi"), b"", "missing.png"),
        (("ask", "--attach", "/", "hi"), b"", "not a regular file"),
        (("ask", *("--attach", "/dev/null") * 17, "hi"), b"", "at most 16 files can be attached, got 17"),
        (("ask", "--bogus", "hi"), b"", "--bogus"),
        (("ask", "-hello"), b"", "put `--` before a question"),
        (("ask", "--timeout", "soon", "hi"), b"", "no time"),
        (("bogus",), b"", "bogus"),
        (("--bogus",), b"", "--bogus"),
    ],
)
def test_wrong_use_is_said_in_one_sentence_with_exit_2(
    product: Product, argv: tuple[str, ...], stdin: bytes, says: str
) -> None:
    done = product.run(*argv, stdin=stdin)

    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_prompt_of_5_mb_is_refused_with_what_to_do(product: Product) -> None:
    done = product.run("ask", "--stdin", stdin=b"words " * 900_000)

    assert done.returncode == 1
    assert "save it as a file and ask about its path" in done.stderr
    assert product.run("ask", "still there?").returncode == 0


def test_text_files_and_pictures_are_attached(product: Product) -> None:
    (product.user_home / "note.txt").write_text("the number is 7", encoding="utf-8")
    assert product.run("ask", "--attach", "note.txt", "what?").returncode == 0
    (product.user_home / "blob.bin").write_bytes(b"\x00\xff\x00")
    refused = product.run("ask", "--attach", "blob.bin", "what?")

    assert refused.returncode == 1
    assert "blob.bin is neither a picture nor UTF-8 text" in refused.stderr


def test_without_a_daemon_ask_says_what_to_type_and_exits_3(tmp_path: Path) -> None:
    product = Product(tmp_path)
    product.prepare()
    for argv in (("ask", "hi"), ("status",), ("stop",)):
        done = product.run(*argv)
        assert (done.returncode, done.stdout) == (3, "")
        assert ("fermix start" in done.stderr) == (argv != ("stop",))
    assert json.loads(product.run("ask", "--json", "hi").stdout)["error"] == "not_running"


def test_ctrl_c_stops_the_turn_in_the_daemon(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"text": "late", "delay_s": 30}]) as url, running(tmp_path, compatible(url)) as product:
        client = product.spawn("ask", "hi")
        _until(lambda: product.status()["turns_running"] == 1)
        client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=10)

        assert client.returncode == 130
        assert "stopped" in err
        assert product.status()["turns_running"] == 0


def test_a_timeout_stops_the_turn_too(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"text": "late", "delay_s": 30}]) as url, running(tmp_path, compatible(url)) as product:
        done = product.run("ask", "--timeout", "500ms", "hi")

        assert done.returncode == 1
        assert "no answer within 0.5 s" in done.stderr
        assert product.status()["turns_running"] == 0


def test_a_client_that_is_killed_does_not_take_its_turn_along(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"text": "kept", "delay_s": 1}]) as url, running(tmp_path, compatible(url)) as product:
        client = product.spawn("ask", "hi")
        _until(lambda: product.status()["turns_running"] == 1)
        client.kill()
        client.communicate(timeout=5)
        _until(lambda: product.status()["turns_running"] == 0)

        assert product.run("ask", "again").returncode == 0


def test_a_daemon_that_is_killed_in_a_turn_is_told_in_one_sentence(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"text": "late", "delay_s": 30}]) as url, running(tmp_path, compatible(url)) as product:
        client = product.spawn("ask", "hi")
        _until(lambda: product.status()["turns_running"] == 1)
        product.kill()
        _, err = client.communicate(timeout=10)

        assert client.returncode == 1
        assert "the daemon ended before it answered. Your question is kept" in err
        assert "do not ask again" in err
        product.start()
        assert product.run("stop").returncode == 0


def _until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"


@pytest.mark.parametrize("verb", ["ask", "status", "stop", "start"])
def test_a_relative_home_is_named_by_every_verb(tmp_path: Path, verb: str) -> None:
    """CFG-06: a relative home is refused, not taken for a home without a daemon."""
    product = Product(tmp_path, extra={"FERMIX_HOME": "relative"})
    product.prepare()
    done = product.run(verb, *(["hi"] if verb == "ask" else []))

    assert done.returncode == 1
    assert "absolute path" in done.stderr
