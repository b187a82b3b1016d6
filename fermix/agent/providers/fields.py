"""Read fields of JSON that others wrote: the wrong type is the same as absent. Used by the wire readers."""

from __future__ import annotations

import json

from fermix.agent.model import JsonObject, JsonValue


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
    """Parse strict JSON: no NaN, no number that overflows. Raises: ValueError, also for endless nesting."""
    try:
        return _STRICT.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number too large")
    return number


_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)  # made once: it reads every event
