"""Recorded answers of real servers, read by our wires. They live outside the repository; without them this skips."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fermix.agent.model import ChatRequest, Completion, UserMessage
from fermix.agent.providers.anthropic import MessagesWire
from fermix.agent.providers.openai_chat import ChatWire
from fermix.agent.providers.openai_responses import ResponsesWire
from fermix.agent.providers.provider import Endpoint, ErrorKind, ModelFacts, ProviderFailed, Route
from fermix.agent.providers.remote import RemoteProvider
from fermix.agent.providers.stream import Patience
from fermix.agent.providers.wire import Wire
from fermix.net import Net
from tests.fakes.provider import Answer, ScriptedProvider

PLACES = [folder / "shared" / "payloads" / "providers" for folder in Path(__file__).parents[3:]]
FILES = sorted(path for place in PLACES for path in place.rglob("*") if path.suffix in (".txt", ".json"))
QUESTION = ChatRequest((), (UserMessage("hello"),))

SAID_NO: dict[str, ErrorKind] = {
    "responses-openai-error.1.chunks.txt": ErrorKind.QUOTA,
    "responses-openai-error.1.json": ErrorKind.QUOTA,
    "chat-reasoning-model-legacy-parameter-error.json": ErrorKind.REFUSED_REQUEST,
    "responses-reasoning-model-temperature-error.json": ErrorKind.REFUSED_REQUEST,
    "image-gpt-image-response-format-error.json": ErrorKind.REFUSED_REQUEST,
}
WORDLESS = (  # tools that only the vendor can run and that we never ask for, answers of other APIs, a cut thought
    "anthropic-advisor-stop-reasons.json",
    "skills-anthropic-skill-version-create.json",
    "mistral-transcription.json",
    "completion-openai-completion-text.chunks.txt",
    "embedding-openai-embedding.json",
    "image-openai-image.json",
    "responses-openai-apply-patch-tool.1.chunks.txt",
    "responses-openai-apply-patch-tool.1.json",
    "responses-openai-client-tool-search.1.json",
    "responses-openai-custom-tool.1.chunks.txt",
    "responses-openai-image-generation-tool.1.chunks.txt",
    "responses-openai-image-generation-tool.1.json",
    "responses-openai-local-shell-tool.1.json",
    "responses-openai-mcp-tool-approval.1.chunks.txt",
    "responses-openai-mcp-tool-approval.3.json",
    "responses-openai-shell-tool.1.json",
    "speech-translation-openai-realtime-speech-translation.chunks.txt",
    "transcription-openai-transcription.json",
)

pytestmark = pytest.mark.skipif(not FILES, reason="no recorded payloads beside the repository")


def wire_of(path: Path) -> Wire:
    if path.parent.name.startswith("anthropic"):
        return MessagesWire()
    return ResponsesWire() if path.name.startswith("responses") else ChatWire()


def answer_of(path: Path, chunk_bytes: int | None = None) -> Answer:
    raw = path.read_bytes()
    if path.suffix == ".json":
        return Answer(raw=raw, content_type="application/json")
    if path.name.endswith(".chunks.txt"):
        raw = b"".join(b"data: " + line + b"\n\n" for line in raw.splitlines() if line.strip())
        raw += b"data: [DONE]\n\n" if isinstance(wire_of(path), ChatWire) else b""
    return Answer(raw=raw, chunk_bytes=chunk_bytes)


async def read(path: Path, chunk_bytes: int | None = None) -> Completion | ProviderFailed:
    async with ScriptedProvider([answer_of(path, chunk_bytes)]) as fake, Net.open(loopback_only=True) as net:

        async def endpoint() -> Endpoint:
            return Endpoint(fake.base_url, None)

        facts = ModelFacts(100_000, 8_000, None)
        provider = RemoteProvider(Route("recorded", "m"), facts, wire_of(path), endpoint, net, Patience())
        try:
            async with asyncio.timeout(5):
                return await provider.complete(QUESTION, lambda delta: None)
        except ProviderFailed as error:
            return error


def expected_failure(name: str) -> ErrorKind | None:
    return SAID_NO.get(name) or (ErrorKind.EMPTY if name in WORDLESS else None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
async def test_every_recorded_answer_ends_in_a_reply_a_call_or_a_clear_error(path: Path) -> None:
    outcome = await read(path)

    if isinstance(outcome, ProviderFailed):
        assert (outcome.kind, bool(outcome.server_text)) == (expected_failure(path.name), True)
        return
    assert expected_failure(path.name) is None
    assert outcome.text.strip() or outcome.tool_calls or outcome.finish == "refusal"
    assert all(call.name for call in outcome.tool_calls)


def find(name: str) -> Path:
    return next(path for path in FILES if path.name == name)


async def test_calls_that_arrive_in_pieces_become_whole() -> None:
    outcome = await read(find("mistral-incremental-tool-call.chunks.txt"), chunk_bytes=50)

    assert isinstance(outcome, Completion)
    assert [(call.name, dict(call.arguments)) for call in outcome.tool_calls] == [
        ("webSearchTool", {"query": "current Berlin weather"})
    ]


async def test_ids_that_change_within_a_stream_make_no_second_item() -> None:
    outcome = await read(find("responses-github-copilot-id-rotation.1.chunks.txt"))

    assert isinstance(outcome, Completion)
    assert outcome.text.count("strawberry") == 1


async def test_a_message_spliced_into_a_stream_replaces_the_first() -> None:
    outcome = await read(find("spliced-message-start.chunks.txt"))

    assert isinstance(outcome, Completion)
    assert [dict(call.arguments) for call in outcome.tool_calls] == [{"value": "Sparkle Day"}]
    assert outcome.reasoning is not None
    assert [item["signature"] for item in outcome.reasoning.items] == ["sig-second"]


async def test_arguments_cut_at_the_limit_are_told_to_the_model() -> None:
    """PRV-06."""
    outcome = await read(find("incomplete_partial_json_response.txt"))

    assert isinstance(outcome, Completion)
    assert "cut off" in (outcome.tool_calls[0].problem or "")


async def test_a_recorded_overrun_quota_keeps_the_vendors_sentence() -> None:
    outcome = await read(find("responses-openai-error.1.chunks.txt"))

    assert isinstance(outcome, ProviderFailed)
    assert outcome.server_text.startswith("You exceeded your current quota")
