from __future__ import annotations

import json

import pytest

from fermix.errors import LimitReached, Unusable
from fermix.protocol.frames import LineSplitter, decode, encode
from fermix.protocol.methods import MAX_LINE_BYTES

LINES = [b'{"a": 1}', '{"text": "größer 你好 🙂"}'.encode(), b"{}"]
STREAM = b"\n".join(LINES) + b"\n\n  \n"


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_a_stream_cut_anywhere_gives_the_same_lines(size: int) -> None:
    """Also inside a character, between an end and the next line, and among blank lines, which are left out."""
    splitter = LineSplitter()
    cut = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]

    assert [line for piece in cut for line in splitter.feed(piece)] == LINES


def test_a_line_without_its_end_is_kept_back() -> None:
    splitter = LineSplitter()

    assert splitter.feed(b'{"a"') == []
    assert splitter.feed(b': 1}\n{"b') == [b'{"a": 1}']
    assert splitter.feed(b'": 2}\n') == [b'{"b": 2}']


@pytest.mark.parametrize(
    "pieces",
    [
        [b"x" * 11],
        [b"x" * 11 + b"\n"],
        [b"x" * 6, b"x" * 5],
        [b"x" * 6, b"x" * 5 + b"\n"],
        [b"ok\n" + b"x" * 11],
        [b"x" * 11 + b"\nok\n"],
    ],
)
def test_a_line_over_the_bound_is_refused_as_soon_as_it_is_seen(pieces: list[bytes]) -> None:
    splitter = LineSplitter(limit_bytes=10)
    *before, last = pieces
    for piece in before:
        splitter.feed(piece)
    with pytest.raises(LimitReached, match="more than 10 bytes"):
        splitter.feed(last)


def test_lines_up_to_the_bound_pass_in_one_piece_and_in_many() -> None:
    assert LineSplitter(limit_bytes=10).feed((b"x" * 10 + b"\n") * 3) == [b"x" * 10] * 3
    assert MAX_LINE_BYTES == 4 * 1024 * 1024


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"text": "line\nbreak \u2028 tab\t\0 \x7f"},
        {"text": '🙂 你好 \\ "quoted"'},
        {"deep": {"list": [1, 2.5, None, True, []]}},
    ],
)
def test_what_is_encoded_is_one_line_and_decodes_to_the_same(value: dict[str, object]) -> None:
    line = encode(value)

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == value


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert decode(encode({"text": "a\ud83db"})) == {"text": "a?b"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a": 1} trailing', "not JSON"),
        (b'{"number": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"1", "not a JSON object"),
    ],
)
def test_what_is_no_json_object_is_unusable_and_nothing_worse(line: bytes, says: str) -> None:
    with pytest.raises(Unusable, match=says):
        decode(line)


def test_a_repeated_key_has_its_last_value_as_everywhere_in_json() -> None:
    line = b'{"method": "status", "method": "daemon.stop"}'

    assert decode(line) == json.loads(line) == {"method": "daemon.stop"}
