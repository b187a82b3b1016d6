"""Server-sent events, whatever the network does to them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.agent.providers.sse import MAX_EVENT_BYTES, EventReader, ServerEvent
from fermix.errors import LimitReached


def read(*chunks: bytes) -> list[ServerEvent]:
    reader = EventReader()
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return [*events, *reader.finish()]


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data: one\n\ndata: two\n\n", [ServerEvent("", "one"), ServerEvent("", "two")]),
        (b": OPENROUTER PROCESSING\n\ndata: x\n\n: again\n\n", [ServerEvent("", "x")]),
        (b"event: ping\nid: 7\nretry: 10\ndata: {}\n\n", [ServerEvent("ping", "{}")]),
        (b"data: a\r\ndata: b\r\n\r\n", [ServerEvent("", "a\nb")]),
        (b"data: a\rdata: b\r\r", [ServerEvent("", "a\nb")]),
        (b"\xef\xbb\xbfdata: x\n\n", [ServerEvent("", "x")]),
        (b"data:x\n\ndata:  y\n\n", [ServerEvent("", "x"), ServerEvent("", " y")]),
        (b"data: last", [ServerEvent("", "last")]),
        (b"data: last\n", [ServerEvent("", "last")]),
        (b"event: only a name\n\n", []),
        (b"data\n\n", [ServerEvent("", "")]),
        (b"", []),
    ],
)
def test_everything_the_format_allows_is_read(raw: bytes, events: list[ServerEvent]) -> None:
    """PRV-01: comments, names, ids, all line ends, a byte order mark, no final blank line."""
    assert read(raw) == events


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_chunk_may_end_anywhere(newline: str) -> None:
    """PRV-03: at every position of a text with characters of two, three and four bytes."""
    raw = f"\ufeffevent: a{newline}data: é你😀{newline}data: 2{newline}{newline}: c{newline}data: end{newline}{newline}"
    encoded = raw.encode()
    whole = [ServerEvent("a", "é你😀\n2"), ServerEvent("", "end")]

    assert all(read(encoded[:at], encoded[at:]) == whole for at in range(len(encoded) + 1))
    assert read(*(bytes([byte]) for byte in encoded)) == whole


@given(st.text(), st.lists(st.integers(0, 400), max_size=6))
def test_any_split_of_any_text_gives_the_same_events(text: str, cuts: list[int]) -> None:
    raw = "".join(f"data: {line}\n" for line in text.splitlines() or [""]).encode("utf-8", "replace") + b"\n"
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]

    assert read(*(raw[start:end] for start, end in pairwise(places))) == read(raw)


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_no_bytes_make_it_fail(chunks: list[bytes]) -> None:
    assert all(isinstance(event.data, str) for event in read(*chunks))


def test_wrong_bytes_are_replaced_and_the_rest_is_read() -> None:
    assert read(b"data: a\xffb\n\ndata: c\n\n") == [ServerEvent("", "a\ufffdb"), ServerEvent("", "c")]


def test_an_event_that_never_ends_is_given_up() -> None:
    reader = EventReader()
    reader.feed(b"x" * MAX_EVENT_BYTES)

    with pytest.raises(LimitReached):
        reader.feed(b"x")
