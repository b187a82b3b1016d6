"""Files and reactions through the whole gateway: offered where a chat takes them, sent once, settled without words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fermix.agent.markers import WORDLESS
from fermix.errors import ChannelUnavailable, Unusable
from fermix.gateway import Ledger, files_and_reactions
from fermix.home import Home
from fermix.message import File, Message, Reaction, Reply
from fermix.store import Database
from fermix.trust import PolicyClass, Trust
from tests.fakes.channel import Ability, FakeChannel, message
from tests.fakes.clock import ManualClock
from tests.fakes.platform import AWAY, LOST_ANSWER, Platform
from tests.fakes.provider import Answer, Call
from tests.fakes.turns import make_capability
from tests.gateway.whole import Whole, whole_in

BOTH: tuple[Ability, ...] = ("files", "reactions")
SENDS = Answer(calls=(Call("send_attachment", {"path": "bill.pdf", "caption": "June"}),))
REACTS = Answer(calls=(Call("react", {"emoji": "👍"}),))
DONE = Answer(text="done")


def with_bill(whole: Whole) -> None:
    (whole.workspace / "bill.pdf").write_bytes(b"%PDF")


def offered(whole: Whole) -> set[str]:
    names = {tool["function"]["name"] for tool in whole.model.requests[-1].body["tools"]}
    return names & {"send_attachment", "react"}


def said_before(whole: Whole) -> list[object]:
    """What the model reads of its own earlier words."""
    messages = whole.model.requests[-1].body["messages"]
    return [item.get("content") for item in messages if item["role"] == "assistant"]


@pytest.mark.parametrize(
    ("can", "sender", "expected"),
    [
        ((), "1", set[str]()),
        (("files",), "1", {"send_attachment"}),
        (BOTH, "1", {"send_attachment", "react"}),
        (BOTH, "2", {"react"}),
    ],
)
async def test_a_turn_is_offered_what_its_chat_takes(
    tmp_path: Path, can: Collection[Ability], sender: str, expected: set[str]
) -> None:
    async with whole_in(tmp_path, [DONE], can=can) as whole:
        await whole.say("hello", sender=sender)
        await whole.settled(1)

        assert offered(whole) == expected


async def test_a_file_is_sent_and_the_effect_was_on_disk_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DLV: killed in the middle of a send, the turn does not run again and nothing is sent twice."""
    effects: list[object] = []
    async with whole_in(tmp_path, [SENDS, DONE], can=BOTH) as whole:
        with_bill(whole)
        send = FakeChannel.send

        async def looking(channel: FakeChannel, to: Message, reply: Reply, key: str) -> str:
            if isinstance(reply, File):
                effects.extend(await whole.rows("SELECT effect FROM inbox"))
            return await send(channel, to, reply, key)

        monkeypatch.setattr(FakeChannel, "send", looking)
        await whole.say("send me the bill")
        assert await whole.settled(1) == {"m1": "completed"}

        assert whole.channel.files == [b"%PDF"]
        assert [text for _, text in whole.channel.sent] == ["[bill.pdf] June", "done"]
        assert effects == [("send_attachment",)]


async def test_a_reaction_is_a_whole_answer_and_nothing_else_is_sent(tmp_path: Path) -> None:
    """Reference 4, 1.5: settled as answered, no text in the outbox, and the next turn knows."""
    async with whole_in(tmp_path, [REACTS, DONE], can=BOTH) as whole:
        await whole.say("I did it!")
        assert await whole.settled(1) == {"m1": "completed"}
        assert [entry.text for entry in whole.platform.log("react", "send")] == ["👍"]
        assert await whole.rows("SELECT outcome, answer FROM inbox") == [("answered", "")]
        assert await whole.rows("SELECT * FROM outbox") == []

        await whole.say("and now?", id="m2")
        await whole.settled(1)
        told = [
            item.get("content") for item in whole.model.requests[-1].body["messages"] if item["role"] == "assistant"
        ]
        assert told[-1] == WORDLESS
        assert whole.channel.sent == [("m2", "done")]


async def test_a_file_and_then_silence_is_an_answer_too(tmp_path: Path) -> None:
    async with whole_in(tmp_path, [SENDS, Answer(text="")], can=BOTH) as whole:
        with_bill(whole)
        await whole.say("send me the bill")
        assert await whole.settled(1) == {"m1": "completed"}

        assert whole.channel.sent == [("m1", "[bill.pdf] June")]


@pytest.mark.parametrize(("fault", "told"), [(AWAY, "is away"), (LOST_ANSWER, "may have arrived or not")])
async def test_a_file_that_does_not_arrive_is_told_to_the_model(tmp_path: Path, fault: object, told: str) -> None:
    async with whole_in(tmp_path, [SENDS, DONE], can=BOTH) as whole:
        with_bill(whole)
        whole.platform.fail("send", fault)  # type: ignore[arg-type]
        await whole.say("send me the bill")
        assert await whole.settled(1) == {"m1": "completed"}

        results = [item["content"] for item in whole.model.requests[-1].body["messages"] if item["role"] == "tool"]
        assert told in results[-1]
        assert whole.channel.sent[-1] == ("m1", "done")


@asynccontextmanager
async def ledger_in(folder: Path) -> AsyncGenerator[Ledger]:
    """The ledger alone, to leave rows behind as a killed daemon would."""
    home = Home(folder / "user/.fermix")
    home.prepare()
    async with Database.open(home.database) as database:
        yield Ledger(database, ManualClock())


@pytest.mark.parametrize("answered", [True, False])
async def test_a_start_after_a_kill_sends_no_reaction_again(tmp_path: Path, answered: bool) -> None:
    """DLV: killed after the wordless answer was written down, or before: settled, or excused with one sentence."""
    async with ledger_in(tmp_path) as ledger:
        said = message("I did it!", channel="chat", sender="1")
        entry = await ledger.accept(said, Trust.OPERATOR, commands=True)
        assert entry is not None
        ledger.begin(entry)
        await ledger.effect(entry, "react")
        if answered:
            await ledger.outgoing(entry, [], settles="answered", model="fake/m", answer="")

    async with whole_in(tmp_path, [DONE], can=BOTH) as whole:
        await whole.gateway.recover({"chat": whole.channel})
        outcome = (await whole.settled(1))["m1"]
        await whole.say("and now?", id="m2")
        await whole.settled(1)

        assert whole.platform.log("react") == []
        texts = [text for _, text in whole.channel.sent]
        told = [
            item.get("content") for item in whole.model.requests[-1].body["messages"] if item["role"] == "assistant"
        ]
        if answered:
            assert (outcome, texts, told) == ("completed", ["done"], [WORDLESS])
        else:
            assert outcome == "failed"
            assert "Something may already have been done" in texts[0]


async def test_a_channel_that_takes_no_such_thing_says_so() -> None:
    bare = FakeChannel("chat", platform=Platform())
    for reply in (File(b"x", "x", "document", "text/plain"), Reaction("👍")):
        with pytest.raises(Unusable, match="takes no"):
            await files_and_reactions.put(reply, bare, message("hi"))


async def test_an_adapter_that_breaks_in_a_send_ends_no_turn() -> None:
    class Broken(FakeChannel):
        async def send(self, message: Message, reply: Reply, key: str) -> str:
            raise ZeroDivisionError

    with pytest.raises(ChannelUnavailable, match="broke") as caught:
        await files_and_reactions.put(
            File(b"x", "x", "document", "text/plain"), Broken("chat", can=BOTH), message("hi")
        )
    assert caught.value.landed


async def test_in_a_shared_chat_a_file_needs_a_yes_after_words_from_outside(tmp_path: Path) -> None:
    """R-49: the owner sees which file would go to everybody."""
    page = make_capability("read_page", policy=PolicyClass.NETWORK, owner_only=True)
    script = [Answer(calls=(Call("read_page"),)), SENDS, DONE]
    async with whole_in(tmp_path, script, page, can=(*BOTH, "buttons")) as whole:
        with_bill(whole)
        await whole.say("what does it say?", private=False)
        await whole.platform.until(lambda: len(whole.platform.log("ask")) == 1)
        (question,) = whole.platform.log("ask")
        assert "path: “bill.pdf”" in question.text
        assert whole.channel.files == []
        tap = replace(whole.channel.tap(question.key, sender="1"), private=False)
        await whole.gateway.ingest(tap, whole.channel)
        assert await whole.settled(2) == {"m1": "completed", "tap1": "handled"}

        assert whole.channel.files == [b"%PDF"]
