"""Names that somebody else serves."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from fermix.lookup import MOST_AT_ONCE, LookUps


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The system's resolver, which answers when the test lets it."""
    go_on = threading.Event()

    def answer(host: str, port: int, **options: object) -> list[object]:
        go_on.wait(5)
        return [
            (2, 1, 6, "", ("192.0.2.1", port)),
            (2, 1, 6, "", ("192.0.2.1", port)),
            (10, 1, 6, "", ("::1", port, 0, 0)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    yield go_on
    go_on.set()


async def test_each_address_comes_once_in_order(hanging: threading.Event) -> None:
    hanging.set()

    assert await LookUps().find("a.example", 80, 5) == ("192.0.2.1", "::1")


async def test_a_number_is_its_own_address() -> None:
    assert await LookUps().find("127.0.0.1", 80, 5) == ("127.0.0.1",)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "..", "x\0y"])
async def test_what_cannot_be_a_name_is_an_error(host: str) -> None:
    with pytest.raises((OSError, ValueError)):
        await LookUps().find(host, 80, 5)


async def test_hanging_names_are_bounded_in_time_and_number(hanging: threading.Event) -> None:
    """R-54: whoever serves a name can let it hang; nobody else waits for it."""
    look_ups = LookUps()
    for _ in range(MOST_AT_ONCE):
        with pytest.raises(TimeoutError):
            await look_ups.find("slow.example", 80, 0.001)
    with pytest.raises(OSError, match="too many names"):
        await look_ups.find("other.example", 80, 5)

    hanging.set()
    async with asyncio.timeout(5):
        while threading.active_count() > 1 and any(thread.name == "lookup" for thread in threading.enumerate()):
            await asyncio.sleep(0)
    assert await look_ups.find("other.example", 80, 5) == ("192.0.2.1", "::1")


def test_a_loop_that_ends_does_not_wait_for_one(hanging: threading.Event) -> None:
    """A stop of the daemon is not held up by somebody's name server."""

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await LookUps().find("slow.example", 80, 0.001)

    asyncio.run(leave())

    assert any(thread.name == "lookup" and thread.daemon for thread in threading.enumerate())
