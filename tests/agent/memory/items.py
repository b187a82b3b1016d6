"""Anything a turn could try to store, for the property tests of history."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from fermix.agent.memory.rows import Checkpoint, Note, Row, cleaned
from fermix.agent.model import AssistantMessage, Image, Reasoning, ToolCall, ToolMessage, UserMessage

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)

# Lone surrogates, NUL, blanks and line ends are the characters that have broken wires before.
ODD = "\ud800\udfff\x00 \t\n\u200b\u2028"
texts = st.one_of(
    st.sampled_from(["", " ", "\n\t", "\ud83d", "\ud83d\ude00", "ok"]),
    st.text(st.one_of(st.characters(), st.sampled_from(ODD)), max_size=20),
)
call_ids = st.one_of(st.sampled_from(["aaaaaaaaa", "bbbbbbbbb", "ccccccccc", "", "call_1"]), texts)
names = st.one_of(st.sampled_from(["shell", "file_read"]), texts)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
images = st.lists(st.just(Image("image/png", b"\x89PNG" * 1000)), max_size=2).map(tuple)
calls = st.builds(ToolCall, call_ids, names, objects, st.one_of(st.none(), texts))
reasonings = st.builds(
    Reasoning, st.sampled_from(["openai", "anthropic"]), st.just("m"), st.lists(objects, max_size=2).map(tuple)
)
items = st.one_of(
    st.builds(UserMessage, texts, images),
    st.builds(
        AssistantMessage, texts, st.lists(calls, max_size=3).map(tuple), st.one_of(st.none(), st.none(), reasonings)
    ),
    st.builds(ToolMessage, call_ids, names, texts, st.booleans(), images),
    st.builds(Note, texts),
)


def rows_of(*stored) -> list[Row]:
    return [Row(kept, AT) for item in stored if (kept := cleaned(item)) is not None]


checkpoints = st.builds(
    Checkpoint, texts, st.integers(0, 99), st.just("2026-01-02T03:04:05.678Z"), st.integers(0, 9), st.booleans()
)
histories = st.lists(st.one_of(items, items, checkpoints), max_size=25).map(lambda stored: rows_of(*stored))
