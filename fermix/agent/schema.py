"""JSON Schemas of tools, compiled to checks. Called when a tool is registered and whenever one is called.

What must stay true: nothing is ever fetched, because a plugin or a server wrote the schema; and what cannot be
compiled is found when the tool is registered, not when a turn calls it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NoReturn

import fastjsonschema

from fermix.agent.model import JsonObject, JsonValue
from fermix.errors import Unusable

MAX_SCHEMA_BYTES = 65_536  # of one tool; more would fill a model's window by itself
KEPT_CHECKS = 1_024  # a reload builds every tool again, with the same schemas

CheckArguments = Callable[..., object]

# What the compiler was seen to raise for schemas that are none; its own error is a ValueError.
_BROKEN = (ValueError, TypeError, AttributeError, KeyError, IndexError, OSError, re.error, SyntaxError, RecursionError)


def compiled(schema: JsonObject) -> CheckArguments:
    """Return the check of a schema; it raises JsonSchemaValueException for arguments that do not fit.

    Raises: Unusable when it is no schema of an object, is too large, points elsewhere or does not compile.
    """
    if schema.get("type") != "object":
        raise Unusable("its schema is not one of an object", field="parameters")
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unusable("its schema is no JSON", field="parameters") from error
    if len(text) > MAX_SCHEMA_BYTES:
        raise Unusable(f"its schema has more than {MAX_SCHEMA_BYTES} bytes", field="parameters")
    return _compiled(text)


@lru_cache(maxsize=KEPT_CHECKS)
def _compiled(text: str) -> CheckArguments:
    try:
        return fastjsonschema.compile(json.loads(text), handlers=_NoFetching(), use_default=False)
    except _BROKEN as error:
        raise Unusable(f"its schema cannot be used: {error}"[:300], field="parameters") from error


class _NoFetching(Mapping[str, Callable[[str], JsonValue]]):
    """A handler for every scheme there is; fastjsonschema fetches by itself what has none."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __getitem__(self, scheme: str) -> Callable[[str], JsonValue]:
        return _refuse_to_fetch

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise Unusable(f"its schema may not point to {uri[:200]!r}", field="$ref")
