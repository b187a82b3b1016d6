from __future__ import annotations

import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from fermix.home import Home
from fermix.protocol import ask, methods
from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning, LineTooLong, RequestFailed, socket_path
from tests.fakes.peer import Answer, Peer, answering, error, event, result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemon.sock"


@pytest.fixture
def polite(path: Path) -> Generator[Peer]:
    with answering(path, lambda request: result(request, pid=7)) as peer:
        yield peer


def test_it_says_the_same_words_as_the_protocol() -> None:
    """It must not import them, to stay quick."""
    assert (ask.PROTOCOL, ask.MAX_LINE_BYTES) == (methods.PROTOCOL, methods.MAX_LINE_BYTES)


def test_hello_is_said_first_and_answered_with_the_welcome(path: Path, polite: Peer) -> None:
    connection = Connection(str(path), client="ask")
    connection.close()

    assert connection.welcome == {"pid": 7}
    assert polite.asked == [
        {"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"protocol": methods.PROTOCOL, "client": "ask"}}
    ]


def test_without_a_daemon_it_is_said_so(path: Path) -> None:
    for path_to_try in (path, path / "below", _left_behind(path)):
        with pytest.raises(DaemonNotRunning):
            Connection(str(path_to_try), client="ask")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _left_behind(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path.with_name("stale.sock")))
    return path.with_name("stale.sock")


def test_another_protocol_of_the_daemon_is_told_in_its_words(path: Path) -> None:
    refuse: Answer = lambda request: error(request, -32001, "this daemon speaks protocol 2, the client 1")  # noqa: E731
    with answering(path, refuse), pytest.raises(RequestFailed, match="speaks protocol 2") as caught:
        Connection(str(path), client="ask")

    assert caught.value.code == methods.Code.PROTOCOL_MISMATCH


def test_news_that_arrive_before_an_answer_are_kept_for_later_in_order(path: Path) -> None:
    def chatty(request: dict[str, object]) -> bytes:
        return event("service", n=1) + event("service", n=2) + result(request, ok=True) + event("service", n=3)

    with answering(path, chatty):
        connection = Connection(str(path), client="ask")
        assert connection.request("status", {}) == {"ok": True}
        events = connection.events()
        assert [next(events)[1]["n"] for _ in range(6)] == [1, 2, 3, 1, 2, 3]
        connection.close()


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (None, DaemonGone),
        (b"no json\n", DaemonGone),
        (b"[1]\n", DaemonGone),
        (b"\xff\n", DaemonGone),
        (b"half a line", TimeoutError),
    ],
)
def test_a_daemon_that_breaks_off_or_raves_is_told_by_its_own_error(
    path: Path, answer: bytes | None, raised: type[Exception]
) -> None:
    def once(request: dict[str, object]) -> bytes | None:
        return result(request) if request["method"] == "hello" else answer

    with answering(path, once):
        connection = Connection(str(path), client="ask")
        connection.wait_s(0.05)
        with pytest.raises(raised):
            connection.request("status", {})
        connection.close()


def test_a_failed_hello_leaves_no_descriptor_open(path: Path) -> None:
    with answering(path, lambda _: None):
        before = open_descriptors()
        with pytest.raises(DaemonGone):
            Connection(str(path), client="ask")

        assert open_descriptors() <= before


def test_a_line_over_the_bound_is_not_sent(path: Path, polite: Peer) -> None:
    connection = Connection(str(path), client="ask")
    with pytest.raises(LineTooLong, match=r"at most 4194304"):
        connection.request("message.send", {"text": "x" * methods.MAX_LINE_BYTES})
    connection.close()

    assert len(polite.asked) == 1


@pytest.mark.parametrize("environ", [{}, {"FERMIX_HOME": " "}, {"FERMIX_HOME": "/srv/a"}, {"FERMIX_HOME": "~/b"}])
def test_it_looks_where_the_home_is(environ: dict[str, str]) -> None:
    assert socket_path(environ) == str(Home.locate(environ).daemon_socket)
