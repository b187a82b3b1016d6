from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fermix.protocol import client, methods
from fermix.protocol.client import DaemonClient, DaemonGone, DaemonRefused
from tests.fakes.peer import answering, error, event, result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemon.sock"


async def test_it_says_hello_first_and_keeps_the_welcome(path: Path) -> None:
    with answering(path, lambda request: result(request, pid=7)) as peer:
        async with DaemonClient.connect(path, client="tui") as connection:
            assert connection.welcome == {"pid": 7}

    assert peer.asked[0]["method"] == "hello"
    assert peer.asked[0]["params"] == {"protocol": methods.PROTOCOL, "client": "tui"}


async def test_without_a_daemon_it_is_said_so(path: Path) -> None:
    with pytest.raises(DaemonGone, match="no daemon answers"):
        async with DaemonClient.connect(path, client="tui"):
            pass


async def test_another_protocol_of_the_daemon_is_told_in_its_words(path: Path) -> None:
    with (
        answering(path, lambda request: error(request, -32001, "this daemon speaks protocol 2, the client 1")),
        pytest.raises(DaemonRefused, match="speaks protocol 2") as caught,
    ):
        async with DaemonClient.connect(path, client="tui"):
            pass

    assert caught.value.code == methods.Code.PROTOCOL_MISMATCH
    assert caught.value.user_text == "this daemon speaks protocol 2, the client 1"


async def test_answers_reach_their_own_request_whatever_their_order(path: Path) -> None:
    held: list[bytes] = []

    def backwards(request: dict[str, object]) -> bytes:
        if request["method"] == "hello":
            return result(request)
        held.append(result(request, method=request["method"]))
        return b"".join(reversed(held)) if len(held) == 3 else b"\n"

    with answering(path, backwards):
        async with (
            asyncio.timeout(5),
            DaemonClient.connect(path, client="tui") as connection,
            asyncio.TaskGroup() as group,
        ):
            asked = [group.create_task(connection.request(name, {})) for name in ("a", "b", "c")]

    assert [task.result() for task in asked] == [{"method": "a"}, {"method": "b"}, {"method": "c"}]


async def test_events_come_in_order_and_unknown_answers_are_passed_over(path: Path) -> None:
    def chatty(request: dict[str, object]) -> bytes:
        stray = b'{"id": 99, "result": {}}\n{"id": "x"}\n{"odd": 1}\n'
        return stray + event("service", n=1) + event("service", n=2) + result(request)

    with answering(path, chatty):
        async with asyncio.timeout(5), DaemonClient.connect(path, client="tui") as connection:
            events = connection.events()
            assert [await anext(events) for _ in range(2)] == [("service", {"n": 1}), ("service", {"n": 2})]


@pytest.mark.parametrize("answer", [None, b"no json\n", b"[1]\n", b"x" * (methods.MAX_LINE_BYTES + 1)])
async def test_a_daemon_that_ends_or_raves_ends_requests_and_events(path: Path, answer: bytes | None) -> None:
    def once(request: dict[str, object]) -> bytes | None:
        return result(request) + event("service", n=1) if request["method"] == "hello" else answer

    with answering(path, once):
        async with asyncio.timeout(5), DaemonClient.connect(path, client="tui") as connection:
            events = connection.events()
            with pytest.raises(DaemonGone):
                await connection.request("status", {})
            assert await anext(events) == ("service", {"n": 1})
            with pytest.raises(DaemonGone):
                await anext(events)
            with pytest.raises(DaemonGone, match="closed"):
                await connection.request("status", {})


async def test_a_request_is_waited_for_for_a_bounded_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(path, lambda request: result(request) if request["method"] == "hello" else b"\n"):
        async with asyncio.timeout(5), DaemonClient.connect(path, client="tui") as connection:
            monkeypatch.setattr(client, "REQUEST_TIMEOUT_S", 0.01)
            with pytest.raises(DaemonGone, match="no answer to status"):
                await connection.request("status", {})


async def test_a_refusal_keeps_the_connection(path: Path) -> None:
    def refuse_once(request: dict[str, object]) -> bytes:
        return (
            error(request, -32602, "limit: too much")
            if request["method"] == "conversation.history"
            else result(request)
        )

    with answering(path, refuse_once):
        async with asyncio.timeout(5), DaemonClient.connect(path, client="tui") as connection:
            with pytest.raises(DaemonRefused, match="limit: too much"):
                await connection.request("conversation.history", {})
            assert await connection.request("status", {}) == {}
