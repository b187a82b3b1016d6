"""What a turn has read, and which addresses were put before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.agent.exposure import MOST_ADDRESS_CHARS, MOST_GIVEN, Exposure

PAGE = "https://docs.example.org/guide/Intro?lang=en&v=2#install"


def after(*texts: str) -> Exposure:
    exposure = Exposure()
    for text in texts:
        exposure.note_addresses(text)
    return exposure


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        (PAGE, PAGE),
        (f"Look at {PAGE}.", PAGE),
        (f"[the guide]({PAGE}), then", PAGE),
        (f'{{"url": "{PAGE}"}}', PAGE),
        (f"<{PAGE}>", PAGE),
        (f"**{PAGE}**", PAGE),
        (PAGE, PAGE.partition("#")[0]),
        (PAGE, PAGE.replace("https://docs.example", "HTTPS://DOCS.Example")),
        ("https://example.org", "https://example.org/"),
        ("https://example.org:443/a", "https://example.org/a"),
        ("http://example.org/a", "http://example.org:80/a"),
        ("(https://en.example.org/wiki/A_(b))", "https://en.example.org/wiki/A_(b)"),
        ("https://例え.jp/パス", "https://例え.jp/パス"),
        ("https://a.example/1 https://b.example/2", "https://b.example/2"),
    ],
)
def test_an_address_that_stands_there_is_given(written: str, asked: str) -> None:
    assert after(written).given(asked)


@pytest.mark.parametrize(
    "asked",
    [
        f"{PAGE.partition('#')[0]}&d=secret",
        PAGE.replace("v=2", "v=secret"),
        PAGE.replace("#install", "#secret"),
        PAGE.replace("?lang", "/secret?lang"),
        PAGE.replace("docs.", "secret.docs."),
        PAGE.replace("https://", "https://secret@"),
        PAGE.replace("https://", "https://secret:x@"),
        PAGE.replace("example.org", "example.org:8443"),
        PAGE.replace("example.org", "example.org."),
        PAGE.replace("https:", "http:"),
        PAGE.replace("Intro", "%49ntro"),
        PAGE.replace("Intro", "intro"),
        PAGE.replace("Intro", "x/../Intro"),
        PAGE.replace("Intro", "In\ttro"),
        PAGE.replace("Intro", "In\u200btro"),
        f" {PAGE}",
        f"{PAGE}\n",
        PAGE.replace("https://", "https:\\\\"),
        PAGE.replace("https://", "https:///"),
        "https://evil.example/",
        "https://[::1",
        "file:///etc/passwd",
        "",
    ],
)
def test_whatever_differs_was_made_up(asked: str) -> None:
    """R-52: nothing of the model's own can ride on an address that was given."""
    assert not after(f"Read {PAGE}, please.").given(asked)


def test_an_address_with_a_user_is_never_given() -> None:
    assert not after("https://me:word@example.org/").given("https://me:word@example.org/")


@given(st.text(alphabet="abcXYZ019-._~:/?#@!$&'()*+,;=% \\\t\n\u200b\u202e%20", max_size=40))
def test_nothing_can_be_added_to_a_given_address(more: str) -> None:
    """Only a fragment may be left out and the marks of the sentence around it may be read as its own."""
    asked = "https://example.org/page" + more
    exposure = after("Read https://example.org/page now")

    assert exposure.given(asked) is (more in ("", "#", "?", "?#"))


def test_the_memory_is_bounded_and_what_no_longer_fits_is_not_given() -> None:
    exposure = after(*(f"https://example.org/{number}" for number in range(MOST_GIVEN)), PAGE)
    long = f"https://example.org/{'a' * MOST_ADDRESS_CHARS}"
    exposure.note_addresses(long)

    assert exposure.given("https://example.org/1999")
    assert not exposure.given(PAGE)
    assert not after(long).given(long)


def test_a_page_full_of_addresses_takes_no_time() -> None:
    exposure = after("https://" * 100_000, "https://a" + ")" * 1_000, "http" * 100_000)

    assert not exposure.given("https://https://")
