"""Messages that no reasonable client would send. Each ends in an answer or in a line of the log, and the one behind it
is answered."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.gateway.gateway import EMPTY
from fermix.gateway.queue import MOST_WAITING_BYTES
from fermix.message import Attachment, Message, Sender
from fermix.trust import Trust
from tests.fakes.channel import FakeAgent, completed, message
from tests.gateway.conftest import Install, Open

HALF = "\ud800"
TEXTS = {
    "half a surrogate pair": f"a {HALF} b",
    "both halves the wrong way round": "\udc00\ud800",
    "NUL": "a\0b\0",
    "controls": "".join(map(chr, range(1, 32))),
    "marks that turn text around": "a\u202eb\u2066c\u200bd\ufeff",
    "a megabyte": "x" * MOST_WAITING_BYTES,
    "a megabyte of marks": "\U0001f469\u200d\U0001f680" * 100_000,
}


async def short(turn: Turn, port: ReplyPort) -> TurnOutcome:
    return completed(f"{turn.message.id}: {len(turn.message.text)}")


def said(text: str = "hi", id: str = "m1") -> Message:
    return message(text, id=id, channel="chat", sender="1")


async def polled(life: Open, updates: list[Message], settles: int) -> list[tuple[str, str]]:
    """Let the platform hand over a batch as its poll loop would; returns what settled."""
    life.channel.platform.poll = lambda: _once(updates)  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        polling = group.create_task(life.channel.poll(life.gateway.ingest))
        settled = await life.settled(settles)
        polling.cancel()
    return settled


async def _once(updates: list[Message]) -> list[Message]:
    """The batch, and afterwards nothing for ever."""
    if not updates:
        return await asyncio.get_running_loop().create_future()
    found, updates[:] = [*updates], []
    return found


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_of_any_characters_is_answered_as_it_came(install: Install, text: str) -> None:
    async with install.start(FakeAgent(short)) as life:
        await life.gateway.ingest(said(text), life.channel)
        await life.settled(1)

    assert install.platform.texts() == [f"m1: {len(text)}"]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_of_any_characters_is_answered_after_a_restart(install: Install, text: str) -> None:
    async with install.ledger() as ledger:
        await ledger.accept(said(text), Trust.OPERATOR)
    async with install.start(FakeAgent(short)) as life:
        await life.settled(1)

    assert install.platform.texts() == [f"m1: {len(text)}"]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_of_any_characters_can_be_excused(install: Install, text: str) -> None:
    """The excuse quotes the message: what cannot be sent must not keep it from its last word."""
    async with install.ledger() as ledger:
        entry = await ledger.accept(said(text), Trust.OPERATOR)
        assert entry is not None
        await ledger.effect(entry, "shell")
    async with install.start() as life:
        await life.settled(1)

    assert install.outcomes() == {"m1": "excused"}
    assert "may already have been done" in install.platform.texts()[0]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_an_answer_of_any_characters_is_delivered(install: Install, text: str) -> None:
    """A model that repeats what it was told."""

    async def repeats(turn: Turn, port: ReplyPort) -> TurnOutcome:
        return completed(f"so: {turn.message.text}")

    async with install.start(FakeAgent(repeats)) as life:
        await life.gateway.ingest(said(text), life.channel)
        assert await life.settled(1) == [("m1", "completed")]

    (answer,) = install.platform.texts()
    assert answer.startswith("so: ")
    answer.encode("utf-8")


@pytest.mark.parametrize(
    "name", [f"Jo {HALF}", "Jo\0", "x" * 100_000, "\u202eoJ"], ids=["half", "nul", "long", "turned"]
)
async def test_a_name_of_any_characters_is_no_reason_to_be_silent(install: Install, name: str) -> None:
    async with install.start() as life:
        await life.gateway.ingest(replace(said("/whoami"), sender=Sender("1", name)), life.channel)
        await life.gateway.ingest(replace(said("hi", "m2"), sender=Sender("9", name)), life.channel)
        await life.settled(1)

    assert install.platform.texts() == ["You are `1` on `chat` (operator)."]


ODD = {
    "id": replace(said(), id=f"a{HALF}"),
    "chat_id": replace(said(), chat_id=HALF),
    "thread": replace(said(), thread=HALF),
    "reply_target": replace(said(), reply_target=f"{HALF}{HALF}"),
    "channel": replace(said(), channel=HALF),
    "blank id": replace(said(), id=" "),
    "blank chat": replace(said(), chat_id=""),
    "stranger": replace(said(), sender=Sender(HALF, HALF)),
    "nobody": replace(said(), sender=Sender(None, "")),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_one_bad_message_never_takes_its_batch_along(install: Install, odd: Message) -> None:
    """DLV-19: what can never be taken is skipped and confirmed; those around it are answered once."""
    async with install.start() as life:
        updates = [said("a", "before"), odd, said("b", "after")]
        settled = await polled(life, updates, 2)

    assert settled == [("before", "completed"), ("after", "completed")]
    assert install.platform.texts() == ["A", "B"]
    assert len(install.platform.log("confirm")) == 3


async def test_a_webhook_with_a_bad_message_is_not_posted_for_ever(install: Install) -> None:
    """DLV-19: a failure that cannot change is acknowledged at once."""
    async with install.start() as life:
        assert await life.channel.webhook(ODD["id"], life.gateway.ingest) == 200

    assert install.outcomes() == {}


async def test_a_file_of_a_type_that_nobody_knows_gets_its_sentence_once(install: Install) -> None:
    """DLV-19: a sticker with an unknown MIME type; offered again it is known."""
    sticker = replace(said("", "m1"), attachments=(Attachment("file", "ref", "application/x-tgsticker; v=\0"),))
    async with install.start() as life:
        settled = await polled(life, [sticker, sticker, said("hi", "m2")], 2)

    assert dict(settled) == {"m1": "handled", "m2": "completed"}
    assert sorted(install.platform.texts()) == sorted([EMPTY, "HI"])


@pytest.mark.parametrize("length", [1_000, 1_000_000])
async def test_an_id_of_any_length_is_known_again(install: Install, length: int) -> None:
    id = "9" * length
    huge = replace(message("hi", id=id, chat=id, channel="chat", sender="1"), thread=id, reply_target=id)
    async with install.start() as life:
        for _ in range(2):
            await life.gateway.ingest(huge, life.channel)
        await life.settled(1)
    async with install.start() as later:
        await later.gateway.ingest(huge, later.channel)

    assert install.platform.texts(chat=id, thread=id) == ["HI"]
    assert later.agent.started == []
