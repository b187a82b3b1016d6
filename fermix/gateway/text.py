"""Cut a Markdown text into messages that a platform takes. Called by delivery and by drafts; knows no platform.

What must stay true: the sources of all pieces joined are the text; every piece fits the limit in the channel's own
unit, whatever was added to keep it whole; code blocks, emphasis and code spans that a cut goes through are closed
before it and opened again behind it; every piece takes at least one character. All else stands still meanwhile: the
time grows with the length of a text, whatever it is made of, and nothing looks from each mark over all that follows.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Measure = Callable[[str], int]

LONGEST_OPENING = 40  # what stands behind a fence is not repeated past that
LEAST_FILL = 1 / 3  # below a third of the room, a lower rung of the ladder reads better than a stub of a message

_OPENING = re.compile(r"^[ \t]*(`{3,}+(?=[^`\n]*\n)|~{3,}+(?=[^\n]*\n))[^\n]*\n", re.MULTILINE)
_FENCE_AHEAD = re.compile(r"[ \t]*(?:```|~~~)")
_INLINE = re.compile(
    r"(?P<link>\[[^\[\]\n]{0,500}\]\([^()\s]{0,2000}\))"
    r"|(?P<code>`+)"
    r"|(?P<mark>(?<![\w\\*])\*\*(?=[^\s*])|(?<=[^\s*\\])\*\*(?!\*)|(?<!~)~~(?!~))"
)
_LADDER = tuple(
    re.compile(rung)
    for rung in (
        r"\n[ \t]*\n(?=#{1,6} )",  # before a heading
        r"\n[ \t]*\n+",  # between paragraphs
        r"\n",
        r"[.!?…。！？][\"')\]”’]{0,3}\s",  # after a sentence
        r"\s",
    )
)
_LINES, _WORDS = _LADDER[:3], _LADDER[4:]
_RULE = re.compile(r" {0,3}(?:-{3,}|\*{3,}|_{3,})[ \t]*")
_JOINER = "\u200d"
_TICKS = re.compile(r"`+")
_FLAGS = re.compile("[\U0001f1e6-\U0001f1ff]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """One message. `text` is what is sent, `source` the part of the whole text that it stands for."""

    text: str
    source: str


def split(text: str, limit: int | None, measure: Measure) -> list[str]:
    """Return the messages that a text makes; none for blanks. `limit` is in units of `measure`, None for no limit.

    `measure` must not shrink when text is added. Raises: ValueError when one character is longer than the limit.
    """
    return [piece.text for piece in pieces(text, limit, measure) if piece.text.strip()]


def pieces(text: str, limit: int | None, measure: Measure, start: int = 0) -> Iterator[Piece]:
    """Cut a text from `start` on; what stands before `start` only says what is open there.

    Raises: ValueError when one character is longer than the limit.
    """
    cutter = _Cutter(text, limit, measure)
    while start < len(text):
        piece, start = cutter.next(start)
        yield piece


@dataclass(frozen=True, slots=True)
class _Span:
    """Something that a cut must not tear: from `start` to `stop`, with its inside from `body` to `end`. A cut through
    the inside is mended with `closing` before it and `opening` behind it; an empty inside is never cut by choice.
    """

    start: int
    body: int
    end: int
    stop: int
    opening: str = ""
    closing: str = ""
    fenced: bool = False

    def holds(self, position: int) -> bool:
        return self.body <= position < self.end

    def torn_at(self, position: int) -> bool:
        return self.start < position < self.stop and not self.body < position < self.end


class _Cutter:
    """One text with its spans and its limit; `_near` are the spans that the piece at hand can touch, `_later` those
    behind them.
    """

    def __init__(self, text: str, limit: int | None, measure: Measure) -> None:
        self._text = text
        self._limit = limit
        self._measure = measure
        fences = tuple(_fences(text))
        self._later = deque(sorted((*fences, *_inlines(text, fences)), key=lambda span: span.start))
        self._near: list[_Span] = []
        self._flags = [run.span() for run in _FLAGS.finditer(text)]

    def next(self, start: int) -> tuple[Piece, int]:
        """Return the piece that begins at `start`, behind all earlier ones, and where it ends."""
        room = self._room(start)
        while self._later and self._later[0].start <= room:
            self._near.append(self._later.popleft())
        self._near = [span for span in self._near if span.stop >= start]
        if room == len(self._text) and self._fits(whole := self._dressed(start, room)):
            return Piece(whole, self._text[start:]), room
        for end in self._candidates(start, room):
            if end > start and self._fits(dressed := self._dressed(start, end)):
                return Piece(dressed, self._text[start:end]), end
        return self._bare(start, room)

    def _fits(self, text: str) -> bool:
        return self._limit is None or self._measure(text) <= self._limit

    def _room(self, start: int) -> int:
        """Find the last end up to which the bare text fits; measured by halves, on no more text than needed."""
        good, step = start, max(self._limit or 0, 1)
        while (end := min(start + step, len(self._text))) > good and self._fits(self._text[start:end]):
            good, step = end, step * 2
        bad = end if end > good else good + 1
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self._fits(self._text[start:middle]) else (good, middle)
        return good

    def _candidates(self, start: int, room: int) -> Iterator[int]:
        """Give the ends to try, best first: the ladder outside code blocks, then inside them, then any character."""
        region = self._text[start:room]
        least = start + int((room - start) * LEAST_FILL)
        for rungs, lowest, fenced in ((_LADDER, least, False), (_LINES, start, False), (_LINES, start, True)):
            for rung in rungs:
                for end in _ends(rung, region, start):
                    if end > lowest and self._reads_well(start, end, fenced=fenced):
                        yield end
        for rung in _WORDS:
            yield from (end for end in _ends(rung, region, start) if end > least and not self._torn(end))
        bounds = [end for end in range(room, start, -1) if self._is_boundary(end)]
        yield from (end for end in bounds if not self._torn(end))
        yield from (end for end in bounds if not self._makes_fence(end))
        yield from bounds

    def _reads_well(self, start: int, end: int, *, fenced: bool) -> bool:
        """Tell whether a message may end here: not inside code unless asked for, nor with what leads on to more."""
        if self._torn(end) or any(span.fenced and span.holds(end) for span in self._near) != fenced:
            return False
        last_line = self._text[start:end].rstrip().rpartition("\n")[2]
        return fenced or not (last_line.endswith(":") or re.match(r"#{1,6} ", last_line))

    def _torn(self, end: int) -> bool:
        """Tell whether a cut here breaks something, or makes something that was not there."""
        return self._makes_fence(end) or any(span.torn_at(end) for span in self._near)

    def _makes_fence(self, end: int) -> bool:
        """Tell whether a cut here brings ticks that stood inside a line to the start of one, or to other ticks."""
        if self._text[end - 1] != "\n" and _FENCE_AHEAD.match(self._text, end):
            return True
        inside = [span for span in self._near if span.closing[:1] == "`" and not span.fenced and span.holds(end)]
        return bool(inside) and "`" in self._text[end - 1 : end + 1]

    def _is_boundary(self, end: int) -> bool:
        return end == len(self._text) or not (_continues(self._text, end) or self._tears_flag(end))

    def _tears_flag(self, end: int) -> bool:
        """Tell whether a cut here would tear one of the pairs that flags are, counted from the first of a row."""
        number = bisect_right(self._flags, (end, 0)) - 1
        start, stop = self._flags[number] if number >= 0 else (0, 0)
        return end < stop and (end - start) % 2 == 1

    def _dressed(self, start: int, end: int) -> str:
        """Return the text from start to end, with what is open at either side opened and closed."""
        opened = [span for span in self._near if span.holds(start)]
        unclosed = [span for span in self._near if span.holds(end) and (span in opened or span.start >= start)]
        body = self._text[start:end]
        if start and not opened:
            body = body.lstrip("\n")
        if end < len(self._text) and not any(span.fenced for span in unclosed):
            body = _without_tail(body)
        closing = "".join(span.closing for span in reversed(unclosed))
        newline = "\n" if any(span.fenced for span in unclosed) and not body.endswith("\n") else ""
        return "".join(span.opening for span in opened) + body + newline + closing

    def _bare(self, start: int, room: int) -> tuple[Piece, int]:
        """Cut without closing anything, where even that does not fit."""
        if room == start:
            raise ValueError(f"one character is longer than the limit of {self._limit}")
        end = next((end for end in range(room, start, -1) if self._is_boundary(end)), room)
        source = self._text[start:end]
        return Piece(source, source), end


def _ends(rung: re.Pattern[str], region: str, offset: int) -> Iterable[int]:
    """Give where the matches of a rung end, last first."""
    return reversed([offset + match.end() for match in rung.finditer(region)])


def _fences(text: str) -> Iterator[_Span]:
    """Find the code blocks. A fence opens only with a line of its own; one that is never closed runs to the end."""
    position = 0
    while (opening := _next_fence(text, position)) is not None:
        fence = opening[1]
        closing = re.compile(rf"^[ \t]*{fence}{fence[0]}*[ \t\r]*$\n?", re.MULTILINE).search(text, opening.end())
        end, position = closing.span() if closing else (len(text) + 1, len(text) + 1)
        again = opening.group() if len(opening.group()) <= LONGEST_OPENING else f"{fence}\n"
        yield _Span(opening.start(), opening.end(), end, position, again, fence, fenced=True)


def _next_fence(text: str, position: int) -> re.Match[str] | None:
    return _OPENING.search(text, position) if position < len(text) else None


def _inlines(text: str, fences: tuple[_Span, ...]) -> Iterator[_Span]:
    """Find links, code spans and emphasis between the code blocks; only what is closed before the next one counts."""
    for between_start, between_stop in _outside(text, fences):
        open_marks: dict[str, int] = {}
        ticks = _Ticks(text, between_stop)
        position = between_start
        while (found := _INLINE.search(text, position, between_stop)) is not None:
            position = found.end()
            if found["link"]:
                yield _Span(found.start(), found.start(), found.start(), found.end())
            elif found["code"]:
                if (closing := ticks.closing(found)) is not None:
                    position = closing.stop
                    yield _code_span(found, closing)
            elif (mark := found["mark"]) in open_marks:
                start = open_marks.pop(mark)
                yield _Span(start, start + 2, found.start(), found.end(), mark, mark)
            elif not text[found.end() : found.end() + 1].isspace():
                open_marks[mark] = found.start()


def _code_span(opening: re.Match[str], closing: range) -> _Span:
    """A code span; one with three ticks is not opened again, since at the start of a line they are a fence."""
    if len(ticks := opening.group()) > 2:
        return _Span(opening.start(), opening.start(), opening.start(), closing.stop)
    return _Span(opening.start(), opening.end(), closing.start, closing.stop, ticks, ticks)


class _Ticks:
    """The runs of ticks of one paragraph at a time, up to `stop`."""

    def __init__(self, text: str, stop: int) -> None:
        self._text = text
        self._stop = stop
        self._paragraph_end = 0
        self._runs: dict[int, list[int]] = {}  # where those of each length begin

    def closing(self, opening: re.Match[str]) -> range | None:
        """Find the run of ticks that closes a code span, in the same paragraph."""
        if opening.end() > self._paragraph_end:
            self._read_on(opening.end())
        runs = self._runs.get(length := len(opening.group()), [])
        number = bisect_left(runs, opening.end())
        return range(runs[number], runs[number] + length) if number < len(runs) else None

    def _read_on(self, start: int) -> None:
        end = self._text.find("\n\n", start, self._stop)
        self._paragraph_end = self._stop if end < 0 else end
        self._runs = {}
        for run in _TICKS.finditer(self._text, start, self._paragraph_end):
            self._runs.setdefault(len(run.group()), []).append(run.start())


def _outside(text: str, fences: tuple[_Span, ...]) -> Iterator[tuple[int, int]]:
    position = 0
    for fence in fences:
        yield position, fence.start
        position = min(fence.stop, len(text))
    yield position, len(text)


def _without_tail(body: str) -> str:
    """Leave out blank lines, and a rule below a blank line, at the end of a message that goes on in the next."""
    body = body.rstrip()
    before, _, last = body.rpartition("\n")
    is_rule = _RULE.fullmatch(last) is not None and before.rpartition("\n")[2].strip() == "" and before.strip() != ""
    return before.rstrip() if is_rule else body


def _continues(text: str, end: int) -> bool:
    """Tell whether a cut here would tear what a reader sees as one character."""
    before, after = text[end - 1], text[end]
    if (
        _JOINER in (before, after)
        or unicodedata.category(after) in ("Mn", "Me", "Mc")
        or (before, after) == ("\r", "\n")
    ):
        return True
    return "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
