"""What a secret is, and how its text is kept out of everything people read.

`Secret` wraps a key so that printing it shows `***`. Making one also teaches `redact` its exact text. The log
formatter and the trace writer pass every string through `redact`: known values first, the shapes of well-known
keys second. Cheap to import; knows no library.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreSchema

MASK = "***"
HIDDEN = "[redacted]"
SHORTEST_KNOWN_CHARS = 8  # replacing anything shorter would tear holes into ordinary text
SHORTEST_PART_CHARS = 4  # of a value that a cut may have left: half of the shortest one
PASSING_VALUES = 64  # of one source: a command that still runs may print what was passed to it a while ago


class Secret:
    """A key or token; only `reveal` gives its text. Fit to travel in an HTTP header.

    Raises: ValueError, without the value, when it is blank or holds anything but printable ASCII.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        _check_header_text(value)
        self._value: Final = value
        register_secret(value)

    def reveal(self) -> str:
        """Return the text, for the one client that must send it."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self._value == other.reveal()

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a secret cannot be pickled or copied")

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Let a settings model declare a field of this type; a string becomes a secret."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls._from_setting)

    @classmethod
    def _from_setting(cls, value: object) -> Secret:
        if isinstance(value, Secret):
            return value
        if not isinstance(value, str):
            raise ValueError("must be a quoted string")
        return cls(value)


def register_secret(value: str) -> None:
    """Teach `redact` one exact value; values of fewer than eight characters are left alone."""
    if len(value) >= SHORTEST_KNOWN_CHARS:
        _known.add(value)


def register_passing(source: str, value: str) -> None:
    """Teach `redact` a value that may be another one next time; of each source the last 64 are known."""
    if len(value) >= SHORTEST_KNOWN_CHARS:
        _known.add_passing(source, value)


def hide_known(text: str) -> str:
    """Replace the secrets of this install and nothing else, for what a model reads: a guess would eat its words."""
    return _known.replace(text)


def hide_at_cut(text: str) -> str:
    """The same for a text that was cut off at its end: the beginning of a secret that ends there is replaced too."""
    return _known.replace_end(_known.replace(text))


def redact(text: str) -> str:
    """Replace every known secret and everything shaped like a key, for logs and traces."""
    text = _known.replace(text)
    for pattern, replacement in _SHAPES:
        text = pattern.sub(replacement, text)
    return text


class _KnownValues:
    """The exact secrets of this process. One set for all: a log line must be clean whoever wrote it."""

    def __init__(self) -> None:
        self._lasting: set[str] = set()
        self._passing: dict[str, dict[str, frozenset[str]]] = {}
        self._longest_first: tuple[str, ...] = ()

    def add(self, value: str) -> None:
        self._lasting |= _spellings(value)
        self._sort()

    def add_passing(self, source: str, value: str) -> None:
        values = self._passing.setdefault(source, {})
        forms = values.pop(value, None)
        values[value] = forms or _spellings(value)  # the last one again
        if len(values) > PASSING_VALUES:
            del values[next(iter(values))]
        if forms is None:
            self._sort()

    def replace(self, text: str) -> str:
        for form in self._longest_first:
            if form in text:  # a plain search, many times faster than one pattern of all forms
                text = text.replace(form, HIDDEN)
        return text

    def replace_end(self, text: str) -> str:
        """Replace the longest end of a text with which one of the values begins."""
        whole = text.rstrip("\ufffd")  # what is left of a character that was cut in two
        starts = [start for form in self._longest_first if (start := _part_at_end(form, whole)) is not None]
        return whole[: min(starts)] + HIDDEN if starts else text

    def _sort(self) -> None:
        passing = (forms for values in self._passing.values() for forms in values.values())
        self._longest_first = tuple(sorted(self._lasting.union(*passing), key=len, reverse=True))


_known = _KnownValues()


def _part_at_end(form: str, text: str) -> int | None:
    """Return where the beginning of `form` stands with which `text` ends; None when it does not."""
    start = text.find(form[:SHORTEST_PART_CHARS], max(0, len(text) - len(form)))
    while start >= 0:
        if form.startswith(text[start:]):
            return start
        start = text.find(form[:SHORTEST_PART_CHARS], start + 1)
    return None


def _check_header_text(value: str) -> None:
    if not value.strip():
        raise ValueError("a key must not be blank")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("a key must be printable ASCII without spaces")


def _spellings(value: str) -> frozenset[str]:
    """Return the value as it is, URL-encoded, as a JSON string, and as base64 wherever it may start in a text."""
    forms = {value, quote(value, safe=""), quote(value), json.dumps(value)[1:-1]}
    for shift in range(3):
        forms |= _base64_cores(value.encode("utf-8"), shift)
    return frozenset(form for form in forms if len(form) >= SHORTEST_KNOWN_CHARS)


def _base64_cores(value: bytes, shift: int) -> set[str]:
    """Return the characters that depend on `value` alone when `shift` unknown bytes stand before it."""
    bits = (shift + len(value)) * 8
    first, last = -(-shift * 8 // 6), bits // 6
    padded = b"\0" * shift + value
    return {encode(padded).decode("ascii")[first:last] for encode in (base64.b64encode, base64.urlsafe_b64encode)}


_NAMES = (
    "api[_-]?key|access[_-]?token|refresh[_-]?token|id[_-]?token|client[_-]?secret|verify[_-]?token|app[_-]?secret"
    "|signing[_-]?secret|webhook[_-]?secret|bot[_-]?token|auth[_-]?token|password|passwd"
)

# Every repeat is bounded where it could be tried again from the next character: the text may be hostile and long.
# Sources: reference 4, section 5.8; SEC-01, SEC-02 and CTX-11 in faults.md. Prefixes need a word boundary before
# them and a value shape after them, so that "Secretary" and "task-force" stay readable.
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"),
        "[redacted private key]",
    ),
    (re.compile(r"\bsk-ant-[\w-]{16,}"), "[redacted Anthropic key]"),
    (re.compile(r"\bsk-or-[\w-]{16,}"), "[redacted OpenRouter key]"),
    (re.compile(r"\bsk-(?=[\w-]{0,200}\d)[\w-]{16,}"), "[redacted API key]"),
    (re.compile(r"\bxai-[A-Za-z0-9]{20,}"), "[redacted xAI key]"),
    (re.compile(r"\b(?:gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,})"), "[redacted GitHub token]"),
    (re.compile(r"\b(?:xox[a-z]|xoxe\.xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"), "[redacted Slack token]"),
    (re.compile(r"\bA(?:KI|SI)A[0-9A-Z]{16}\b"), "[redacted AWS key]"),
    (re.compile(r"\bAIza[\w-]{35}"), "[redacted Google key]"),
    (re.compile(r"\b(?:ya29\.|1//0)[\w-]{20,}"), "[redacted Google token]"),
    (re.compile(r"(?<!\d)\d{8,10}:[\w-]{35}(?![\w-])"), "[redacted Telegram token]"),
    (re.compile(r"\b[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}"), "[redacted Discord token]"),
    (re.compile(r"\bEAA[A-Za-z0-9]{40,}"), "[redacted Meta token]"),
    (re.compile(r"\beyJ[\w-]{8,2000}\.eyJ[\w-]{8,8000}\.[\w-]{8,}"), "[redacted JWT]"),
    (re.compile(r"(?i)\b(Bearer|Basic)\s{1,8}[\w.~+/=-]{20,}"), r"\1 [redacted]"),
    (re.compile(r"(?<=://)[^\s/@:]{1,256}:[^\s/@]{1,256}@"), "[redacted]@"),
    (
        re.compile(
            rf"(?i)(?<![A-Za-z])((?:{_NAMES})[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?)(?=[^\s\"',;&]{{0,200}}\d)[^\s\"',;&]{{12,}}"
        ),
        r"\1[redacted]",
    ),
)
