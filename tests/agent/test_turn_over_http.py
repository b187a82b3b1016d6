"""Whole turns with the real router and real HTTP: what leaves for the provider, and what a person gets back."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fermix.agent.capability import ToolContext
from fermix.agent.model import Image, JsonValue, ToolResult
from fermix.agent.turn import Completed, Failed
from fermix.events import ModelCalled
from fermix.message import Attachment, Media
from fermix.net import Net
from tests.agent.conftest import World
from tests.fakes.channel import FakeChannel, message
from tests.fakes.provider import Answer, Asked, Call, ScriptedProvider, failure
from tests.fakes.router import FACTS
from tests.fakes.routes import WIRES, router_to
from tests.fakes.turns import make_capability, make_turn, of_kind
from tests.gateway.conftest import Install
from tests.requirements import covers


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    async with Net.open(loopback_only=True) as net:
        yield net


def head(asked: Asked) -> tuple[object, ...]:
    """What stands before the conversation in a request, on any wire."""
    system = asked.body["messages"][0] if asked.wire == "chat" else asked.body.get("system")
    return asked.body["tools"], system, asked.body.get("instructions")


@pytest.mark.parametrize("wire", sorted(WIRES))
async def test_turns_with_calls_are_accepted_by_every_wire_and_keep_their_prefix(
    world: World, net: Net, wire: str
) -> None:
    """Issue "Providers": no 4xx from the strict fake, stable parts byte-identical between turns."""
    script = [
        Answer(text="Looking.", calls=(Call("look", {"page": 1}), Call("nothing"), Call("look", "{broken"))),
        Answer(text="Found it.", reasoning="so"),
        Answer(text="Still there."),
    ]
    async with ScriptedProvider(script) as fake:
        router = router_to(fake, net, world.events, wire=wire)
        async with world.open(router, make_capability()) as agent:
            first = make_turn("find it")
            outcome = await world.run(agent, first)
            assert isinstance(outcome, Completed)
            await agent.commit(first, outcome)
            again = await world.run(agent, make_turn("and now?", turn_id="t2"))

    assert fake.refusals == []
    assert (outcome.text, outcome.steps, outcome.tool_failures) == ("Found it.", 2, 2)
    assert isinstance(again, Completed)
    assert again.text == "Still there."
    assert len({str(head(asked)) for asked in fake.requests}) == 1
    assert world.port.streamed_text == "Looking.Found it.Still there."


async def test_stop_closes_the_connection_to_the_provider(world: World, net: Net) -> None:
    """QUE-01 (a): the provider is not left talking to nobody."""
    never = asyncio.Event()
    async with ScriptedProvider([Answer(text="a long answer that will not end", hold=never)]) as fake:
        async with world.open(router_to(fake, net, world.events)) as agent, asyncio.TaskGroup() as group:
            task = group.create_task(world.run(agent, make_turn()))
            while not world.port.deltas:
                await asyncio.sleep(0)
            task.cancel()
        async with asyncio.timeout(5):
            await fake.drop.wait()

    assert task.cancelled()
    assert [event.status for event in of_kind(world.seen, ModelCalled)] == ["cancelled"]


@covers("image.non-vision.loud")
async def test_picture_for_a_model_without_eyes_fails_the_turn_by_name(world: World, net: Net) -> None:
    """Issue "Providers": an image bound for a text-only model fails the turn; the reply names provider and model."""
    turn = make_turn("what is this?")
    picture = Media("image", "image/png", b"\x89PNG")
    async with ScriptedProvider() as fake:
        router = router_to(fake, net, world.events, facts=replace(FACTS, vision=False))
        async with world.open(router) as agent:
            outcome = await world.run(agent, replace(turn, message=replace(turn.message, media=(picture,))))

    assert isinstance(outcome, Failed)
    assert outcome.user_text.startswith("fake/script-1 cannot see pictures.")
    assert fake.requests == []


@covers("image.non-vision.loud", "image.attached-as-image")
@pytest.mark.parametrize("sees", [False, True])
async def test_a_picture_from_a_chat_reaches_the_model_or_the_sender_hears_why_not(
    world: World, net: Net, tmp_path: Path, sees: bool
) -> None:
    """Ingress and trust, step 4: an image routed to a non-vision model fails loud; nothing drops it on the way."""
    install, png = Install(tmp_path / "gateway.db"), b"\x89PNG\r\n\x1a\n" + bytes(6_000)
    install.platform.files["f1"] = png
    channel = FakeChannel("chat", platform=install.platform, can=("downloads",))
    photo = Attachment("image", "f1", "application/octet-stream")
    async with ScriptedProvider([Answer(text="A cat.")]) as fake:
        router = router_to(fake, net, world.events, facts=replace(FACTS, vision=sees))
        async with world.open(router) as agent, install.start(agent, channel) as life:
            said = message("what is this?", channel="chat", sender="1", attachments=(photo,))
            await life.gateway.ingest(said, channel)
            assert await life.settled(1) == [("m1", "completed" if sees else "failed")]

    (reply,) = install.platform.texts()
    assert reply.startswith("A cat." if sees else "fake/script-1 cannot see pictures.")
    assert [base64.b64encode(png).decode() in str(asked.body) for asked in fake.requests] == ([True] if sees else [])
    assert install.outcomes() == {"m1": "answered" if sees else "failed"}


async def test_picture_from_a_tool_is_told_in_words_to_a_model_without_eyes(world: World, net: Net) -> None:
    """A picture that the sender did not send fails no turn: the model hears that there is one and goes on."""

    async def screenshot(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        return ToolResult(True, "taken", (Image("image/png", b"\x89PNG"),))

    async with ScriptedProvider([Answer(calls=(Call("look"),)), Answer(text="ok")]) as fake:
        router = router_to(fake, net, world.events, facts=replace(FACTS, vision=False))
        async with world.open(router, make_capability(run=screenshot)) as agent:
            outcome = await world.run(agent, make_turn())

    assert isinstance(outcome, Completed)
    told = fake.requests[1].raw.decode()
    assert "taken" in told
    assert "picture" in told


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (failure(401, "bad key"), "fake/script-1 refused the key. Check the key of fake with `fermix setup`."),
        (
            failure(400, "maximum context length is 8192 tokens", code="context_length_exceeded"),
            (
                "This conversation no longer fits into the window of fake/script-1. "
                "Send /new to begin afresh, then send it again."
            ),
        ),
        (
            Answer(raw=b"<html><body>login</body></html>", content_type="text/html"),
            "What came from fake/script-1 is not an answer of a model",
        ),
    ],
    ids=["401", "overflow", "html"],
)
async def test_failure_of_a_provider_reaches_the_sender_as_one_sentence(
    world: World, net: Net, answer: Answer, sentence: str
) -> None:
    """Issue "Bad input and failures": each ends in one clear sentence for the user."""
    async with ScriptedProvider([answer]) as fake, world.open(router_to(fake, net, world.events)) as agent:
        outcome = await world.run(agent, make_turn())

    assert isinstance(outcome, Failed)
    assert outcome.user_text.startswith(sentence)
    assert "Traceback" not in outcome.user_text


async def test_answer_that_stays_empty_is_said(world: World, net: Net) -> None:
    """DLV-14: one retry, then an explicit failure line."""
    script = [Answer(text="")] * 2
    async with ScriptedProvider(script) as fake, world.open(router_to(fake, net, world.events)) as agent:
        outcome = await world.run(agent, make_turn())

    assert len(fake.requests) == 2
    assert isinstance(outcome, Failed)
    assert outcome.user_text.startswith("fake/script-1 ended its turn without a reply")
