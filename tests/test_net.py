"""The one outbound HTTP client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest

from fermix import net as net_module
from fermix.errors import Refused
from fermix.net import Net, NetFailed, Timeouts
from tests.fakes.provider import Answer, ScriptedProvider
from tests.fakes.raw_server import serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(4)
    return head


async def post(net: Net, url: str, timeouts: Timeouts = Timeouts(), **headers: str) -> tuple[int, bytes]:  # noqa: B008
    async with (
        asyncio.timeout(5),
        net.post_stream(url, headers=headers, body=b"body", timeouts=timeouts) as response,
    ):
        return response.status, await response.read(1_000)


async def test_a_dead_pooled_connection_is_tried_once_more() -> None:
    connections = 0

    async def close_after_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(OK)
        if connections == 1:
            await reader.readuntil(b"\r\n\r\n")  # the second request arrives on this connection and gets no answer

    async with serving(close_after_one) as url, Net.open(loopback_only=True) as net:
        first = await post(net, url)
        second = await post(net, url)

    assert (first, second, connections) == ((200, b"ok"), (200, b"ok"), 2)


async def test_a_fresh_connection_that_is_closed_is_not_tried_again() -> None:
    connections = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)

    async with serving(hang_up) as url, Net.open(loopback_only=True) as net:
        with pytest.raises(NetFailed) as caught:
            await post(net, url)

    assert (caught.value.fault, connections) == ("closed", 1)


async def test_a_timeout_is_never_repeated() -> None:
    connections = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read()

    async with serving(silent) as url, Net.open(loopback_only=True) as net:
        with pytest.raises(NetFailed) as caught:
            await post(net, url, Timeouts(chunk_s=0.05))

    assert (caught.value.fault, connections) == ("timeout", 1)


async def test_the_whole_call_is_bounded() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(drip) as url, Net.open(loopback_only=True) as net:
        with pytest.raises(NetFailed) as caught:
            await post_all(net, url, Timeouts(chunk_s=1.0, total_s=0.1))

    assert caught.value.fault == "timeout"


async def post_all(net: Net, url: str, timeouts: Timeouts) -> None:
    async with asyncio.timeout(5), net.post_stream(url, headers={}, body=b"body", timeouts=timeouts) as response:
        while await response.next_chunk():
            pass


async def test_no_redirect_is_followed_with_a_key() -> None:
    """NET-07: a redirect is an answer like any other; the key goes nowhere else."""

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 307 Gone\r\nLocation: http://127.0.0.2:1/\r\nContent-Length: 0\r\n\r\n")

    async with serving(redirect) as url, Net.open(loopback_only=True) as net:
        status, _ = await post(net, url, Authorization="Bearer canary")

    assert status == 307


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """NET-05."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)

    async with serving(answer) as url, Net.open(loopback_only=True) as net:
        assert await post(net, url) == (200, b"ok")


@pytest.mark.parametrize("host", ["example.com", "10.0.0.1", "169.254.169.254", "[2001:db8::1]", "0.0.0.0", ""])
async def test_under_test_only_loopback_is_reached(host: str) -> None:
    async with Net.open(loopback_only=True) as net:
        with pytest.raises(Refused):
            await post(net, f"https://{host}/v1")


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://127.0.0.1:1/secret-path?key=canary", "unreachable"),
        ("ftp://127.0.0.1/secret-path?key=canary", "unreachable"),
        ("http://127.0.0.1:99999/secret-path?key=canary", "unreachable"),
    ],
)
async def test_a_failure_names_the_host_and_nothing_else_of_the_address(url: str, fault: str) -> None:
    """SEC-01: keys live in paths and queries too."""
    async with Net.open(loopback_only=True) as net:
        with pytest.raises(NetFailed) as caught:
            await post(net, url)

    assert caught.value.fault == fault
    assert "127.0.0.1" in str(caught.value)
    assert not any(secret in str(caught.value) for secret in ("secret-path", "canary"))


async def test_a_body_is_read_up_to_its_bound() -> None:
    async with ScriptedProvider([Answer(raw=b"x" * 5_000)]) as fake, Net.open(loopback_only=True) as net:
        request = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
        url = f"{fake.base_url}/chat/completions"
        async with net.post_stream(url, headers={}, body=request, timeouts=Timeouts()) as response:
            body = await response.read(1_000)

    assert body == b"x" * 1_000


async def test_an_answer_that_was_read_leaves_its_connection_for_the_next() -> None:
    connections = 0

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await read_request(reader)
            writer.write(OK)

    async with serving(keep) as url, Net.open(loopback_only=True) as net:
        for _ in range(3):
            await post(net, url)

    assert connections == 1


async def ask_pinned(url: str, addresses: Sequence[str], timeouts: Timeouts = Timeouts()) -> int:  # noqa: B008
    async with (
        asyncio.timeout(5),
        Net.open(loopback_only=True) as net,
        net.get_pinned(url, addresses, headers={}, timeouts=timeouts) as response,
    ):
        return response.status


async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)


async def test_a_pinned_call_tries_every_address_it_was_given() -> None:
    async with serving(answer_ok) as url:
        named = url.replace("127.0.0.1", "a.example")  # a number is not looked up
        assert await ask_pinned(named, ("127.0.0.9", "127.0.0.1")) == 200
        with pytest.raises(NetFailed):
            await ask_pinned(named, ("127.0.0.9",))


@pytest.mark.skipif(not socket.has_ipv6, reason="needs the second protocol")
async def test_a_pinned_call_goes_by_either_protocol() -> None:
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_ok(reader, writer)
        writer.close()
        await writer.wait_closed()
        closed.set()

    try:
        server = await asyncio.start_server(answer, "::1", 0)
    except OSError:
        pytest.skip("this machine has no address of the second protocol")
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await ask_pinned(f"http://a.example:{port}/", ("::1",)) == 200
        async with asyncio.timeout(5):
            await closed.wait()


async def test_a_pinned_call_is_bounded_as_it_says() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(silent) as url:
        with pytest.raises(NetFailed, match="no answer in time"):
            await ask_pinned(url, ("127.0.0.1",), Timeouts(chunk_s=0.05))


async def test_under_test_no_pinned_address_leaves_this_machine() -> None:
    with pytest.raises(Refused, match=r"10\.0\.0\.1"):
        await ask_pinned("http://localhost:1/", ("127.0.0.1", "10.0.0.1"))


async def test_a_closed_place_is_named_only_where_it_is_on_this_machine() -> None:
    """A name that others chose is not taken for a program of the owner that is not running."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    told: list[str] = []
    for host in ("127.0.0.1", "a.example"):
        with pytest.raises(NetFailed) as caught:
            await ask_pinned(f"http://{host}:{port}/", ("127.0.0.1",))
        told.append(caught.value.closed_address)

    assert told == [f"127.0.0.1:{port}", ""]


async def test_no_cookie_of_a_provider_is_kept() -> None:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_request(reader))
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: id=canary; Path=/\r\nConnection: close\r\n\r\n"))

    async with serving(answer) as url, Net.open(loopback_only=True) as net:
        for _ in range(2):  # a number has no cookies in any case
            assert await post(net, url.replace("127.0.0.1", "localhost")) == (200, b"ok")

    assert [b"canary" in head for head in heads] == [False, False]


async def test_no_more_of_an_answer_is_read_than_was_asked_for() -> None:
    async def never_ending(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_500)
        await reader.read()

    async with serving(never_ending) as url, Net.open(loopback_only=True) as net:
        assert await post(net, url) == (200, b"x" * 1_000)


async def test_no_connection_in_time_is_told() -> None:
    """A machine that is there and takes no more connections."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        async with Net.open(loopback_only=True) as net:
            with pytest.raises(NetFailed, match="no connection in time"):
                await post(net, f"http://127.0.0.1:{full.getsockname()[1]}/", Timeouts(connect_s=0.1, chunk_s=1.0))


async def test_a_name_that_is_not_found_in_time_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_module, "LOOK_UP_S", 0.0)
    async with Net.open(loopback_only=True) as net:
        with pytest.raises(NetFailed, match="not found in time") as caught:
            await net.resolve("localhost", 80)

    assert caught.value.fault == "timeout"
