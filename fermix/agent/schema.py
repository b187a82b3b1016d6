"""JSON Schemas of tools, compiled to checks. Called when a tool is registered and whenever one is called.

What must stay true: nothing is ever fetched and no regular expression runs that a plugin or a server wrote, because one
of them can take for ever; it checks them itself. And what cannot be compiled is found when the tool is registered,
not when a turn calls it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

import fastjsonschema

from fermix.agent.capability import Capability
from fermix.agent.model import JsonObject, JsonValue
from fermix.errors import Unusable

MAX_SCHEMA_BYTES = 65_536  # of one tool; more would fill a model's window by itself
KEPT_CHECKS = 1_024  # a reload builds every tool again, with the same schemas

BY_NAME = frozenset({"properties", "definitions", "$defs", "dependencies"})
"""Keywords whose keys are names; a property may well be called "pattern"."""
VALUES = frozenset({"enum", "const", "default", "examples"})

CLOSED: JsonObject = {"additionalProperties": False}
"""What a schema of ours means without saying so: an argument that a tool does not have is told and never passed over.
Said in each one it would cost a small model a tenth of its patience.
"""

CheckArguments = Callable[..., object]

# What the compiler was seen to raise for schemas that are none; its own error is a ValueError.
_BROKEN = (ValueError, TypeError, AttributeError, KeyError, IndexError, OSError, re.error, SyntaxError, RecursionError)


def compiled(capability: Capability) -> CheckArguments:
    """Return the check of a tool's arguments; it raises JsonSchemaValueException for those that do not fit.

    Takes some milliseconds for a schema that is new, so hundreds of them are compiled on the workers first.
    Raises: Unusable when its schema is none of an object, is too large, points elsewhere or does not compile.
    """
    schema = capability.parameters
    if schema.get("type") != "object":
        raise Unusable("its schema is not one of an object", field="parameters")
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unusable("its schema is no JSON", field="parameters") from error
    if len(text) > MAX_SCHEMA_BYTES:
        raise Unusable(f"its schema has more than {MAX_SCHEMA_BYTES} bytes", field="parameters")
    return _compiled(text, ours=not capability.foreign)


@lru_cache(maxsize=KEPT_CHECKS)
def _compiled(text: str, *, ours: bool) -> CheckArguments:
    try:
        schema: JsonObject = json.loads(text)
        return fastjsonschema.compile(
            _closed(schema) if ours else _without_patterns(schema),
            handlers=_NoFetching(),
            use_default=False,
            use_formats=ours,
        )
    except _BROKEN as error:
        raise Unusable(f"its schema cannot be used: {error}"[:300], field="parameters") from error


def _closed(schema: JsonObject) -> JsonObject:
    return {**CLOSED, **schema} if "properties" in schema else schema


def _without_patterns(schema: JsonObject) -> JsonObject:
    left_out = {"pattern", "patternProperties"}
    if "patternProperties" in schema:
        left_out.add("additionalProperties")  # it would refuse what a pattern admits
    return {key: _part(key, value) for key, value in schema.items() if key not in left_out}


def _part(key: str, value: JsonValue) -> JsonValue:
    """Return what stands behind a keyword, without the patterns of the schemas in it."""
    if key in VALUES:
        return value
    if isinstance(value, list):
        return [_part("", each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _part("", each) for name, each in value.items()} if key in BY_NAME else _without_patterns(value)


class _NoFetching(dict[str, Callable[[str], JsonValue]]):
    """A handler for every scheme there is; fastjsonschema fetches by itself what has none."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __missing__(self, scheme: str) -> Callable[[str], JsonValue]:
        return _refuse_to_fetch


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise Unusable(f"its schema may not point to {uri[:200]!r}", field="$ref")
