"""What a model, a page or a server chose to be asked for: judged, pinned, bounded."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fermix import net as net_module
from fermix.errors import FermixError, Refused, Unusable
from fermix.net import Net, NetFailed
from fermix.public import BODY_BYTES, Fetched, PublicWeb
from fermix.tls import make_context
from tests.fakes.authority import Authority
from tests.fakes.internet import SERVER, Internet, Site
from tests.fakes.raw_server import serving


@pytest.fixture
async def internet() -> AsyncIterator[Internet]:
    async with Internet.open() as opened:
        yield opened


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    async with Net.open(loopback_only=True) as opened:
        yield opened


async def fetch(web: PublicWeb, url: str, **headers: str) -> Fetched:
    async with asyncio.timeout(5):
        return await web.get(url, headers)


def redirect(to: str, status: int = 302) -> Site:
    return Site(status=status, headers={"Location": to})


async def test_a_page_comes_with_its_type_and_where_it_came_from(internet: Internet, net: Net) -> None:
    internet.sites["a.example/p"] = Site(b"<p>hi", 'Text/HTML; Charset="ISO-8859-1"')

    page = await fetch(internet.web(net), internet.url("a.example/p#part"))

    assert page == Fetched(200, internet.url("a.example/p"), "text/html", "iso-8859-1", b"<p>hi", cut=False)
    [asked] = internet.asked
    assert asked.headers["Host"] == f"a.example:{internet.port}"
    assert asked.headers["User-Agent"].startswith("fermix/")
    assert "Cookie" not in asked.headers


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:9/", "http://169.254.169.254/latest/", "//[::1]/", "http://2130706433/", "http://localhost/",
        "file:///etc/passwd", "http://u:p@a.example/",
    ],
)  # fmt: skip
async def test_a_redirect_to_the_inside_is_not_followed(internet: Internet, net: Net, location: str) -> None:
    """NET-01, R-41."""
    internet.sites["a.example/"] = redirect(location)

    with pytest.raises(Refused):
        await fetch(internet.web(net), internet.url("a.example/"))

    assert [request.path for request in internet.asked] == ["/"]


async def test_a_name_that_leads_inside_is_refused_also_behind_a_redirect(internet: Internet, net: Net) -> None:
    """NET-01: each hop is looked up and judged."""
    internet.names["inside.example"] = ("10.0.0.7",)
    internet.sites["a.example/"] = redirect(internet.url("inside.example/"))

    for url in (internet.url("a.example/"), internet.url("inside.example/")):
        with pytest.raises(Refused, match=r"inside\.example leads to an address inside"):
            await fetch(internet.web(net), url)

    assert len(internet.asked) == 1


@pytest.mark.parametrize("inside", ["10.0.0.1", "::ffff:10.0.0.1", "fd00::1", "169.254.169.254", "nonsense"])
async def test_one_answer_from_inside_spoils_all(internet: Internet, net: Net, inside: str) -> None:
    """NET-02, NET-03: every answer is judged."""
    internet.names["mixed.example"] = (SERVER, inside)

    with pytest.raises(Refused, match=r"mixed\.example leads to an address inside"):
        await fetch(internet.web(net), internet.url("mixed.example/"))

    assert internet.asked == []


async def test_every_answer_is_judged_and_only_the_first_four_are_tried(internet: Internet, net: Net) -> None:
    """NET-02: a long list neither hides an address inside nor costs a minute."""
    internet.names |= {
        "long.example": (*[SERVER] * 4, "10.0.0.1"),
        "dead.example": (*[f"127.0.0.{last}" for last in range(11, 15)], SERVER),
    }
    web = PublicWeb(net, resolve=internet._resolve, is_allowed=lambda address: address.startswith("127."))

    with pytest.raises(Refused, match="leads to an address inside"):
        await fetch(web, internet.url("long.example/"))
    with pytest.raises(NetFailed):
        await fetch(web, internet.url("dead.example/"))

    assert internet.asked == []


async def test_a_redirect_without_a_host_stays_where_it_was_said(internet: Internet, net: Net) -> None:
    internet.sites |= {
        "a.example/": redirect(internet.url("b.example/")), "b.example/": redirect("next"),
        "b.example/next": Site(b"ok"),
    }  # fmt: skip

    page = await fetch(internet.web(net), internet.url("a.example/"))

    assert (page.url, page.body) == (internet.url("b.example/next"), b"ok")


async def test_a_resolver_that_changes_its_mind_gains_nothing(internet: Internet, net: Net) -> None:
    """NET-02: looked up once a hop; the connection goes to what was judged."""
    answers = iter([(SERVER,), ("10.0.0.1",)])
    looked_up: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        looked_up.append(host)
        return next(answers)

    internet.sites["a.example/"] = Site(b"ok")
    web = PublicWeb(net, resolve=resolve, is_allowed=lambda address: address == SERVER)

    first = await fetch(web, internet.url("a.example/"))
    with pytest.raises(Refused):
        await fetch(web, internet.url("a.example/"))

    assert (first.body, looked_up, len(internet.asked)) == (b"ok", ["a.example", "a.example"], 1)


async def test_without_a_resolver_of_a_test_loopback_is_not_public(internet: Internet, net: Net) -> None:
    """R-41: nothing in the program itself lets a model reach this machine."""
    with pytest.raises(Refused, match="not an address on the public internet"):
        await fetch(PublicWeb(net), f"http://127.0.0.1:{internet.port}/")
    with pytest.raises(Refused):
        await fetch(PublicWeb(net, resolve=internet.web(net)._resolve), internet.url("a.example/"))

    assert internet.asked == []


async def test_the_certificate_is_checked_for_the_name(
    tmp_path: Path, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NET-02: the address is pinned, the name stays in SNI, certificate and Host."""
    authority = Authority(tmp_path, "a.example")
    monkeypatch.setattr(net_module, "client_context", lambda: make_context({"SSL_CERT_FILE": str(authority.file)}))
    names: list[str | None] = []
    hosts: list[bytes] = []

    def note(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        names.append(name)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        hosts.append(head.lower().partition(b"host: ")[2].partition(b"\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()

    async def resolve(host: str, port: int) -> Sequence[str]:
        return (SERVER,)

    authority.server_side.sni_callback = note
    server = await asyncio.start_server(answer, SERVER, 0, ssl=authority.server_side)
    port = server.sockets[0].getsockname()[1]
    web = PublicWeb(net, resolve=resolve, is_allowed=lambda address: address == SERVER)
    async with server:
        page = await fetch(web, f"https://a.example:{port}/")
        with pytest.raises(NetFailed) as caught:
            await fetch(web, f"https://b.example:{port}/")

    assert (page.body, caught.value.fault) == (b"ok", "tls")
    assert (names, hosts) == (["a.example", "b.example"], [f"a.example:{port}".encode()])


async def test_no_proxy_of_the_environment_sees_it(
    internet: Internet, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NET-05."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    internet.sites["a.example/"] = Site(b"ok")

    assert (await fetch(internet.web(net), internet.url("a.example/"))).body == b"ok"


async def test_a_header_stays_with_the_origin_it_was_for(internet: Internet, net: Net) -> None:
    """NET-07: kept on the same origin, gone behind a redirect to another, and not taken up again on the way back."""
    internet.sites |= {
        "a.example/1": redirect("/2", 301),
        "a.example/2": redirect(internet.url("b.example/3"), 308),
        "b.example/3": redirect(internet.url("a.example/4")),
        "a.example/4": Site(b"end"),
    }

    page = await fetch(internet.web(net), internet.url("a.example/1"), Authorization="Bearer canary")

    assert page.body == b"end"
    assert [request.headers.get("Authorization") for request in internet.asked] == ["Bearer canary"] * 2 + [None] * 2


async def test_no_cookie_is_kept(internet: Internet, net: Net) -> None:
    internet.sites["a.example/"] = Site(status=303, headers={"Location": "/next", "Set-Cookie": "id=1; Path=/"})
    internet.sites["a.example/next"] = Site(b"ok")

    await fetch(internet.web(net), internet.url("a.example/"))

    assert ["Cookie" in request.headers for request in internet.asked] == [False, False]


async def test_redirects_end_after_five(internet: Internet, net: Net) -> None:
    """Reference 4, section 4.3."""
    internet.sites |= {f"a.example/{number}": redirect(f"/{number + 1}") for number in range(6)}
    internet.sites["a.example/6"] = Site(b"too far")

    page = await fetch(internet.web(net), internet.url("a.example/1"))
    with pytest.raises(Unusable, match="more than 5 redirects"):
        await fetch(internet.web(net), internet.url("a.example/0"))

    assert page.body == b"too far"


async def test_a_redirect_without_a_place_is_an_answer(internet: Internet, net: Net) -> None:
    internet.sites["a.example/"] = Site(b"choose", status=300)

    assert (await fetch(internet.web(net), internet.url("a.example/"))).status == 300


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"hello " * 100)),
        ("X-Gzip", gzip.compress(b"hello " * 100)),
        ("deflate", zlib.compress(b"hello " * 100)),
        ("deflate", raw_deflate(b"hello " * 100)),
        ("identity", b"hello " * 100),
    ],
)
async def test_a_packed_answer_is_unpacked(internet: Internet, net: Net, encoding: str, packed: bytes) -> None:
    internet.sites["a.example/"] = Site(packed, headers={"Content-Encoding": encoding})

    page = await fetch(internet.web(net), internet.url("a.example/"))

    assert (page.body, page.cut) == (b"hello " * 100, False)
    assert internet.asked[0].headers["Accept-Encoding"] == "gzip, deflate"


@pytest.mark.parametrize(("encoding", "packed"), [("br", b"x"), ("zstd", b"x"), ("gzip, gzip", b"x"), ("gzip", b"no")])
async def test_what_cannot_be_unpacked_within_a_bound_is_not(
    internet: Internet, net: Net, encoding: str, packed: bytes
) -> None:
    internet.sites["a.example/"] = Site(packed, headers={"Content-Encoding": encoding})

    with pytest.raises(Unusable):
        await fetch(internet.web(net), internet.url("a.example/"))


async def test_a_bomb_is_refused_before_it_is_unpacked(internet: Internet, net: Net) -> None:
    """NET-06, R-54: a hundred megabytes in a hundred kilobytes."""
    bomb = gzip.compress(bytes(100_000_000), 9)
    internet.sites["a.example/"] = Site(bomb, headers={"Content-Encoding": "gzip"})

    with pytest.raises(Refused, match="bomb"):
        await fetch(internet.web(net), internet.url("a.example/"))


async def test_a_body_that_just_fits_is_whole(internet: Internet, net: Net) -> None:
    internet.sites["a.example/"] = Site(b"x" * BODY_BYTES)

    page = await fetch(internet.web(net), internet.url("a.example/"))

    assert (len(page.body), page.cut) == (BODY_BYTES, False)


async def test_a_body_is_cut_at_its_bound_while_it_arrives(net: Net) -> None:
    """NET-06: fifty megabytes were announced, and one was taken."""
    sent_bytes = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_bytes
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n")
        while sent_bytes < 52_428_800:
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent_bytes += 65_536

    async with serving(flood) as url:
        page = await fetch(_web(net), url.replace("127.0.0.1", "a.example"))

    assert (len(page.body), page.cut, page.media_type) == (BODY_BYTES, True, "")
    assert sent_bytes < 20 * BODY_BYTES  # the rest stayed in buffers of the system


async def test_what_follows_a_packed_body_is_not_read(net: Net) -> None:
    """R-54: a server that sends on for ever behind the end gets neither memory nor time."""

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"hello"))
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    async with asyncio.timeout(5), serving(flood) as url:
        page = await fetch(_web(net), url.replace("127.0.0.1", "a.example"))

    assert (page.body, page.cut) == (b"hello", False)


def _web(net: Net) -> PublicWeb:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return (SERVER,)

    return PublicWeb(net, resolve=resolve, is_allowed=lambda address: address == SERVER)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: a\r\n" % number for number in range(10_000)) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://\xff\xfe/\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
)
async def test_a_server_that_talks_nonsense_costs_one_error(net: Net, answer: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async with serving(talk) as url:
        with pytest.raises(FermixError):
            await fetch(_web(net), url.replace("127.0.0.1", "a.example"))


async def test_a_type_of_odd_bytes_is_no_type(net: Net) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/\xff\xfehtml; charset=\xf0\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(talk) as url:
        page = await fetch(_web(net), url.replace("127.0.0.1", "a.example"))

    assert (page.media_type, page.charset) == ("text/html", "")


async def test_a_type_with_a_number_of_five_thousand_digits_is_a_type(net: Net) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        parts = b"text/html; charset*" + b"9" * 5_000 + b"*=x"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + parts + b"\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(talk) as url:
        page = await fetch(_web(net), url.replace("127.0.0.1", "a.example"))

    assert page.media_type == "text/html"


async def test_the_whole_is_bounded(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-54: a server that sends a byte now and then is left."""
    monkeypatch.setattr("fermix.public.WHOLE_S", 0.2)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(drip) as url:
        with pytest.raises(NetFailed) as caught:
            await fetch(_web(net), url.replace("127.0.0.1", "a.example"))

    assert caught.value.fault == "timeout"


async def test_under_test_no_name_is_looked_up(net: Net) -> None:
    with pytest.raises(Refused, match="loopback addresses only"):
        await fetch(PublicWeb(net), "http://a.example/")


async def test_a_name_nobody_has_is_told(net: Net) -> None:
    async def nobody(host: str, port: int) -> Sequence[str]:
        return ()

    with pytest.raises(NetFailed, match="the name has no address"):
        await fetch(PublicWeb(net, resolve=nobody), "http://a.example/")
    assert await net.resolve("127.0.0.1", 80) == ("127.0.0.1",)
