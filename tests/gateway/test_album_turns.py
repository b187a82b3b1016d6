"""Albums on their way through the whole gateway: acknowledged at once, answered once, in one turn, across restarts."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.events import MessageReceived, MessageSettled
from fermix.gateway.albums import MOST_PARTS
from fermix.gateway.authorize import Access
from fermix.gateway.gateway import EMPTY, RESTARTING
from fermix.gateway.ledger import Entry, Ledger
from fermix.gateway.recovery import MOST_AGE
from fermix.message import Attachment, Message
from fermix.trust import Trust
from tests.fakes.channel import FakeAgent, FakeChannel, completed, message
from tests.fakes.platform import AWAY
from tests.gateway.conftest import ACCESS, ALBUM_QUIET_S, Install, Open
from tests.requirements import covers

EXAMPLES = int(os.environ.get("FERMIX_PROOF_EXAMPLES", "40"))
EXAMPLES = int(os.environ.get("FERMIX_PROOF_EXAMPLES", "40"))
PICTURE = b"\xff\xd8\xff"


def picture(id: str, caption: str = "", *, album: str = "al", sender: str = "1", chat: str = "chat") -> Message:
    file = Attachment("image", f"ref-{id}", "image/jpeg")
    return message(caption, id=id, chat=chat, channel="chat", sender=sender, attachments=(file,), album=album)


@dataclass
class Looking(FakeAgent):
    """Says which pictures it was shown with which words."""

    turns: list[Turn] = field(default_factory=list[Turn])

    async def run(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        self.started.append(turn.message.id)
        self.turns.append(turn)
        shown = " ".join(one.data.removeprefix(PICTURE).decode() for one in turn.message.media)
        return completed(f"{shown}: {turn.message.text}")


@asynccontextmanager
async def start(install: Install, agent: FakeAgent | None = None) -> AsyncGenerator[Open]:
    """One life in which time stands still until the test moves it."""
    install.clock._moves_itself = False
    channel = FakeChannel("chat", platform=install.platform, can=("downloads",))
    async with install.start(agent or Looking(), channel) as life:
        yield life


async def say(life: Open, *said: Message) -> None:
    for one in said:
        for file in one.attachments:
            life.channel.platform.files[file.reference] = PICTURE + one.id.encode()
        await life.gateway.ingest(one, life.channel)


def on_platform(install: Install, *ids: str) -> None:
    for id in ids:
        install.platform.files[f"ref-{id}"] = PICTURE + id.encode()


async def pass_time(install: Install, seconds: float) -> None:
    await asyncio.sleep(0)
    install.clock.advance(seconds)


@covers("album.debounce")
async def test_an_album_is_one_turn_with_all_pictures_and_captions(install: Install) -> None:
    """TGM-13, TGM-14."""
    async with start(install) as life:
        await say(life, picture("m1", "before"), picture("m2", "after"), picture("m3"))
        assert install.outcomes() == dict.fromkeys(["m1", "m2", "m3"])
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(3)

    assert install.platform.texts() == ["m1 m2 m3: before\nafter"]
    assert install.outcomes() == {"m1": "answered", "m2": "handled", "m3": "handled"}


async def test_each_part_is_acknowledged_while_the_album_waits(install: Install) -> None:
    async with start(install) as life:
        for number in range(3):
            part = picture(f"m{number}")
            install.platform.files[f"ref-m{number}"] = PICTURE
            assert await life.channel.push(part, life.gateway.ingest) == [200]

        assert life.agent.started == []


async def test_a_poll_that_hangs_holds_up_no_album(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """TGM-15: the timer is no part of the loop that asks for news."""
    on_platform(install, "m1", "m2", "m3")
    hangs, answers = asyncio.Event(), iter([[picture("m1"), picture("m2")], [picture("m3")]])

    async def poll() -> list[Message]:
        if (found := next(answers, None)) is not None:
            return found
        hangs.set()
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(install.platform, "poll", poll)
    async with start(install) as life, asyncio.TaskGroup() as group:
        polling = group.create_task(life.channel.poll(life.gateway.ingest))
        await hangs.wait()
        await pass_time(install, ALBUM_QUIET_S)
        assert await life.settled(3) == [("m2", "handled"), ("m3", "handled"), ("m1", "completed")]
        polling.cancel()

    assert install.platform.texts() == ["m1 m2 m3: "]


async def test_what_comes_behind_an_album_waits_for_it(install: Install) -> None:
    async with start(install) as life:
        await say(life, picture("m1"), message("hi", id="m2", channel="chat", sender="2"), picture("m3"))
        assert life.agent.started == []
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(3)

    assert install.platform.texts() == ["m1 m3: ", ": hi"]


async def test_a_text_of_the_sender_is_answered_at_once_behind_the_album(install: Install) -> None:
    """Reference, fault 14: the text neither overtakes the pictures nor waits for more of them."""
    async with start(install) as life:
        await say(life, picture("m1"), picture("m2"), message("who?", id="m3", channel="chat", sender="1"))
        await life.settled(3)

    assert install.platform.texts() == ["m1 m2: ", ": who?"]
    assert install.clock.monotonic() == 0


async def test_an_album_that_waits_holds_up_no_other_that_is_complete(install: Install) -> None:
    async with start(install) as life:
        await say(life, picture("m1"), picture("m2", sender="2"), message("?", id="m3", channel="chat", sender="1"))
        await life.settled(1)
        assert install.platform.texts() == ["m1: "]


async def test_a_part_that_comes_twice_counts_once_also_after_the_merge(install: Install) -> None:
    async with start(install) as life:
        await say(life, picture("m1"), picture("m2"), picture("m2"), picture("m1"))
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(2)
        await say(life, picture("m2"), picture("m1"))
    async with start(install) as later:
        await say(later, picture("m2"), picture("m1"))

    assert install.platform.texts() == ["m1 m2: "]
    assert later.agent.started == []


async def test_a_stranger_adds_nothing_to_an_album(install: Install) -> None:
    """Each part is authorized before anything is kept of it."""
    async with start(install) as life:
        await say(life, picture("m1"), picture("m2", sender="3"))
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(1)

    assert install.outcomes() == {"m1": "answered"}
    assert install.platform.texts() == ["m1: "]


@pytest.mark.parametrize("first", ["1", "2"])
async def test_a_right_that_was_taken_away_between_two_parts_is_gone(install: Install, first: str) -> None:
    agent, other = Looking(), "2" if first == "1" else "1"
    async with start(install, agent) as life:
        for id, owner in (("m1", first), ("m2", other)):
            access = Access(local=False, owner=owner, listed=frozenset({"1", "2"}))
            life.gateway._rooms.authorizer.use(ACCESS | {"chat": access})
            await say(life, picture(id))
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(2)

    assert [turn.trust for turn in agent.turns] == [Trust.GUEST]
    assert install.rows("SELECT trust FROM inbox WHERE message_id = 'm1'") == [("guest",)]


async def test_an_album_that_cannot_be_fetched_gets_no_turn_without_some_of_its_pictures(install: Install) -> None:
    install.platform.fail("download", AWAY)
    async with start(install) as life:
        await say(life, picture("m1"), picture("m2"))
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(2)

    assert install.outcomes() == {"m1": "failed", "m2": "handled"}
    assert (life.agent.started, install.platform.texts()) == ([], [])


async def test_an_album_of_nothing_readable_is_told_so_once(install: Install) -> None:
    async with start(install) as life:
        await say(life, *(replace(picture(id), attachments=()) for id in ("m1", "m2")))
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(2)

    assert install.platform.texts() == [EMPTY]


async def test_whoever_watches_hears_one_last_word_for_each_part(install: Install) -> None:
    async with start(install) as life:
        await say(life, picture("m1"), picture("m2"), picture("m3"))
        await pass_time(install, ALBUM_QUIET_S)
        await life.gateway.lanes.idle()
        seen = [item.event for item in life.news.drain()]

    assert [one.message_id for one in seen if isinstance(one, MessageReceived)] == ["m1", "m2", "m3"]
    assert [one.message_id for one in seen if isinstance(one, MessageSettled)] == ["m2", "m3", "m1"]


@pytest.mark.parametrize("where", ["chat", "elsewhere"])
async def test_a_stop_drops_an_album_with_all_its_parts_at_once(install: Install, where: str) -> None:
    async with start(install) as life:
        await say(life, picture("m1"), picture("m2"), message("/stop", id="m3", chat=where, channel="chat", sender="1"))
        assert dict(await life.settled(3)) == {"m1": "cancelled", "m2": "cancelled", "m3": "handled"}
        await say(life, picture("m4"))
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(1)

    assert install.outcomes() == {"m1": "stopped", "m2": "stopped", "m3": "handled", "m4": "answered"}
    assert life.agent.started == ["m4"]


async def test_a_shutdown_leaves_an_album_and_the_next_start_answers_it(install: Install) -> None:
    async with start(install) as life:
        await say(life, picture("m1", "a"), picture("m2", "b"), message("hi", id="m3", channel="chat", sender="2"))
    assert (life.agent.started, install.outcomes()) == ([], dict.fromkeys(["m1", "m2", "m3"]))
    async with start(install) as later:
        await pass_time(install, ALBUM_QUIET_S)
        await later.settled(3)

    assert install.platform.texts() == ["m1 m2: a\nb", ": hi"]
    assert install.outcomes() == {"m1": "answered", "m2": "handled", "m3": "answered"}


async def test_a_start_that_ends_at_once_leaves_what_it_found(install: Install) -> None:
    on_platform(install, "m1", "m2")
    async with install.ledger() as ledger:
        for said in (picture("m1"), message("hi", id="m3", channel="chat", sender="2"), picture("m2")):
            await left(ledger, said)
    async with start(install):
        pass
    async with start(install) as later:
        await pass_time(install, ALBUM_QUIET_S)
        await later.settled(3)

    assert install.platform.texts() == ["m1 m2: ", ": hi"]


async def test_parts_that_come_during_a_shutdown_are_refused_or_left_with_their_album(install: Install) -> None:
    async with start(install) as life:
        await say(life, picture("m1"))
        await life.gateway.drain()
        await say(life, picture("m2"), picture("m3", album="new"))
        await life.gateway.lanes.idle()
    assert install.platform.texts() == [RESTARTING]
    assert install.outcomes() == {"m1": None, "m2": None, "m3": "refused"}
    async with start(install) as later:
        await pass_time(install, ALBUM_QUIET_S)
        await later.settled(2)

    assert install.platform.texts()[1:] == ["m1 m2: "]


async def left(ledger: Ledger, said: Message, trust: Trust = Trust.OPERATOR) -> Entry:
    entry = await ledger.accept(said, trust, commands=trust is Trust.OPERATOR)
    assert entry is not None
    return entry


async def test_parts_that_a_killed_daemon_left_are_one_turn_with_those_that_come_after(install: Install) -> None:
    """The platform hands over what was not acknowledged when it is asked again; that is part of the album, too."""
    on_platform(install, "m1", "m2")
    async with install.ledger() as ledger:
        await left(ledger, picture("m1"))
        await left(ledger, picture("m2"), Trust.GUEST)
    agent = Looking()
    async with start(install, agent) as life:
        await say(life, picture("m3"))
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(3)

    assert install.platform.texts() == ["m1 m2 m3: "]
    assert [turn.trust for turn in agent.turns] == [Trust.GUEST]


async def test_an_album_that_was_merged_stays_so(install: Install) -> None:
    """Killed between the merge and the turn; an album with the same id that came later is another one."""
    on_platform(install, "m1", "m2", "m3")
    async with install.ledger() as ledger:
        first, second = [await left(ledger, picture(id)) for id in ("m1", "m2")]
        files = (*picture("m1").attachments, *picture("m2").attachments)
        merged = replace(picture("m1"), attachments=files, album=None)
        ledger.merge(first, merged, [second], trust=Trust.OPERATOR)
        await left(ledger, picture("m3"))
    async with start(install) as life:
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(2)

    assert install.platform.texts() == ["m1 m2: ", "m3: "]


async def test_a_text_between_two_parts_still_parts_them_after_a_restart(install: Install) -> None:
    on_platform(install, "m1", "m3")
    async with install.ledger() as ledger:
        for said in (picture("m1"), message("hi", id="m2", channel="chat", sender="1"), picture("m3")):
            await left(ledger, said)
    async with start(install) as life:
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(3)

    assert install.platform.texts() == ["m1: ", ": hi", "m3: "]


async def test_a_part_that_had_its_own_turn_is_not_gathered(install: Install) -> None:
    """Where too many albums were open at once."""
    on_platform(install, "m1", "m2", "m3")
    async with install.ledger() as ledger:
        for id in ("m1", "m2", "m3"):
            entry = await left(ledger, picture(id))
            if id == "m2":
                ledger.begin(entry)
    async with start(install) as life:
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(3)

    assert install.platform.texts() == ["m1: ", "m2: ", "m3: "]


async def test_a_stop_that_was_accepted_holds_for_all_parts(install: Install) -> None:
    async with install.ledger() as ledger:
        for said in (picture("m1"), picture("m2"), message("/stop", id="m3", channel="chat", sender="1")):
            await left(ledger, said)
    async with start(install) as life:
        await life.settled(3)

    assert install.outcomes() == {"m1": "stopped", "m2": "stopped", "m3": "excused"}
    assert life.agent.started == []


async def test_an_album_that_is_too_old_is_excused_once(install: Install) -> None:
    async with install.ledger() as ledger:
        await left(ledger, picture("m1", "who"))
        await left(ledger, picture("m2", "is this?"))
    install.clock.advance((MOST_AGE + timedelta(seconds=1)).total_seconds())
    async with start(install) as life:
        await pass_time(install, ALBUM_QUIET_S)
        await life.settled(2)

    (said,) = install.platform.texts()
    assert "“who is this?”" in said
    assert install.outcomes() == {"m1": "excused", "m2": "handled"}


class Act(NamedTuple):
    """Somebody sends so many parts of an album, or a text when that is none; then time passes."""

    sender: str
    chat: str
    album: str
    parts: int
    then_s: float


class Sent(NamedTuple):
    """One message as it was accepted."""

    number: int
    act: Act
    at_s: float

    @property
    def who(self) -> tuple[str, str]:
        return self.act.sender, self.act.chat

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.who, self.act.album if self.act.parts else f"text {self.number}")


ACTS = st.builds(
    Act,
    sender=st.sampled_from("12"),
    chat=st.sampled_from("ab"),
    album=st.sampled_from("xy"),
    parts=st.sampled_from([0, 1, 1, 2, 3, MOST_PARTS]),
    then_s=st.sampled_from([0.0, 0.0, 1.0, ALBUM_QUIET_S - 0.5, ALBUM_QUIET_S]),
)


async def answered(folder: Path, lives: Sequence[Sequence[Act]]) -> tuple[list[Sent], list[list[Sent]]]:
    """Live through it; returns what was sent, and what each turn was about, in the order of the turns."""
    install, agent, numbers = Install(folder / "memory.db"), Looking(), count()
    sent: list[Sent] = []
    for acts in lives:
        async with start(install, agent) as life:
            for act in acts:
                new = [Sent(next(numbers), act, install.clock.monotonic()) for _ in range(max(act.parts, 1))]
                sent += new
                await say(life, *(as_message(one) for one in (*new, new[0], sent[0])))
                await pass_time(install, act.then_s)
    async with start(install, agent) as life, asyncio.timeout(10):
        while life.gateway.lanes.counts() != (0, 0):
            await pass_time(install, ALBUM_QUIET_S)
    return sent, [[sent[int(line)] for line in turn.message.text.split("\n")] for turn in agent.turns]


def as_message(one: Sent) -> Message:
    id, act = str(one.number), one.act
    if act.parts:
        return picture(id, id, album=act.album, sender=act.sender, chat=act.chat)
    return message(id, id=id, chat=act.chat, channel="chat", sender=act.sender)


def check(sent: Sequence[Sent], turns: Sequence[Sequence[Sent]]) -> None:
    assert sorted(one for turn in turns for one in turn) == sent
    for turn in turns:
        assert len({one.key for one in turn}) == 1
        assert sorted(turn) == turn
        assert len(turn) <= MOST_PARTS
    for chat in "ab":
        order = [turn[0].number for turn in turns if turn[0].act.chat == chat]
        assert sorted(order) == order
    texts = [one for one in sent if not one.act.parts]
    for text in texts:
        assert not [turn for turn in turns if turn[0].who == text.who and turn[0] < text < turn[-1]]
    for turn in turns:
        assert_nothing_was_cut_off(turn, sent)


def assert_nothing_was_cut_off(turn: Sequence[Sent], sent: Sequence[Sent]) -> None:
    """The next part of the same album came too late, or behind another message of its sender, or was one too many."""
    last = turn[-1]
    following = next((one for one in sent if one.key == last.key and one > last), None)
    if following is not None and following.at_s - last.at_s < ALBUM_QUIET_S and len(turn) < MOST_PARTS:
        assert [one for one in sent if one.who == last.who and last < one < following]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(ACTS, max_size=8), max_size=3))
@example([[Act("1", "a", "x", 2, 0.0), Act("2", "a", "x", 2, 0.0), Act("1", "a", "x", MOST_PARTS, 0.0)]])
@example([[Act("1", "a", "x", 2, 0.0), Act("1", "a", "y", 1, 0.0)], [Act("1", "a", "x", 2, 0.0)]])
@example([[Act("1", "a", "x", 1, 0.0), Act("2", "a", "x", 0, 0.0)], []])
@example([[Act("1", "a", "x", 1, 0.0), Act("1", "a", "x", 0, 0.0), Act("1", "a", "x", 1, 0.0)]])
def test_every_part_is_in_one_turn_in_order_and_with_its_own_album_only(lives: list[list[Act]]) -> None:
    """Random parts, texts, second deliveries, times and restarts of two senders in two chats."""
    with tempfile.TemporaryDirectory() as folder:
        check(*asyncio.run(answered(Path(folder), lives)))
