"""Read the daemon's answers and events field by field. Called by the fold and the screens.

The daemon writes these objects, yet a screen must outlive an odd one: a missing or null field reads as empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

Fields = Mapping[str, object]


def text(fields: Fields, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def number(fields: Fields, key: str) -> float:
    value = fields.get(key)
    return value if isinstance(value, int | float) else 0


def flag(fields: Fields, key: str) -> bool:
    return fields.get(key) is True


def inner(fields: Fields, key: str) -> Fields:
    """The object under `key`, empty when there is none."""
    return _as_fields(fields.get(key)) or {}


def rows(fields: Fields, key: str) -> list[Fields]:
    """The objects in the list under `key`; what is not an object is left out."""
    value = fields.get(key)
    if not isinstance(value, list):
        return []
    found = (_as_fields(item) for item in cast("list[object]", value))  # checked: a list
    return [row for row in found if row is not None]


def _as_fields(value: object) -> Fields | None:
    return cast("Fields", value) if isinstance(value, dict) else None  # JSON objects have text keys
