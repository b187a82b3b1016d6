"""Which web addresses may be asked for at all."""

from __future__ import annotations

import socket

import pytest
from hypothesis import HealthCheck, given, settings

from fermix.addresses import Target, is_public, parse
from fermix.errors import Refused
from tests.judges.addresses import ADDRESSES, URLS, check_number, check_url, is_inside

TRIED = settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))

INSIDE = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.1.2.3", "168.63.129.16",
    "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250",
    "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::ffff:127.0.0.1",
    "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:5ef5:79fd::1", "2001:2::1",
    "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1",
    "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::1%eth0", "2606:4700::1111%1", "fec0::1", "ff02::1",
    "", "localhost", "1.2.3", "0x7f000001", "2130706433", "8.8.8.8 ",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_what_is_not_the_public_internet_is_not_public(address: str) -> None:
    """NET-03; reference 4, section 5.7."""
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "100.63.255.255", "172.32.0.1", "::ffff:8.8.8.8", "2606:4700:4700::1111"]
)
def test_a_host_of_the_public_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "", "example.com", "//example.com", "/etc/passwd", "file:///etc/passwd", "ftp://example.com", "gopher://e.com",
        "javascript:alert(1)", "data:text/html,x", "http:example.com", "http:///x", "http://", "https://:443/",
        "http://user@example.com", "http://user:key@example.com", "http://example.com@127.0.0.1/", "http://@e.com/",
        "http://example.com\\@127.0.0.1/", "http://example.com\\.evil.com", " http://example.com",
        "http://exa mple.com", "http://example.com/a b", "http://example.com/\n", "http://example.com/\tx",
        "http://example.com/\x00", "http://example.com/\u202egpj.exe", "http://exam\u200bple.com/\u00a0",
        "http://example.com:0", "http://example.com:22", "http://example.com:25/", "http://example.com:65536",
        "http://example.com:99999999", "http://example.com:-1", "http://example.com:x", "http://example.com:８０",
        "http://localhost", "http://LOCALHOST.", "http://a.localhost", "http://printer.local", "http://router",
        "http://metadata.google.internal/", "http://METADATA.google.INTERNAL./", "http://metadata.goog/",
        "http://instance-data.ec2.internal", "http://nas.home.arpa", "http://db.svc", "http://x.onion",
        "http://127.0.0.1", "http://127.0.0.1.", "http://127.1", "http://127.0.1", "http://0x7f.0.0.1", "http://0x7f000001",
        "http://0177.0.0.1", "http://017700000001", "http://2130706433", "http://127.0.0.1.0x0", "http://08.8.8.8",
        "http://8.8.8", "http://8.8.8.8.8", "http://256.1.1.1", "http://１２７.０.０.１", "http://127。0。0。1",
        "http://①②⑦.⓪.⓪.①", "http://[::1]", "http://[::ffff:169.254.169.254]", "http://[::ffff:a9fe:a9fe]",
        "http://[64:ff9b::a9fe:a9fe]", "http://[::127.0.0.1]", "http://[fe80::1%25eth0]", "http://[fe80::1]", "http://[::]",
        "http://[1.1.1.1]x", "http://[::1", "http://::1/", "http://[v1.x]", "http://[[::1]]", "http://[]",
        "http://%31%32%37.0.0.1", "http://exam%70le.com", "http://e..com", "http://-e.com", "http://e-.com", "http://.com",
        "http://" + "a" * 64 + ".com", "http://" + "a." * 130 + "com", "http://example.com/" + "a" * 5_000,
        "http://xn--\u00e9.com", "http://\u2488com/", "http://a\u00adb\u2024com", "http://example.com/\ud800",
    ],
)  # fmt: skip
def test_an_address_that_may_not_be_asked_for_is_refused_with_a_sentence(url: str) -> None:
    """NET-01, NET-03: in every spelling."""
    with pytest.raises(Refused) as caught:
        parse(url)

    assert caught.value.user_text is not None
    assert caught.value.user_text.startswith("This address cannot be fetched: ")


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://Example.COM", Target("http://example.com/", "http", "example.com", 80)),
        ("HTTPS://example.com.:443/a?b=c#d", Target("https://example.com/a?b=c", "https", "example.com", 443)),
        ("https://e.com:8443/ü?q=ß", Target("https://e.com:8443/%C3%BC?q=%C3%9F", "https", "e.com", 8443)),
        ("http://bücher.example/", Target("http://xn--bcher-kva.example/", "http", "xn--bcher-kva.example", 80)),
        ("http://8.8.8.8/dns", Target("http://8.8.8.8/dns", "http", "8.8.8.8", 80)),
        ("https://[2606:4700:0::1]:8080", Target("https://[2606:4700::1]:8080/", "https", "2606:4700::1", 8080)),
        ("https://a_b.e.com/%2e%2e/x", Target("https://a_b.e.com/%2e%2e/x", "https", "a_b.e.com", 443)),
    ],
)  # fmt: skip
def test_an_address_has_one_spelling(url: str, target: Target) -> None:
    assert parse(url) == target


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b?c", "https://example.com/b?c"),
        ("b", "https://example.com/x/b"),
        ("//other.example/b", "https://other.example/b"),
        ("http://other.example", "http://other.example/"),
        ("?q", "https://example.com/x/y?q"),
    ],
)
def test_a_redirect_is_read_beside_where_it_came_from(location: str, url: str) -> None:
    assert parse(location, "https://example.com/x/y").url == url


@pytest.mark.parametrize(
    "location", ["//127.0.0.1/", "http://169.254.169.254/", "//[::1]/", "file:///x", "\\\\10.0.0.1\\x"]
)
def test_a_redirect_is_judged_like_everything_else(location: str) -> None:
    """NET-01."""
    with pytest.raises(Refused):
        parse(location, "https://example.com/x/y")


@TRIED
@given(ADDRESSES)
def test_a_second_judge_agrees_on_numbers(text: str) -> None:
    """NET-03. A hundred thousand of them: tests/proof/test_fuzz.py."""
    check_number(text)


@TRIED
@given(URLS)
def test_a_second_judge_agrees_on_addresses(url: str) -> None:
    """NET-01, NET-03."""
    check_url(url)


@pytest.mark.parametrize("text", [one for one in INSIDE if ":" in one or one[:1].isdigit()])
def test_the_second_judge_knows_the_same_places(text: str) -> None:
    """A judge that finds nothing wrong anywhere would prove nothing."""
    with pytest.raises((AssertionError, OSError)):
        _must_be_public(text)


def _must_be_public(text: str) -> None:
    packed = socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    assert not is_inside(int.from_bytes(packed, "big"), len(packed) * 8)


def test_an_address_of_one_network_card_is_not_public() -> None:
    """Found by a hundred thousand cases: a mapped address hid its card."""
    assert is_public("::ffff:1.0.0.1")
    assert not is_public("::ffff:1.0.0.1%1")
    assert not is_public("2606:4700::1%eth0")
