"""What may never be said of a web address that the guard lets through: a second opinion, and addresses to try.

Written from the registries of IANA with numbers alone, so that a mistake of `fermix/addresses.py` is not made twice.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from hypothesis import strategies as st
from yarl import URL

from fermix.addresses import is_public, parse
from fermix.errors import Refused

# (first number of the block, length of its prefix)
CLOSED_V4 = (
    (0x00000000, 8),
    (0x0A000000, 8),
    (0x64400000, 10),
    (0x7F000000, 8),
    (0xA83F8110, 32),
    (0xA9FE0000, 16),
    (0xAC100000, 12),
    (0xC0000000, 24),
    (0xC0000200, 24),
    (0xC0586300, 24),
    (0xC0A80000, 16),
    (0xC6120000, 15),
    (0xC6336400, 24),
    (0xCB007100, 24),
    (0xE0000000, 3),
)
MAPPED = 0xFFFF << 32


def is_inside(number: int, bits: int) -> bool:
    """Tell whether an address of 32 or 128 bits is anything but a host on the public internet."""
    if bits == 32:
        return any(number >> (32 - length) == first >> (32 - length) for first, length in CLOSED_V4)
    if number >> 32 == 0xFFFF:
        return is_inside(number & 0xFFFFFFFF, 32)
    if number >> 125 != 0b001:
        return True
    top = number >> 96
    return top >> 9 == 0x20010000 >> 9 or top == 0x20010DB8 or top >> 16 == 0x2002 or top >> 12 == 0x3FFF0


def check_number(text: str) -> None:
    """Whatever counts as public is one address for the system too, and not inside. Raises: AssertionError."""
    if not is_public(text):
        return
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    packed = socket.inet_pton(family, text)
    assert not is_inside(int.from_bytes(packed, "big"), len(packed) * 8)
    assert ipaddress.ip_address(packed).is_global or text.lower().startswith("::ffff:")


def check_url(url: str) -> None:
    """An address is refused with a sentence, or is one that everybody reads alike. Raises: AssertionError."""
    try:
        target = parse(url)
    except Refused as error:
        if not error.user_text:
            raise AssertionError(f"{url!r} is refused without a word") from error
        return
    assert parse(target.url) == target
    assert target.scheme in ("http", "https")
    assert target.url.isascii()
    assert target.url.isprintable()
    assert " " not in target.url
    assert urlsplit(target.url).username is None
    assert urlsplit(target.url).hostname == target.host == URL(target.url).raw_host
    assert (
        (urlsplit(target.url).port or {"http": 80, "https": 443}[target.scheme]) == target.port == URL(target.url).port
    )
    check_host(target.host)


def check_host(host: str) -> None:
    """A name is no number for anybody, not even for the oldest of the C library's readers; a number is public."""
    try:
        number = int.from_bytes(socket.inet_aton(host), "big")
    except OSError:
        if ":" in host:
            check_number(host)
            assert is_public(host)
        else:
            assert "." in host
            assert not f".{host}".endswith((".localhost", ".local", ".internal"))
        return
    assert not is_inside(number, 32)
    assert host == str(ipaddress.IPv4Address(number))


NUMBERS = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from(CLOSED_V4).flatmap(
        lambda block: st.integers(-1, 2 ** (32 - block[1])).map(lambda more: (block[0] + more) % 2**32)
    ),
)


@st.composite
def spelled_v4(draw: st.DrawFn) -> str:
    """An IPv4 address in one of the ways in which C libraries and browsers read it."""
    number = draw(NUMBERS)
    count = draw(st.integers(1, 4))
    parts = [(number >> (24 - 8 * index)) & 0xFF for index in range(count - 1)] + [
        number & (2 ** (8 * (5 - count)) - 1)
    ]
    forms = draw(
        st.lists(st.sampled_from(["{:d}", "{:#x}", "0{:o}", "0x{:08X}", "{:03d}"]), min_size=count, max_size=count)
    )
    dot = draw(st.sampled_from([".", ".", ".", "。", "．"]))
    text = dot.join(form.format(part) for form, part in zip(forms, parts, strict=True))
    wide = draw(st.booleans()) and draw(st.booleans())
    return text.translate({ord(str(digit)): 0xFF10 + digit for digit in range(10)}) if wide else text


@st.composite
def spelled_v6(draw: st.DrawFn) -> str:
    """An IPv6 address: anywhere, or one that holds an IPv4 address."""
    inner = draw(NUMBERS)
    ways = (0, MAPPED, 0x64FF9B << 96, 0x64FF9B0001 << 80, 0x2001 << 112, (0xFE80 << 112), 0xFEC0 << 112)
    number = draw(
        st.one_of(
            st.integers(0, 2**128 - 1),
            st.integers(0, 2**125 - 1).map(lambda low: low | 1 << 125),
            st.sampled_from(ways).map(lambda way: way | inner),
            st.integers(0, 2**80 - 1).map(lambda low: 0x2002 << 112 | inner << 80 | low),
        )
    )
    address = ipaddress.IPv6Address(number)
    dotted = f"{str(ipaddress.IPv6Address(number >> 32 << 32)).removesuffix('::')}::{ipaddress.IPv4Address(inner)}"
    zone = draw(st.sampled_from(["", "", "", "%1", "%25eth0"]))
    return draw(st.sampled_from([str(address), address.exploded, str(address).upper(), dotted])) + zone


NAMES = st.one_of(
    st.sampled_from(
        ["localhost", "a.localhost", "x.LOCAL", "metadata.google.internal", "router", "e.example", "bücher.example"]
    ),
    st.from_regex(r"[a-zA-Z0-9_\-.ßİ。]{1,20}", fullmatch=True),
    st.text(max_size=8),
)
HOSTS = st.one_of(spelled_v4(), spelled_v6(), spelled_v6().map(lambda text: f"[{text}]"), NAMES)
URLS = st.one_of(
    st.builds(
        "{}{}{}{}{}{}{}".format,
        st.sampled_from(
            ["http://", "https://", "HTTP://", "http:", "//", "http:///", "ftp://", "https:\\\\", "http:\t//"]
        ),
        st.sampled_from(["", "", "", "", "u@", "u:p@", "e.example@", "[", "@"]),
        HOSTS,
        st.sampled_from(["", "", "", ".", "..", "\u200b", "%00", "#", "\\"]),
        st.one_of(
            st.just(""), st.integers(-1, 70_000).map(":{}".format), st.sampled_from([":", ":８０", ":0x50", ":80:80"])
        ),
        st.sampled_from(["", "/", "?", "#", "/@127.0.0.1/", "\\@127.0.0.1", "/%2e%2e/"]),
        st.text(max_size=12),
    ),
    st.text(max_size=60),
)
ADDRESSES = st.one_of(spelled_v4(), spelled_v6(), NUMBERS.map(lambda number: str(ipaddress.IPv4Address(number))))
