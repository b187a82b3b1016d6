from __future__ import annotations

from collections.abc import Mapping

import fastjsonschema
import pytest

from fermix.agent.capability import Kind
from fermix.agent.model import JsonObject, JsonValue
from fermix.agent.schema import compiled
from tests.fakes.turns import make_capability


def fits(parameters: JsonObject, arguments: Mapping[str, JsonValue], *, foreign: bool) -> bool:
    tool = make_capability(parameters=parameters, kind=Kind.MCP if foreign else Kind.BUILTIN)
    try:
        compiled(tool)(dict(arguments))
    except fastjsonschema.JsonSchemaValueException:
        return False
    return True


def an_object(**properties: JsonValue) -> JsonObject:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize("foreign", [True, False])
def test_what_does_not_fit_is_refused_whoever_wrote_the_schema(foreign: bool) -> None:
    """Architecture, message-to-reply, step 6: arguments are checked before anything runs."""
    schema = an_object(a={"type": "integer", "minimum": 1}) | {"required": ["a"], "additionalProperties": False}

    assert fits(schema, {"a": 1}, foreign=foreign)
    assert not any(fits(schema, wrong, foreign=foreign) for wrong in ({}, {"a": 0}, {"a": "1"}, {"a": 1, "b": 2}))


def test_our_own_patterns_are_checked() -> None:
    assert not fits(an_object(a={"type": "string", "pattern": "^[0-9]+$"}), {"a": "x"}, foreign=False)


@pytest.mark.parametrize(
    "part",
    [
        {"pattern": "^(a+)+$"},
        {"format": "email"},
        {"anyOf": [{"pattern": "^(a+)+$"}]},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
    ],
    ids=str,
)
def test_expression_that_somebody_else_wrote_is_never_run(part: JsonObject) -> None:
    """R-54: regular expressions on outside text have linear time; one of a server could stop the whole daemon."""
    assert fits(an_object(a=part, b={"items": part}), {"a": "a" * 200_000 + "b", "b": ["a" * 200_000]}, foreign=True)


def test_what_only_looks_like_a_pattern_is_kept() -> None:
    """A property and a value may be called so."""
    schema = an_object(pattern={"type": "integer"}, a={"enum": [{"pattern": "x"}]})

    assert fits(schema, {"pattern": 1, "a": {"pattern": "x"}}, foreign=True)
    assert not fits(schema, {"pattern": "x"}, foreign=True)
    assert not fits(schema, {"a": {}}, foreign=True)
