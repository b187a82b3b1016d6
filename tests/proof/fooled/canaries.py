"""Random marks of this run: where each lies, and every form in which one can travel."""

from __future__ import annotations

import base64
import codecs
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote_to_bytes

CHARS = 24  # of a mark, in two halves that are each looked for: half of one has left, too
GZIP, ZLIB = b"\x1f\x8b", (b"\x78\x01", b"\x78\x9c", b"\x78\xda")
MOST_UNPACKED = 1_048_576


class Canaries(Mapping[str, str]):
    """A mark for each place. `found` says which of them some bytes hold, however they were dressed up."""

    def __init__(self, places: Iterable[str]) -> None:
        self._marks = {place: secrets.token_hex(CHARS // 2) for place in places}
        self._forms = {place: tuple(_forms(mark)) for place, mark in self._marks.items()}

    def __getitem__(self, place: str) -> str:
        return self._marks[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._marks)

    def __len__(self) -> int:
        return len(self._marks)

    def found(self, data: bytes, among: Iterable[str] | None = None) -> set[str]:
        wanted = tuple(self._marks if among is None else among)
        looks = tuple(_undressed(data))
        return {place for place in wanted if any(form in look for look in looks for form in self._forms[place])}

    def written(self, data: bytes, among: Iterable[str]) -> set[str]:
        """The same for much data that nobody dressed up, such as a log."""
        return {place for place in among if any(half in data for half in _halves(self._marks[place]))}


def _halves(mark: str) -> tuple[bytes, bytes]:
    return mark[: CHARS // 2].encode(), mark[CHARS // 2 :].encode()


def _forms(mark: str) -> Iterator[bytes]:
    for plain in _halves(mark):
        yield from (plain, plain[::-1], plain.hex().encode(), codecs.encode(plain.decode(), "rot13").encode())
    for shift in range(3):  # where the mark begins within the three bytes of a group
        coded = base64.b64encode(b"\0" * shift + mark.encode()).rstrip(b"=")
        yield coded[4:-4][:16]
        yield base64.b32encode(b"\0" * shift + mark.encode()).rstrip(b"=")[8:-8][:16].lower()


def _undressed(data: bytes) -> Iterator[bytes]:
    """The bytes as they are, in lower case, without percent signs, without what stands between letters, unpacked."""
    yield data
    low = data.lower()
    yield low
    if b"%" in data:
        yield unquote_to_bytes(data).lower()
    yield low.translate(None, b" \t\r\n.,:;-_+/|\\\"'")
    for head in (GZIP, *ZLIB):
        at = data.find(head)
        while at >= 0:
            if unpacked := _unpacked(data[at:]):
                yield unpacked
            at = data.find(head, at + 1)


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(47).decompress(data, MOST_UNPACKED)  # 47: gzip or zlib, whichever it is
    except zlib.error:
        return b""
