"""What a start makes of every state in which a killed daemon can leave a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.gateway import Gateway, delivery
from fermix.gateway.delivery import MARK
from fermix.gateway.ledger import UNKNOWN_DRAFT, Entry, Ledger, Outgoing
from fermix.message import LocalOrigin, Media, Message, Text
from fermix.store import Connection
from fermix.trust import Trust
from tests.fakes.channel import Ability, FakeAgent, FakeChannel, message
from tests.fakes.platform import AWAY, LOST_ANSWER, rate_limited, slow
from tests.gateway.conftest import Install
from tests.requirements import covers

Script = Callable[[Turn, ReplyPort], Awaitable[TurnOutcome]]


def chat(text: str, id: str = "m1", room: str = "chat", sender: str = "1") -> Message:
    return message(text, id=id, chat=room, channel="chat", sender=sender)


async def left(ledger: Ledger, text: str = "hi", id: str = "m1", trust: Trust = Trust.OPERATOR) -> Entry:
    entry = await ledger.accept(chat(text, id), trust, commands=trust is Trust.OPERATOR)
    assert entry is not None
    return entry


async def replied(ledger: Ledger, entry: Entry, *texts: str, on_its_way: bool = True) -> tuple[Outgoing, ...]:
    answer = "".join(texts)
    return await ledger.outgoing(entry, texts, settles="answered", model="fake/m", answer=answer, on_its_way=on_its_way)


async def test_an_accepted_message_is_answered_by_the_next_start(install: Install) -> None:
    """DLV-01, DLV-06: acknowledged, then killed with the message still queued."""
    async with install.ledger() as ledger:
        await left(ledger)
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "completed")]

    assert install.platform.texts() == ["HI"]
    assert install.outcomes() == {"m1": "answered"}
    assert life.agent.committed == ["m1"]


async def test_what_waited_keeps_its_order_and_comes_before_what_is_new(install: Install) -> None:
    """DLV-05: five messages wait; the daemon goes; nothing is lost and nothing overtakes."""
    async with install.ledger() as ledger:
        for number in range(5):
            await left(ledger, f"q{number}", f"m{number}")
    async with install.start() as life:
        await life.say("new", "m5")
        await life.settled(6)

    assert install.platform.texts() == ["Q0", "Q1", "Q2", "Q3", "Q4", "NEW"]


async def test_a_turn_without_effect_runs_again_with_its_own_id(install: Install) -> None:
    async with install.ledger() as ledger:
        entry = await left(ledger)
        ledger.begin(entry)
    async with install.start() as life:
        assert life.conversations.expected == [entry.id]
        assert await life.settled(1) == [("m1", "completed")]


async def test_a_turn_whose_effect_had_begun_is_excused_and_never_runs_later(install: Install) -> None:
    async with install.ledger() as ledger:
        entry = await left(ledger, "delete the old mails")
        ledger.begin(entry)
        await ledger.effect(entry, "shell")
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "failed")]
    async with install.start() as later:
        assert later.conversations.expected == []

    (said,) = install.platform.texts()
    assert "“delete the old mails”" in said
    assert "may already have been done" in said
    assert life.agent.started == []
    assert life.agent.abandoned == [("m1", "Failed")]
    assert install.outcomes() == {"m1": "excused"}


async def test_a_turn_that_ended_two_processes_is_excused(install: Install) -> None:
    async with install.ledger() as ledger:
        entry = await left(ledger)
        ledger.begin(entry)
        ledger.begin(entry)
    async with install.start() as life:
        await life.settled(1)

    assert life.agent.started == []
    assert install.outcomes() == {"m1": "excused"}


async def test_what_is_too_old_is_excused(install: Install) -> None:
    """DLV-18: what is older than a stated age is told, not answered out of the blue."""
    async with install.ledger() as ledger:
        await left(ledger, "old", "m1")
        install.clock.advance(timedelta(hours=6, seconds=1).total_seconds())
        await left(ledger, "young", "m2")
    async with install.start() as life:
        await life.settled(2)

    assert install.outcomes() == {"m1": "excused", "m2": "answered"}


@pytest.mark.parametrize("text", ["/new", "/help", "/whoami"])
async def test_a_command_is_never_run_again(install: Install, text: str) -> None:
    async with install.ledger() as ledger:
        await left(ledger, text)
    async with install.start() as life:
        await life.settled(1)

    assert life.conversations.cleared == []
    assert install.outcomes() == {"m1": "excused"}
    assert len(install.platform.texts()) == 1


async def test_a_stop_that_was_accepted_still_holds(install: Install) -> None:
    async with install.ledger() as ledger:
        ledger.begin(await left(ledger, "long", "m1"))
        await left(ledger, "/stop", "m2")
        await left(ledger, "next", "m3")
    async with install.start() as life:
        await life.settled(3)

    assert life.agent.started == ["m3"]
    assert install.outcomes() == {"m1": "stopped", "m2": "excused", "m3": "answered"}


def typed(text: str, id: str = "m2") -> Message:
    """What the owner types at a local client."""
    return message(text, id=id, chat="elsewhere")


@pytest.mark.parametrize(
    ("stop", "then", "ends"),
    [
        (chat("/stop", "m2", "elsewhere", "1"), (Trust.OPERATOR, True), "stopped"),
        (chat("/stop now", "m2", "elsewhere", "1"), (Trust.OPERATOR, True), "answered"),
        (chat("/stop", "m2", "elsewhere", "2"), (Trust.GUEST, True), "answered"),
        (chat("/stop all", "m2", "elsewhere", "4"), (Trust.GUEST, True), "answered"),
        (chat("/stop", "m2", "chat", "4"), (Trust.GUEST, True), "stopped"),
        (chat("/stop", "m2", "chat", "4"), (Trust.GUEST, False), "answered"),
        (chat("/stop", "m2", "elsewhere", "1"), (Trust.GUEST, True), "answered"),
        (chat("/stop", "m2", "chat", "1"), (Trust.GUEST, False), "answered"),
    ],
    ids=["owner", "written wrong", "commander, all", "commander elsewhere", "commander here",
         "not a commander then", "only a guest then, elsewhere", "no commands then"],
)  # fmt: skip
async def test_an_accepted_stop_holds_as_far_as_its_sender_may_stop(
    install: Install, stop: Message, then: tuple[Trust, bool], ends: str
) -> None:
    """Issue 3, step 7 and the ledger: what counts is the lesser of what its sender might do then and may do now."""
    trust, commands = then
    async with install.ledger() as ledger:
        await left(ledger, "long", "m1")
        await ledger.accept(stop, trust, commands=commands)
    async with install.start() as life:
        await life.settled(2)

    assert install.outcomes() == {"m1": ends, "m2": "excused"}


@pytest.mark.parametrize(("text", "ends"), [("/stop", "answered"), ("/stop all", "stopped")])
async def test_a_local_stop_that_was_accepted_reaches_beyond_its_conversation_only_when_it_says_so(
    install: Install, text: str, ends: str
) -> None:
    async with install.ledger() as ledger:
        await left(ledger, "long", "m1")
        await ledger.accept(typed(text), Trust.OPERATOR, commands=True)
    async with install.start() as life:
        await life.settled(1)

    assert install.outcomes() == {"m1": ends, "m2": None}


async def test_a_stopped_turn_does_not_run_again(install: Install) -> None:
    async with install.ledger() as ledger:
        ledger.stop(await left(ledger))
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "cancelled")]

    assert (life.agent.started, install.platform.texts()) == ([], [])


async def test_the_replies_of_a_stopped_turn_are_noted_as_given_up(install: Install) -> None:
    """DLV-07: what may have landed is not sent again, and no row looks as if it were still on its way."""
    async with install.ledger() as ledger:
        entry = await left(ledger)
        await replied(ledger, entry, "one", "two")
        ledger.stop(entry)
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "cancelled")]

    assert install.platform.texts() == []
    assert install.rows("SELECT state, error FROM outbox") == [("failed", "stopped")] * 2


async def test_a_delivered_answer_is_committed_from_its_row(install: Install) -> None:
    async with install.ledger() as ledger:
        (row,) = await replied(ledger, await left(ledger), "the answer")
        ledger.sent(row, "p1")
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "completed")]

    assert life.agent.restored == [("m1", "the answer")]
    assert (life.agent.started, install.platform.texts()) == ([], [])


async def test_a_settled_answer_that_the_history_lacks_is_committed(install: Install) -> None:
    """The history's writer runs behind the ledger's."""
    async with install.ledger() as ledger:
        entry = await left(ledger)
        (row,) = await replied(ledger, entry, "the answer")
        ledger.sent(row, "p1")
        ledger.settle(entry, "answered")
    async with install.start() as life:
        await life.settled(1)

    assert life.agent.restored == [("m1", "the answer")]


@pytest.mark.parametrize(("metadata", "lacks"), [('{"tool_calls": [{}]}', True), ("{}", False)])
async def test_words_before_a_tool_call_are_not_the_answer_that_the_history_lacks(
    install: Install, metadata: str, lacks: bool
) -> None:
    async with install.start() as life:
        ledger, database = life.ledger, life.database
        entry = await left(ledger)
        (row,) = await replied(ledger, entry, "the answer")
        ledger.sent(row, "p1")
        ledger.settle(entry, "answered")
        values = ("a", "o", "chat", "chat", "agent", "assistant", "chat_message", "I will look.", "now", metadata, 1)

        def stored(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO messages (agent_id, owner_id, channel, chat_id, sender, role, kind, content, created_at,"
                " metadata_json, ledger_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )

        await database.run(stored)
    async with install.start() as life:
        await life.gateway.lanes.idle()

    assert life.agent.restored == ([("m1", "the answer")] if lacks else [])


async def test_what_was_not_started_is_sent_and_what_was_sent_is_not(install: Install) -> None:
    async with install.ledger() as ledger:
        first, _ = await replied(ledger, await left(ledger), "one", "two")
        ledger.sent(first, "p1")
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.texts() == ["two"]
    assert life.agent.restored == [("m1", "onetwo")]


async def test_a_send_of_unknown_fate_is_repeated_with_its_key_where_that_is_honoured(install: Install) -> None:
    install.platform.idempotent = True
    channel = FakeChannel("chat", platform=install.platform, can=())
    async with install.ledger() as ledger:
        (row,) = await replied(ledger, await left(ledger), "answer")
        await channel.send(chat("hi"), _text(row), row.key)
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.texts() == ["answer"]
    assert install.platform.calls["send"] == 2


@pytest.mark.parametrize("landed", [True, False])
async def test_a_send_of_unknown_fate_is_looked_up_where_it_can_be_read_back(install: Install, landed: bool) -> None:
    channel = FakeChannel("chat", platform=install.platform, can=("lookup",))
    async with install.ledger() as ledger:
        (row,) = await replied(ledger, await left(ledger), "answer")
        if landed:
            await channel.send(chat("hi"), _text(row), row.key)
    async with install.start(channel=channel) as life:
        await life.settled(1)

    assert install.platform.texts() == ["answer"]
    assert install.platform.calls["send"] == 1


async def test_a_lookup_that_fails_leaves_the_fate_unknown(install: Install) -> None:
    channel = FakeChannel("chat", platform=install.platform, can=("lookup",))
    async with install.ledger() as ledger:
        (row,) = await replied(ledger, await left(ledger), "answer")
        await channel.send(chat("hi"), _text(row), row.key)
    install.platform.fail("find", AWAY, AWAY)
    async with install.start(channel=channel) as life:
        await life.settled(1)

    assert install.platform.texts() == ["answer"]
    assert install.clock.sleeps == [1.0, 2.0]


async def test_elsewhere_it_is_sent_once_more_and_marked(install: Install) -> None:
    async with install.ledger() as ledger:
        await replied(ledger, await left(ledger), "answer")
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.texts() == [f"{MARK}answer"]


async def test_a_marked_send_of_unknown_fate_is_not_sent_a_third_time(install: Install) -> None:
    async with install.ledger() as ledger:
        (row,) = await replied(ledger, await left(ledger), "answer")
        await ledger.sending(replace(row, marked=True))
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "failed")]

    assert install.platform.texts() == []
    assert install.rows("SELECT state FROM outbox") == [("failed",)]


async def test_the_connection_that_breaks_while_we_live_is_judged_alike(install: Install) -> None:
    """DLV-07: accepted by the platform, the answer lost: no silent second copy."""
    install.platform.fail("send", LOST_ANSWER)
    async with install.start() as life:
        await life.say("hi")
        await life.settled(1)

    assert install.platform.texts() == ["HI", f"{MARK}HI"]


@pytest.mark.parametrize("written", [True, False])
async def test_a_draft_left_in_the_chat_is_removed_before_the_answer_comes(install: Install, written: bool) -> None:
    channel = FakeChannel("chat", platform=install.platform, can=("drafts",))
    async with install.ledger() as ledger:
        entry = await left(ledger)
        ledger.draft(entry, await channel.open(chat("hi"), "half an ans", "k"))
        if written:
            await replied(ledger, entry, "HI", on_its_way=False)
    async with install.start(channel=channel) as life:
        await life.settled(1)

    assert install.platform.texts() == ["HI"]


@pytest.mark.parametrize(
    ("can", "idempotent"), [(("drafts",), False), (("drafts", "lookup"), False), (("drafts",), True)]
)
@pytest.mark.parametrize("on_its_way", [True, False])
async def test_an_answer_beside_a_sealed_draft_that_stays_says_so(
    install: Install, can: Collection[Ability], idempotent: bool, on_its_way: bool
) -> None:
    """DLV-07: killed while the draft became the answer, and at the next start the platform does not remove it."""
    install.platform.idempotent = idempotent
    channel = FakeChannel("chat", platform=install.platform, can=can)
    async with install.ledger() as ledger:
        entry = await left(ledger)
        await replied(ledger, entry, "HI", on_its_way=on_its_way)
        ledger.draft(entry, await channel.open(chat("hi"), "HI", "k"))
    install.platform.fail("discard", AWAY)
    async with install.start(channel=channel) as life:
        await life.settled(1)

    assert install.platform.texts() == ["HI", f"{MARK}HI"]


@pytest.mark.parametrize(
    ("can", "idempotent", "shown"),
    [
        (("drafts",), False, ["answer", f"{MARK}answer"]),
        (("drafts", "lookup"), False, ["answer"]),
        (("drafts",), True, ["answer"]),
    ],
)
async def test_an_answer_sent_in_place_of_a_draft_may_have_landed_although_the_draft_is_there(
    install: Install, can: Collection[Ability], idempotent: bool, shown: Sequence[str]
) -> None:
    """DLV-07: the draft could not become the answer, which was sent whole; killed before the draft was removed."""
    install.platform.idempotent = idempotent
    channel = FakeChannel("chat", platform=install.platform, can=can)
    async with install.ledger() as ledger:
        entry = await left(ledger)
        ledger.draft(entry, await channel.open(chat("hi"), "half an ans", "k"))
        (row,) = await replied(ledger, entry, "answer", on_its_way=False)
        await ledger.sending(row)
        await channel.send(chat("hi"), _text(row), row.key)
    async with install.start(channel=channel) as life:
        await life.settled(1)

    assert install.platform.texts() == shown


async def test_a_stop_while_an_earlier_draft_is_removed_gives_up_its_answer(install: Install) -> None:
    """Nothing waits to be sent for a message that has its last word."""
    channel, gate = FakeChannel("chat", platform=install.platform, can=("drafts",)), asyncio.Event()
    async with install.ledger() as ledger:
        entry = await left(ledger)
        ledger.draft(entry, await channel.open(chat("hi"), "half an ans", "k"))
        await replied(ledger, entry, "answer", on_its_way=False)
    install.platform.fail("discard", slow(gate))
    async with install.start(channel=channel) as life:
        await install.platform.until(lambda: install.platform.calls["discard"] == 1)
        await life.say("/stop", "m2")
        gate.set()
        await life.settled(2)

    assert install.rows("SELECT state, error FROM outbox WHERE settles = 'answered'") == [("failed", "stopped")]
    assert "answer" not in install.platform.texts()


async def test_a_draft_that_is_found_again_says_nothing_of_an_answer_that_was_on_its_way(install: Install) -> None:
    """DLV-07: where the opening of a draft got no answer, the answer was no edit of it and may have landed itself."""
    channel = FakeChannel("chat", platform=install.platform, can=("drafts", "lookup"))
    async with install.ledger() as ledger:
        entry = await left(ledger)
        await ledger.drafting(entry, f"{UNKNOWN_DRAFT}k")
        await channel.open(chat("hi"), "half an ans", "k")
        (row,) = await replied(ledger, entry, "answer")
        await channel.send(chat("hi"), _text(row), row.key)
    async with install.start(channel=channel) as life:
        await life.settled(1)

    assert install.platform.texts() == ["answer"]
    assert install.platform.calls["send"] == 1


async def test_a_send_that_did_not_land_is_repeated_without_a_mark_where_its_key_is_honoured(install: Install) -> None:
    install.platform.idempotent = True
    async with install.ledger() as ledger:
        await replied(ledger, await left(ledger), "answer")
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.texts() == ["answer"]


async def test_a_send_that_surely_failed_is_no_possible_duplicate_after_a_restart(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fermix.gateway.gateway.DRAIN_S", 0.01)
    install.clock._moves_itself = False
    install.platform.fail("send", rate_limited(60))
    async with install.start() as life:
        await life.say("hi")
        await install.clock.until_asleep()
    install.clock._moves_itself = True
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.texts() == ["HI"]
    assert install.rows("SELECT platform_id FROM outbox") == [("p1",)]


async def test_a_second_copy_is_noted_as_such_before_it_leaves(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed during that, no start sends a third one."""
    monkeypatch.setattr("fermix.gateway.gateway.DRAIN_S", 0.01)
    async with install.ledger() as ledger:
        await replied(ledger, await left(ledger), "answer")
    install.platform.fail("send", slow(asyncio.Event()))
    async with install.start():
        await install.platform.until(lambda: install.platform.calls["send"] == 1)
    assert install.rows("SELECT state, marked FROM outbox") == [("in_flight", 1)]
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.calls["send"] == 1


async def test_no_text_is_marked_twice(install: Install) -> None:
    """An answer in doubt for the draft that may stand beside it, whose own send is in doubt then."""
    channel = FakeChannel("chat", platform=install.platform, can=("drafts",))
    async with install.ledger() as ledger:
        await ledger.drafting(await left(ledger), UNKNOWN_DRAFT)
    install.platform.fail("send", LOST_ANSWER)
    async with install.start(channel=channel) as life:
        await life.settled(1)

    assert install.platform.texts() == [f"{MARK}HI"] * 2


async def test_after_a_part_that_was_given_up_no_other_one_is_sent(install: Install) -> None:
    async with install.ledger() as ledger:
        first, _ = await replied(ledger, await left(ledger), "one", "two")
        ledger.failed(first, "away")
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "failed")]

    assert install.platform.texts() == []


async def test_a_stop_while_an_earlier_answer_is_sent_is_noted_at_once(install: Install) -> None:
    """QUE-01: killed before that send ends, the next start does not go on with it."""
    go = asyncio.Event()
    async with install.ledger() as ledger:
        first, _ = await replied(ledger, await left(ledger), "one", "two")
        ledger.unsent(first, "away")
    install.platform.fail("send", slow(go))
    async with install.start() as life:
        await install.platform.until(lambda: install.platform.calls["send"] == 1)
        await life.say("/stop", "m2")
        await life.settled(1)
        await life.database.run(lambda _: None)
        assert install.rows("SELECT stopped FROM inbox WHERE id = 1") == [(1,)]
        go.set()
        assert await life.settled(1) == [("m1", "cancelled")]

    assert "two" not in install.platform.texts()


async def test_a_stop_is_noted_while_its_turn_still_ends(install: Install) -> None:
    """QUE-01: killed before that, the next start does not run it again."""
    entered, go = asyncio.Event(), asyncio.Event()

    async def tidies(turn: Turn, port: ReplyPort) -> TurnOutcome:
        entered.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            await go.wait()

    async with install.start(FakeAgent(tidies)) as life:
        await life.say("hi", "m1")
        await asyncio.wait_for(entered.wait(), 5)
        await life.say("/stop", "m2")
        await life.settled(1)
        await life.database.run(lambda _: None)
        assert install.rows("SELECT stopped FROM inbox WHERE id = 1") == [(1,)]
        go.set()
        await life.settled(1)


async def test_a_shutdown_leaves_an_earlier_answer_to_the_start_after_the_next(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fermix.gateway.gateway.DRAIN_S", 0.01)
    async with install.ledger() as ledger:
        (row,) = await replied(ledger, await left(ledger), "answer")
        ledger.unsent(row, "away")
    install.clock._moves_itself = False
    install.platform.fail("send", rate_limited(60))
    async with install.start():
        await install.clock.until_asleep()
    assert install.outcomes() == {"m1": None}
    install.clock._moves_itself = True
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.texts() == ["answer"]


async def test_an_answer_that_is_being_written_down_while_the_daemon_goes_is_sent_by_the_next_one(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fermix.gateway.gateway.DRAIN_S", 0.01)
    written, go, outgoing = asyncio.Event(), asyncio.Event(), Ledger.outgoing

    async def slowly(*args: object, **named: object) -> tuple[Outgoing, ...]:
        rows = await outgoing(*args, **named)  # type: ignore[arg-type]
        written.set()
        await go.wait()
        return rows

    async with asyncio.TaskGroup() as group, install.start() as life:
        with monkeypatch.context() as slow_disk:
            slow_disk.setattr(Ledger, "outgoing", slowly)
            await life.say("hi")
            await asyncio.wait_for(written.wait(), 5)
        group.create_task(_after_leaving(life.gateway, go))
    assert (install.platform.texts(), install.outcomes()) == ([], {"m1": None})
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.texts() == [f"{MARK}HI"]


async def test_replies_that_are_dropped_behind_a_running_turn_are_noted_as_given_up(install: Install) -> None:
    go = asyncio.Event()
    async with install.ledger() as ledger:
        await replied(ledger, await left(ledger, id="m1"), "first")
        await replied(ledger, await left(ledger, id="m2"), "second")
    install.platform.fail("send", slow(go))
    async with install.start() as life:
        await install.platform.until(lambda: install.platform.calls["send"] == 1)
        await life.say("/stop", "m3")
        go.set()
        assert ("m2", "cancelled") in await life.settled(3)

    assert install.rows("SELECT state FROM outbox WHERE text = 'second'") == [("failed",)]


async def test_a_shutdown_does_not_wait_for_a_draft_that_is_being_removed(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fermix.gateway.gateway.DRAIN_S", 0.01)
    channel = FakeChannel("chat", platform=install.platform, can=("drafts",))
    async with install.ledger() as ledger:
        ledger.draft(await left(ledger), await channel.open(chat("hi"), "half an ans", "k"))
    install.platform.fail("discard", slow(asyncio.Event()))
    async with asyncio.timeout(5), install.start(channel=channel):
        await install.platform.until(lambda: install.platform.calls["discard"] == 1)

    assert install.outcomes() == {"m1": None}


async def test_a_send_that_gets_no_answer_in_time_may_have_landed(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SEND_S", 0.05)
    install.platform.fail("send", slow(asyncio.Event()))
    async with install.start() as life:
        await life.say("hi")
        await life.settled(1)

    assert install.platform.texts() == [f"{MARK}HI"]


async def test_a_draft_that_nobody_can_remove_makes_the_answer_say_so(install: Install) -> None:
    """Killed between the opening of a draft and the note of its id: part of the answer may stand in the chat."""
    channel = FakeChannel("chat", platform=install.platform, can=("drafts",))
    async with install.ledger() as ledger:
        await ledger.drafting(await left(ledger), UNKNOWN_DRAFT)
        await channel.open(chat("hi"), "half an ans", "k")
    async with install.start(channel=channel) as life:
        await life.settled(1)

    assert install.platform.texts() == ["half an ans", f"{MARK}HI"]


async def test_a_stop_while_a_start_tidies_up_says_what_it_dropped(install: Install) -> None:
    """QUE-01 (e): the draft still goes, the turn does not run again, and the text does not say "nothing"."""
    channel, gate = FakeChannel("chat", platform=install.platform, can=("drafts",)), asyncio.Event()
    async with install.ledger() as ledger:
        entry = await left(ledger)
        ledger.draft(entry, await channel.open(chat("hi"), "half an ans", "k"))
    install.platform.fail("discard", slow(gate))
    async with install.start(channel=channel) as life:
        await install.platform.until(lambda: install.platform.calls["discard"] == 1)
        await life.say("/stop", "m2")
        await install.platform.until(lambda: bool(install.platform.log("send")))
        gate.set()
        assert dict(await life.settled(2)) == {"m1": "cancelled", "m2": "handled"}
        await life.say("next", "m3")
        await life.settled(1)

    assert install.platform.texts() == ["Nothing was running. 1 waiting message was dropped.", "NEXT"]
    assert life.agent.started == ["m3"]
    assert install.outcomes() == {"m1": "stopped", "m2": "handled", "m3": "answered"}


async def test_pictures_of_a_local_client_are_not_kept_and_the_sender_is_told(install: Install) -> None:
    picture = Media("image", "image/png", b"\x89PNG", "a.png")
    async with install.ledger() as ledger:
        await ledger.accept(replace(chat("what is this?"), media=(picture,)), Trust.OPERATOR)
    async with install.start() as life:
        await life.settled(1)

    assert install.outcomes() == {"m1": "excused"}


async def test_a_turn_that_had_spoken_is_excused_after_what_it_said(install: Install) -> None:
    async with install.ledger() as ledger:
        entry = await left(ledger)
        first, _ = await ledger.outgoing(entry, ["said", "half said"], settles=None)
        ledger.sent(first, "p1")
    async with install.start() as life:
        await life.settled(1)

    texts = install.platform.texts()
    assert texts[0] == "half said"
    assert "send it again" in texts[1]
    assert life.agent.started == []


async def test_an_excuse_is_itself_sent_once(install: Install) -> None:
    async with install.ledger() as ledger:
        (row,) = await ledger.outgoing(await left(ledger), ["I was restarted"], settles="excused")
        ledger.sent(row, "p1")
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.texts() == []
    assert install.outcomes() == {"m1": "excused"}


async def test_a_right_that_was_taken_away_is_not_found_again(install: Install) -> None:
    """Trust is the lesser of what it was and what it is now; who is no longer allowed gets nothing."""
    async with install.ledger() as ledger:
        await left(ledger, id="m1", trust=Trust.GUEST)
        await ledger.accept(chat("hi", "m2", "b", sender="2"), Trust.OPERATOR)
        await ledger.accept(chat("hi", "m3", "c", sender="3"), Trust.OPERATOR)
    seen: list[tuple[str, str]] = []

    class Looking(FakeAgent):
        async def run(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
            seen.append((turn.message.id, turn.trust))
            return await super().run(turn, port)

    async with install.start(Looking()) as life:
        await life.settled(2)

    assert sorted(seen) == [("m1", "guest"), ("m2", "guest")]
    assert install.outcomes()["m3"] == "refused"


async def test_a_message_of_a_channel_that_is_away_waits(install: Install) -> None:
    async with install.ledger() as ledger:
        await ledger.accept(replace(message("hi"), origin=LocalOrigin(Path("/x"))), Trust.OPERATOR)
    async with install.start():
        pass

    assert install.outcomes() == {"m1": None}


@covers("queue.waiting-is-kept")
async def test_a_shutdown_leaves_what_runs_and_waits_to_the_next_start(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DLV-05: a stop of the daemon is not a stop by the owner."""
    monkeypatch.setattr("fermix.gateway.gateway.DRAIN_S", 0.01)
    held = asyncio.Event()

    async def hangs(turn: Turn, port: ReplyPort) -> TurnOutcome:
        held.set()
        return await asyncio.get_running_loop().create_future()

    async with install.start(FakeAgent(hangs)) as life:
        for number in range(3):
            await life.say(f"q{number}", f"m{number}")
        await held.wait()
    assert (life.agent.abandoned, install.outcomes()) == ([], dict.fromkeys(["m0", "m1", "m2"]))
    async with install.start() as life:
        await life.settled(3)

    assert install.platform.texts() == ["Q0", "Q1", "Q2"]


async def test_a_shutdown_waits_for_no_answer_of_a_command_and_loses_none(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the model of the gateway: the send on the wire was awaited to its deadline, then noted as failed."""
    monkeypatch.setattr("fermix.gateway.gateway.DRAIN_S", 0.01)
    install.platform.fail("send", slow(asyncio.Event()))
    async with asyncio.timeout(5):
        async with install.start() as life:
            await life.say("/whoami")
            await install.platform.until(lambda: install.platform.calls["send"] == 1)
    assert install.outcomes() == {"m1": None}
    async with install.start() as life:
        await life.settled(1)

    assert [text[: len(MARK)] for text in install.platform.texts()] == [MARK]
    assert install.outcomes() == {"m1": "handled"}


async def _after_leaving(gateway: Gateway, go: asyncio.Event) -> None:
    """Let the turn go on once every lane was left."""
    left_all = asyncio.Event()
    leave_all = gateway.lanes.leave_all

    def leaving() -> None:
        leave_all()
        left_all.set()

    gateway.lanes.leave_all = leaving  # type: ignore[method-assign]
    await left_all.wait()
    go.set()


def _text(row: Outgoing) -> Text:
    return Text(row.text, row.model)


async def _tells(turn: Turn, port: ReplyPort) -> TurnOutcome:
    await port.send(Text("a word in between"))
    raise AssertionError("the daemon was to go first")


@pytest.mark.parametrize(("text", "script"), [("/whoami", None), ("hi", None), ("hi", _tells)])
async def test_a_shutdown_does_not_wait_for_a_reply_on_the_wire(
    install: Install, monkeypatch: pytest.MonkeyPatch, text: str, script: Script | None
) -> None:
    """The whole shutdown has ten seconds, one send thirty; what became of it is the next start's to find out."""
    monkeypatch.setattr("fermix.gateway.gateway.DRAIN_S", 0.01)
    install.platform.fail("send", slow(asyncio.Event()))
    async with asyncio.timeout(5), install.start(FakeAgent(script)) as life:
        await life.say(text)
        await install.platform.until(lambda: install.platform.calls["send"] == 1)
    assert install.outcomes() == {"m1": None}
    async with install.start() as life:
        await life.settled(1)

    assert install.platform.texts()[0].startswith(MARK)
