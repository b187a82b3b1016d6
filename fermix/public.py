"""Ask the public internet for an address that a model, a page or a server chose. Tools call it.

What must stay true: every answer of the resolver is public or nothing is asked; the connection goes to what was
judged and to nothing else; each redirect is judged anew and takes no header to another origin; an answer is bounded
in seconds and in unpacked bytes while it arrives.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from email.message import Message

from fermix.addresses import Target, is_public, parse
from fermix.errors import Refused, Unusable
from fermix.net import Net, NetFailed, Response, Timeouts

BODY_BYTES = 1_048_576
WHOLE_S = 30.0
TIMEOUTS = Timeouts(connect_s=3.0, chunk_s=15.0, total_s=WHOLE_S)
MOST_REDIRECTS = 5
MOST_ADDRESSES = 4  # all are judged; so many are tried
REDIRECTS = frozenset({301, 302, 303, 307, 308})
ACCEPTED = {"Accept-Encoding": "gzip, deflate"}  # what we can unpack piece by piece
MOST_TYPE_CHARS = 500  # of a content type; the library goes over a longer one in squares
BOMB_RATIO = 200  # real pages shrink to a tenth or a thirtieth; a bomb to a thousandth

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came, unpacked. `url` is where it came from in the end; `media_type` is lower case, "" when none was
    stated; `cut` says that more than the bound was there.
    """

    status: int
    url: str
    media_type: str
    charset: str
    body: bytes
    cut: bool


class PublicWeb:
    """The guarded way out. Holds no connection between two calls."""

    def __init__(
        self, net: Net, *, resolve: Resolve | None = None, is_allowed: Callable[[str], bool] = is_public
    ) -> None:
        self._net = net
        self._resolve = resolve or net.resolve
        self._is_allowed = is_allowed

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Fetched:
        """Fetch an address and follow where it leads; `headers` go to its own origin only.

        Raises: Refused when it or a redirect is not public or it is a bomb; NetFailed; Unusable.
        """
        target = parse(url)
        try:
            async with asyncio.timeout(WHOLE_S):
                return await self._follow(target, headers or {})
        except TimeoutError as error:
            raise NetFailed("timeout", target.host, f"not done within {WHOLE_S:g} s") from error

    async def _follow(self, first: Target, headers: Mapping[str, str]) -> Fetched:
        target, own = first, dict(headers)
        for _ in range(MOST_REDIRECTS + 1):
            if target.origin != first.origin:
                own = {}  # once away, an address back is somebody else's choice
            addresses = await self._vetted(target)
            async with AsyncExitStack() as connection:
                answer = await connection.enter_async_context(
                    self._net.get_pinned(target.url, addresses, headers={**own, **ACCEPTED}, timeouts=TIMEOUTS)
                )
                location = answer.headers.get("location") if answer.status in REDIRECTS else None
                if location is None:
                    return await _read(answer, target)
                target = parse(location, target.url)
        raise Unusable(f"more than {MOST_REDIRECTS} redirects", user_text=f"{first.host} only sends on and on.")

    async def _vetted(self, target: Target) -> Sequence[str]:
        """Look the host up once. Raises: Refused when any answer is not public, NetFailed when there is none."""
        addresses = await self._resolve(target.host, target.port)
        if not addresses:
            raise NetFailed("unreachable", target.host, "the name has no address")
        if not all(map(self._is_allowed, addresses)):
            text = f"{target.host} leads to an address inside a network, not on the public internet."
            raise Refused(text, user_text=text)
        return addresses[:MOST_ADDRESSES]


async def _read(answer: Response, target: Target) -> Fetched:
    unpacking = _unpacking(answer.headers.get("content-encoding", ""))
    body = bytearray()
    while len(body) <= BODY_BYTES and not unpacking.ended and (chunk := await answer.next_chunk()):
        body += unpacking.take(chunk, BODY_BYTES + 1 - len(body))
    media_type, charset = _content_type(answer.headers.get("content-type", ""))
    return Fetched(answer.status, target.url, media_type, charset, bytes(body[:BODY_BYTES]), cut=len(body) > BODY_BYTES)


def _content_type(header: str) -> tuple[str, str]:
    """Return type and charset of e.g. `text/html; charset="UTF-8"`, both in lower case."""
    message = Message()
    message["content-type"] = header[:MOST_TYPE_CHARS].encode("ascii", "ignore").decode("ascii")
    return (message.get_content_type() if header else ""), (message.get_content_charset() or "")


def _unpacking(encoding: str) -> _Plain | _Inflater:
    """Return what unpacks the pieces of a body, each time at most so many bytes. Raises: Unusable."""
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip" | "deflate":
            return _Inflater()
        case _:
            raise Unusable(f"content encoding {encoding[:40]!r}", user_text="The answer is packed in an unknown way.")


class _Plain:
    """Takes the pieces as they are; the server says where they end."""

    ended = False

    def take(self, chunk: bytes, most: int) -> bytes:
        """Return at most so many bytes."""
        return chunk[:most]


class _Inflater:
    """Unpacks piece by piece, whatever frame is around: servers send deflate with the one of zlib and with none."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(47)  # either frame, found out by zlib
        self._taken_bytes = self._given_bytes = 0

    @property
    def ended(self) -> bool:
        """Whether the frame is complete: what a server sends behind it is not read, since zlib would keep it all."""
        return self._inflate.eof

    def take(self, chunk: bytes, most: int) -> bytes:
        """Return at most so many bytes; what a full piece leaves is dropped, since nobody reads on then.

        Raises: Unusable, Refused for a bomb.
        """
        try:
            if not self._taken_bytes and not _is_framed(chunk):
                self._inflate = zlib.decompressobj(-15)
            unpacked = self._inflate.decompress(chunk, most)
        except zlib.error as error:
            raise Unusable("a compressed body is broken", user_text="The answer cannot be unpacked.") from error
        self._taken_bytes += len(chunk) - len(self._inflate.unconsumed_tail)
        self._given_bytes += len(unpacked)
        if len(unpacked) == most and self._taken_bytes * BOMB_RATIO < self._given_bytes:
            raise Refused("a compressed bomb", user_text="The answer is a compressed bomb and was not read.")
        return unpacked


def _is_framed(start: bytes) -> bool:
    return start[0] == 0x1F or (start[0] & 15 == 8 and int.from_bytes(start[:2].ljust(2), "big") % 31 == 0)
