from __future__ import annotations

import pytest

from fermix.agent.arguments import mended
from fermix.agent.dispatch import Dispatcher
from fermix.agent.model import JsonObject, JsonValue
from fermix.clock import SystemClock
from fermix.events import Events
from tests.fakes.turns import make_call, make_capability, make_scope

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "tasks": {"type": "array"},
        "filter": {"type": "object"},
        "text": {"type": "string"},
        "either": {"type": ["string", "object"]},
        "any": {},
        "odd": True,
    },
}
TOOL = make_capability(parameters=SCHEMA)


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [("tasks", '["a", 1]', ["a", 1]), ("filter", ' {"open": true}', {"open": True}), ("tasks", ["a"], ["a"])],
)
def test_structure_written_as_text_is_what_it_says(name: str, written: JsonValue, meant: JsonValue) -> None:
    """Fault 26: a parameter object that arrives as a JSON string is decoded where the schema wants one."""
    assert mended(make_call(**{name: written}), TOOL) == make_call(**{name: meant})


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("text", '{"a": 1}'),
        ("either", '{"a": 1}'),
        ("any", "[1]"),
        ("odd", "[1]"),
        ("unknown", "[1]"),
        ("tasks", '{"a": 1}'),
        ("filter", "[1]"),
        ("tasks", "a, b"),
        ("filter", '{"a": NaN}'),
        ("filter", "[" * 100_000),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_could_be_meant_as_it_stands_stays(name: str, written: str) -> None:
    call = make_call(**{name: written})

    assert mended(call, TOOL) is call


def test_tool_without_properties_gets_what_was_written() -> None:
    call = make_call(a="[1]")

    assert mended(call, make_capability()) is call


async def test_tool_is_run_with_what_was_meant_and_the_model_told_of_the_rest() -> None:
    """Architecture, message-to-reply, step 6: a clear error that the model can mend."""
    dispatcher = Dispatcher(Events(SystemClock()), SystemClock())

    good = await dispatcher.dispatch(make_call(tasks='["a"]'), make_scope(TOOL))
    bad = await dispatcher.dispatch(make_call(tasks="a, b"), make_scope(TOOL))

    assert good.ok
    assert bad.text == "arguments do not fit: arguments.tasks must be array"
