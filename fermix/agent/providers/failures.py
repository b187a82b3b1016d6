"""Sort what a server says went wrong. One classifier for all wires, called by `remote.py` and the readers.

Vendors disagree about codes and statuses; the words are matched where the codes are silent. What must stay true:
an overflow, an empty purse and a wrong key are never taken for something that a retry would mend.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from fermix.agent.model import JsonValue, Usage
from fermix.agent.providers.provider import SERVER_TEXT_CHARS, ErrorKind
from fermix.errors import Unavailable

ERROR_BODY_BYTES = 64 * 1024

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum prompt length|prompt is too long|prompt too long|"
    r"input token count .* exceeds|reduce the length of the messages|exceed_context_size|too large for model|"
    r"request_too_large|input is too long",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient[ _](quota|credit|balance|funds)|exceeded your current quota|credit balance|"
    r"\bquota\b|billing|payment required|spending limit|out of credits",
    re.IGNORECASE,
)
_NO_IMAGES = re.compile(
    r"(not support|unsupported|no endpoints found that support|does not accept|is not a multimodal)"
    r".{0,40}\b(image|vision|multimodal)|\b(image|image_url|vision)\b.{0,60}(not supported|only supported|unsupported)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|not_found_error.*model|model\b.{0,120}(not exist|not found|not available|unknown)|"
    r"(unknown|invalid|no such) model|not a valid model|try pulling it",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"invalid[ _]api[ _]key|incorrect api key|authentication_error|api key not valid", re.IGNORECASE)
_OVERLOAD = re.compile(r"overload|server_error|api_error|temporarily unavailable|bad gateway", re.IGNORECASE)
_REFUSED = re.compile(r"invalid_request|unsupported|unknown parameter", re.IGNORECASE)
_RATE = re.compile(r"rate[ _]limit|too many requests", re.IGNORECASE)

_BY_WORDS = ((_OVERFLOW, ErrorKind.CONTEXT_LENGTH), (_QUOTA, ErrorKind.QUOTA))
_BY_WORDS_OF_A_REFUSAL = ((_NO_IMAGES, ErrorKind.IMAGE_UNSUPPORTED), (_NO_MODEL, ErrorKind.MODEL_NOT_FOUND))
_BY_STATUS = {
    401: ErrorKind.AUTH,
    402: ErrorKind.QUOTA,
    403: ErrorKind.AUTH,
    408: ErrorKind.TIMEOUT,
    413: ErrorKind.CONTEXT_LENGTH,
    429: ErrorKind.RATE_LIMIT,
}
_BY_HINT = (
    (_BAD_KEY, ErrorKind.AUTH),
    (_RATE, ErrorKind.RATE_LIMIT),
    (_OVERLOAD, ErrorKind.UNAVAILABLE),
    (_REFUSED, ErrorKind.REFUSED_REQUEST),
)


class BadAnswer(Unavailable):
    """The server reported a failure, or its answer cannot be read. `remote.py` adds who and how far it came.

    `text` is the server's own sentence or ours; `parameter` names the field it objects to, "" when it names none;
    `usage` is what it counted all the same.
    """

    def __init__(
        self,
        kind: ErrorKind,
        text: str,
        *,
        status: int | None = None,
        parameter: str = "",
        retry_after_s: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(f"{kind}: {text}", retry_after_s=retry_after_s)
        self.usage = usage
        self.kind = kind
        self.text = text
        self.status = status
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Complaint:
    """The error object of a server, e.g. {"message": "…", "type": "…", "param": "temperature", "code": "…"}."""

    text: str
    code: str = ""
    parameter: str = ""
    status: int | None = None


def from_response(status: int, headers: Mapping[str, str], body: bytes, key: str | None) -> BadAnswer:
    """Read an answer whose status is not 200; a server that repeats our key back to us does not get to log it."""
    text = body.decode("utf-8", "replace").strip()
    complaint = _complaint_in_body(text.replace(key, "***") if key else text)
    return BadAnswer(
        kind_of(status, complaint),
        _one_line(complaint.text) or f"HTTP {status} without a word",
        status=status,
        parameter=complaint.parameter,
        retry_after_s=retry_after_s(headers),
    )


def from_stream(error: JsonValue) -> BadAnswer:
    """Read an error that came inside a stream which had begun with status 200."""
    complaint = _complaint(error)
    text = _one_line(complaint.text) or "the provider reported an error without a word"
    return BadAnswer(kind_of(complaint.status, complaint), text, status=complaint.status, parameter=complaint.parameter)


def kind_of(status: int | None, complaint: Complaint) -> ErrorKind:
    """Sort by words where they are clear, then by status, then by what the words hint at."""
    words = f"{complaint.code} {complaint.text}"
    refusal = status is None or status < 500
    for pattern, kind in (*_BY_WORDS, *(_BY_WORDS_OF_A_REFUSAL if refusal else ())):
        if pattern.search(words):
            return kind
    if status is not None and status in _BY_STATUS:
        return _BY_STATUS[status]
    for pattern, kind in _BY_HINT:
        if pattern.search(words):
            return kind
    return ErrorKind.REFUSED_REQUEST if status is not None and refusal else ErrorKind.UNAVAILABLE


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the server's wish in seconds: milliseconds, seconds, or a date read against the server's own clock."""
    if (in_ms := _number(headers.get("retry-after-ms"))) is not None:
        return in_ms / 1000
    wish = headers.get("retry-after")
    if (seconds := _number(wish)) is not None:
        return seconds
    try:
        until, now = parsedate_to_datetime(wish or ""), parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return None
    return max(0.0, (until - now).total_seconds())


def _one_line(text: str) -> str:
    """Make a server's text fit for a reply and a log line, however long it is."""
    return " ".join(text[: 2 * SERVER_TEXT_CHARS].split())[:SERVER_TEXT_CHARS]


def _number(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"\s*\d{1,9}(\.\d+)?\s*", text):
        return None
    return float(text)


def _complaint_in_body(text: str) -> Complaint:
    try:
        parsed: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return Complaint("an HTML page instead of an answer" if text[:200].lstrip().startswith("<") else text)
    return _complaint(parsed)


def _complaint(value: JsonValue) -> Complaint:
    """Find the sentence wherever a vendor hides it: `error`, `message`, `detail`, a list, or a bare string."""
    match value:
        case {"error": (dict() | str()) as inner}:
            return _complaint(inner)
        case {"message": (dict() | list()) as inner} | {"detail": (dict() | list() | str()) as inner}:
            return _complaint(inner)
        case {"msg": str() as text, "loc": [*_, str() as field]}:
            return Complaint(text, parameter=field)
        case {"msg": str() as text} | (str() as text):
            return Complaint(text)
        case [first, *_]:
            return _complaint(first)
        case dict():
            return _described(value)
        case _:
            return Complaint("")


def _described(error: Mapping[str, JsonValue]) -> Complaint:
    text, code, parameter = error.get("message"), error.get("code"), error.get("param")
    number = code if isinstance(code, int) else _number(code if isinstance(code, str) else None)
    return Complaint(
        text if isinstance(text, str) else "",
        f"{code or ''} {error.get('type') or ''}".strip(),
        parameter if isinstance(parameter, str) else "",
        int(number) if number is not None and 400 <= number < 600 else None,
    )
