"""Read fields of JSON that others wrote: the wrong type is the same as absent. Used by the wire readers."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fermix.agent.model import JsonObject, JsonValue

TOO_DEEP = "nested too deeply"
MOST_LEVELS = 100  # Python reads deeper than it can write again from a longer stack of calls


def an_object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def a_list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def a_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def a_count(value: JsonValue) -> int | None:
    """Return a number of tokens or a position; None when it is no whole number from zero on."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def load_json(text: str) -> JsonValue:
    """Parse strict JSON: no NaN, no number that overflows, at most a hundred levels. Raises: ValueError."""
    try:
        value = _STRICT.decode(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if text.count("[") + text.count("{") > MOST_LEVELS and _is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def _is_too_deep(value: JsonValue) -> bool:
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [part for each in level for part in _parts(each)]
    return any(isinstance(each, dict | list) for each in level)


def _parts(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number too large")
    return number


_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)  # made once: it reads every event
