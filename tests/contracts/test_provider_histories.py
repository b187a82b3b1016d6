"""Any history the store can hold can be sent to any wire: the strict server never answers with a 4xx.

This is one of the three tests of faults.md that cover whole classes (CTX-01, PRV-09, PRV-10, PRV-11, PRV-14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Completion,
    Image,
    JsonValue,
    Reasoning,
    ToolCall,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from fermix.agent.providers.anthropic import MessagesWire
from fermix.agent.providers.calls import new_call_id
from fermix.agent.providers.openai_chat import ChatWire
from fermix.agent.providers.openai_responses import ResponsesWire
from fermix.agent.providers.provider import Endpoint, ErrorKind, ModelFacts, ProviderFailed, Route
from fermix.agent.providers.remote import RemoteProvider
from fermix.agent.providers.stream import Patience
from fermix.agent.providers.wire import Wire
from fermix.net import Net
from tests.fakes import strict
from tests.fakes.provider import Answer, ScriptedProvider
from tests.requirements import covers

WIRES: dict[str, Callable[[], Wire]] = {
    "chat": ChatWire,
    "responses": ResponsesWire,
    "messages": MessagesWire,
}
OWN_REASONING: dict[str, dict[str, JsonValue]] = {
    "chat": {"reasoning_content": "hm"},
    "responses": {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
    "messages": {"type": "thinking", "thinking": "hm", "signature": "signed"},
}

anything = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)
odd = st.sampled_from(["\ud800", "\udfff\ud83d", "\ud83d\ude00", "\x00", "\u200b", "\ufeffx", " \n", "é你😀", "</s>"])
texts = st.one_of(anything, odd)
said = texts.filter(lambda text: bool(text.strip()))
names = st.one_of(st.sampled_from(["shell", "file_read"]), texts)
values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
images = st.builds(Image, st.sampled_from(sorted(strict.IMAGE_TYPES)), st.binary(min_size=1, max_size=20))
pictures = st.lists(images, min_size=1, max_size=2).map(tuple)
maybe_pictures = st.just(()) | pictures
schemas = st.builds(
    ToolSchema,
    st.sampled_from(["shell", "file_read", "glob_search"]),
    texts,
    st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(texts, st.just({}), max_size=2)}),
)


@st.composite
def assistants(draw: st.DrawFn, *, calls: bool) -> tuple[ChatMessage, ...]:
    """An assistant message; with calls, their results follow in order."""
    model = draw(st.sampled_from(["scripted-1", "another"]))
    item = {"type": "thinking", "thinking": "foreign", "signature": "x", "encrypted_content": "x"}
    reasoning = Reasoning("other", model, (item,)) if draw(st.booleans()) else None
    made = draw(st.lists(st.tuples(names, st.dictionaries(texts, values, max_size=2)), min_size=1, max_size=3))
    if not calls:
        return (AssistantMessage(draw(said), (), reasoning),)
    wishes = tuple(ToolCall(new_call_id(), name, arguments) for name, arguments in made)
    results = [
        ToolMessage(wish.id, wish.name, draw(texts), draw(st.booleans()), draw(maybe_pictures)) for wish in wishes
    ]
    return (AssistantMessage(draw(texts), wishes, reasoning), *results)


users = st.one_of(st.builds(UserMessage, said), st.builds(UserMessage, texts, pictures))
units = st.one_of(users.map(lambda user: (user,)), assistants(calls=True), assistants(calls=False))
endings = st.one_of(users.map(lambda user: (user,)), assistants(calls=True))
histories = st.builds(
    lambda middle, end: tuple(message for unit in (*middle, end) for message in unit),
    st.lists(units, max_size=6),
    endings,
)
requests = st.builds(
    ChatRequest,
    st.lists(texts, max_size=3).map(tuple),
    histories,
    st.lists(schemas, max_size=3, unique_by=lambda tool: tool.name).map(tuple),
    st.none() | st.integers(1, 100_000),
)


PLAIN = ModelFacts(100_000, 8_000, None)
BLIND = ModelFacts(100_000, 8_000, False)


async def ask(fake: ScriptedProvider, wire: str, request: ChatRequest, facts: ModelFacts = PLAIN) -> Completion:
    async def endpoint() -> Endpoint:
        return Endpoint(fake.base_url, None)

    async with Net.open(loopback_only=True) as net, asyncio.timeout(5):
        provider = RemoteProvider(Route("scripted", "scripted-1"), facts, WIRES[wire](), endpoint, net, Patience())
        return await provider.complete(request, lambda delta: None)


async def send(wire: str, *sent: ChatRequest) -> tuple[list[str], list[Completion]]:
    async with ScriptedProvider([Answer(text="ok")], repeat=True) as fake:
        return fake.refusals, [await ask(fake, wire, request) for request in sent]


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(batch=st.lists(requests, min_size=1, max_size=3))
def test_any_history_is_accepted(wire: str, batch: list[ChatRequest]) -> None:
    refusals, completions = asyncio.run(send(wire, *batch))

    assert (refusals, len(completions)) == ([], len(batch))


@pytest.mark.parametrize("wire", WIRES)
async def test_own_reasoning_goes_back_as_it_came(wire: str) -> None:
    """PRV-13: raw, to the provider and model that issued it."""
    item = OWN_REASONING[wire]
    called = AssistantMessage(
        "", (ToolCall("abcdefgh1", "shell", {}),), Reasoning("scripted", "scripted-1", (dict(item),))
    )
    request = ChatRequest((), (UserMessage("hi"), called, ToolMessage("abcdefgh1", "shell", "ok", True)))
    async with ScriptedProvider([Answer(text="ok")]) as fake:
        await ask(fake, wire, request)

    assert all(str(value) in fake.requests[0].raw.decode() for value in item.values() if value)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("issuer", [Route("scripted", "other-model"), Route("other", "scripted-1")], ids=str)
async def test_foreign_reasoning_stays_at_home(wire: str, issuer: Route) -> None:
    """PRV-14: signed thinking of another model bricks no conversation."""
    item: dict[str, JsonValue] = {"type": "thinking", "thinking": "foreign-thought", "signature": "x"}
    answered = AssistantMessage("yes", (), Reasoning(issuer.provider, issuer.model, (item,)))
    async with ScriptedProvider([Answer(text="ok")]) as fake:
        await ask(fake, wire, ChatRequest((), (UserMessage("hi"), answered, UserMessage("go on"))))

    assert b"foreign-thought" not in fake.requests[0].raw


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("image", "facts", "kind", "words"),
    [
        (Image("image/png", b"x" * 16_000_000), PLAIN, ErrorKind.REFUSED_REQUEST, "too large"),
        (Image("image/tiff", b"x"), PLAIN, ErrorKind.REFUSED_REQUEST, "image/tiff"),
        (Image("image/png", b""), PLAIN, ErrorKind.REFUSED_REQUEST, "cannot be sent"),
        (Image("image/png", b"x"), BLIND, ErrorKind.IMAGE_UNSUPPORTED, "text only"),
    ],
    ids=["large", "type", "empty", "text-only model"],
)
@covers("image.non-vision.loud")
async def test_a_picture_that_would_be_refused_is_never_sent(
    wire: str, image: Image, facts: ModelFacts, kind: ErrorKind, words: str
) -> None:
    async with ScriptedProvider([Answer(text="ok")]) as fake:
        with pytest.raises(ProviderFailed) as caught:
            await ask(fake, wire, ChatRequest((), (UserMessage("look", (image,)),)), facts)

    assert (caught.value.kind, words in caught.value.server_text) == (kind, True)
    assert (caught.value.provider, caught.value.model, fake.requests) == ("scripted", "scripted-1", [])


@pytest.mark.parametrize("wire", WIRES)
async def test_the_stable_start_keeps_its_bytes_between_turns(wire: str) -> None:
    """Prompt caches hit only on equal bytes: tools, system and older messages are the same in the next request."""
    tools = (ToolSchema("shell", "Run.", {"type": "object", "properties": {"b": {}, "a": {}}}),)
    first = ChatRequest(("stable", "today"), (UserMessage("one"),), tools)
    second = ChatRequest(("stable", "today"), (UserMessage("one"), AssistantMessage("eins"), UserMessage("two")), tools)
    async with ScriptedProvider([Answer(text="ok")], repeat=True) as fake:
        await ask(fake, wire, first)
        await ask(fake, wire, second)

    before, after = (request.raw.replace(b',"cache_control":{"type":"ephemeral"}', b"") for request in fake.requests)
    assert after.startswith(before.rstrip(b"}]"))


@pytest.mark.parametrize("wire", WIRES)
async def test_our_call_ids_pair_on_the_wire(wire: str) -> None:
    """PRV-10: the id that is sent with a call is the id that its result names."""
    called = AssistantMessage("", (ToolCall("Zz9Zz9Zz9", "shell", {}),))
    history = (UserMessage("hi"), called, ToolMessage("Zz9Zz9Zz9", "shell", "ok", True))
    async with ScriptedProvider([Answer(text="ok")]) as fake:
        await ask(fake, wire, ChatRequest((), history))

    assert fake.requests[0].raw.count(b'"Zz9Zz9Zz9"') == 2
