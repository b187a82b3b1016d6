"""Whatever comes from outside, the readers answer with a value or with an error of ours; never with anything else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fermix.agent.memory.history import entries, sendable
from fermix.agent.memory.rows import Columns, Row
from fermix.agent.memory.rows import decode as decode_row
from fermix.agent.model import AssistantMessage, ToolMessage, UserMessage
from fermix.agent.providers.sse import EventReader
from fermix.config.load import build
from fermix.daemon.params import checked
from fermix.errors import ConfigError, FermixError, LimitReached, Unusable
from fermix.gateway.command import parse
from fermix.gateway.commands.catalog import COMMANDS
from fermix.home import Home
from fermix.protocol.frames import LineSplitter, decode, encode
from fermix.protocol.methods import GetHistory, Hello, SendMessage, StopTurn, Subscribe
from fermix.setup.sections import SECRET_NAMES, SECTIONS

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3_600)]

MANY = settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@MANY
@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=20))
def test_lines_do_not_depend_on_how_they_were_cut(data: bytes, cuts: list[int]) -> None:
    whole, pieces, at = LineSplitter().feed(data), LineSplitter(), 0
    found: list[bytes] = []
    for cut in cuts:
        found += pieces.feed(data[at : at + cut])
        at += cut

    assert found + pieces.feed(data[at:]) == whole


@MANY
@given(st.binary(max_size=200))
def test_a_line_is_an_object_or_unusable(line: bytes) -> None:
    try:
        message = decode(line)
    except Unusable:
        return
    assert decode(encode(message).rstrip(b"\n")).keys() == message.keys()


@MANY
@given(st.sampled_from([Hello, SendMessage, StopTurn, Subscribe, GetHistory]), st.dictionaries(st.text(), JSON))
def test_params_are_taken_or_refused(kind: type, params: dict[str, object]) -> None:
    said = ""
    try:
        assert isinstance(checked(TypeAdapter(kind), params), dict)
    except FermixError as error:
        said = error.user_text or "nothing"
    assert said != "nothing"


@MANY
@given(st.text(max_size=300))
def test_any_config_text_is_read_or_refused_with_its_file(text: str) -> None:
    said = "config.toml"
    try:
        build(text, Home(Path("/nowhere")), {}, SECTIONS, SECRET_NAMES)
    except ConfigError as error:
        said = str(error)
    assert "config.toml" in said


@MANY
@given(st.binary(max_size=400), st.integers(1, 60))
def test_any_stream_is_read_to_its_end(data: bytes, size: int) -> None:
    reader = EventReader()
    try:
        for at in range(0, len(data), size):
            for event in reader.feed(data[at : at + size]):
                assert isinstance(event.data, str)
    except LimitReached:
        pass


@MANY
@given(st.text(max_size=80))
def test_any_text_is_a_command_or_a_message(text: str) -> None:
    found = parse(text, COMMANDS)

    assert found is None or text.lstrip().startswith("/")


@MANY
@given(
    st.lists(
        st.builds(
            Columns,
            st.just("jo"),
            st.sampled_from(["user", "assistant", "tool", "note", "x"]),
            st.sampled_from(["chat_message", "note", "fence", "x"]),
            st.text(max_size=20),
            JSON.map(json.dumps) | st.text(max_size=20),
            st.just(datetime(2026, 1, 1, tzinfo=UTC).isoformat()),
        ),
        max_size=8,
    )
)
def test_any_stored_rows_become_a_history_that_can_be_sent(stored: list[Columns]) -> None:
    rows: list[Row] = []
    for columns in stored:
        try:
            rows.append(decode_row(columns))
        except Unusable:
            continue
    messages = sendable(rows)

    assert all(isinstance(message, UserMessage | AssistantMessage | ToolMessage) for message in messages)
    assert not messages or isinstance(messages[0], UserMessage)
    assert len(entries(rows)) <= 3 * len(rows) + 1
