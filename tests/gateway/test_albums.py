"""The albums alone, on a real ledger and a clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fermix.channels.catalog import album_times
from fermix.config.model import Config
from fermix.errors import ConfigError
from fermix.events import EventQueue, Events, MessageSettled
from fermix.gateway.albums import Album, Albums, Part
from fermix.gateway.authorize import Authorization
from fermix.gateway.ledger import Ledger
from fermix.home import Home
from fermix.message import Attachment, Media, Message
from fermix.setup.sections import load_config
from fermix.store import Database
from fermix.trust import Trust
from tests.fakes.channel import message
from tests.fakes.clock import ManualClock

OWNER = Authorization(Trust.OPERATOR, commands=True)
GUEST = Authorization(Trust.GUEST, commands=False)
QUIET_S = 3.0


def picture(
    id: str, caption: str = "", *, album: str | None = "al", sender: str = "1", chat: str = "chat", thread: str = "root"
) -> Message:
    file = Attachment("image", f"ref-{id}", "image/jpeg", 3)
    return message(
        caption, id=id, chat=chat, channel="chat", sender=sender, thread=thread, attachments=(file,), album=album
    )


@dataclass
class Desk:
    """Does what the gateway does with albums. `whole` are the messages that came out, in their order."""

    albums: Albums
    ledger: Ledger
    clock: ManualClock
    group: asyncio.TaskGroup
    news: EventQueue
    whole: list[Part] = field(default_factory=list[Part])

    async def say(self, wanted: Message, sender: Authorization = OWNER) -> Album | None:
        entry = await self.ledger.accept(wanted, sender.trust)
        assert entry is not None
        part = Part(wanted, sender, entry)
        album = self.albums.take(part)
        if album is None:
            self.whole.append(part)
        elif album.first is part:
            self.group.create_task(self._wait(album))
        await settle()
        return album

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await settle()

    @property
    def texts(self) -> list[str]:
        return [part.message.text for part in self.whole]

    @property
    def files(self) -> list[list[str]]:
        return [[file.reference for file in part.message.attachments] for part in self.whole]

    def settled(self) -> list[tuple[str, str]]:
        events = [item.event for item in self.news.drain()]
        return [(event.message_id, event.outcome) for event in events if isinstance(event, MessageSettled)]

    async def _wait(self, album: Album) -> None:
        self.whole.append(await self.albums.whole(album))


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def desk_in(path: Path) -> AsyncGenerator[Desk]:
    clock = ManualClock()
    events = Events(clock)
    async with asyncio.timeout(30), Database.open(path) as database, asyncio.TaskGroup() as group:
        ledger = Ledger(database, clock)
        albums = Albums(ledger, events, clock)
        albums.use({"chat": QUIET_S})
        with events.subscribe(1000) as news:
            yield Desk(albums, ledger, clock, group, news)
            clock.advance(1000)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    async with desk_in(tmp_path / "memory.db") as desk:
        yield desk


async def test_parts_become_one_message_when_no_more_come(desk: Desk) -> None:
    """TGM-13: four pictures, the caption at the second: one message, the pictures in their order."""
    for id, caption in (("m1", ""), ("m2", "who is this?"), ("m3", " "), ("m4", "")):
        await desk.say(picture(id, caption))
    assert desk.whole == []
    await desk.pass_time(QUIET_S)

    assert desk.texts == ["who is this?"]
    assert desk.files == [["ref-m1", "ref-m2", "ref-m3", "ref-m4"]]


async def test_all_captions_are_kept_in_the_order_of_their_pictures(desk: Desk) -> None:
    """TGM-14."""
    for id, caption in (("m1", "before"), ("m2", "after"), ("m3", "bill")):
        await desk.say(picture(id, caption))
    await desk.pass_time(QUIET_S)

    assert desk.texts == ["before\nafter\nbill"]


async def test_each_part_begins_the_wait_anew(desk: Desk) -> None:
    await desk.say(picture("m1"))
    await desk.pass_time(QUIET_S - 0.5)
    await desk.say(picture("m2"))
    await desk.pass_time(QUIET_S - 0.5)
    assert desk.whole == []
    await desk.pass_time(0.5)

    assert desk.files == [["ref-m1", "ref-m2"]]


async def test_everything_else_is_as_in_the_first_part_but_that_it_is_a_part(desk: Desk) -> None:
    first = replace(picture("m1", "a"), reply_target="there", private=False)
    await desk.say(first)
    await desk.say(picture("m2", "b"))
    await desk.pass_time(QUIET_S)

    files = (*first.attachments, *picture("m2").attachments)
    assert desk.whole[0].message == replace(first, text="a\nb", attachments=files, album=None)


async def test_the_tenth_part_ends_the_wait_and_the_next_begins_another_album(desk: Desk) -> None:
    for number in range(11):
        await desk.say(picture(f"m{number}"))
    assert [len(files) for files in desk.files] == [10]
    await desk.pass_time(QUIET_S)

    assert desk.files[1:] == [["ref-m10"]]


async def test_another_message_of_the_sender_lets_the_album_go_first(desk: Desk) -> None:
    """Reference, fault 15: a photo, then a text: the text may not overtake the photo."""
    await desk.say(picture("m1"))
    await desk.say(picture("m2"))
    await desk.say(message("what is this?", id="m3", channel="chat", sender="1"))

    assert sorted(desk.files) == [[], ["ref-m1", "ref-m2"]]


@pytest.mark.parametrize(
    "other",
    [
        message("hi", id="o", channel="chat", sender="2"),
        message("hi", id="o", channel="chat", sender="1", chat="elsewhere"),
        message("hi", id="o", channel="chat", sender="1", thread="7"),
    ],
    ids=["another person", "another chat", "another thread"],
)
async def test_a_message_of_somebody_else_or_elsewhere_lets_nothing_go(desk: Desk, other: Message) -> None:
    await desk.say(picture("m1"))
    await desk.say(other)

    assert desk.texts == ["hi"]


async def test_what_is_not_of_one_sender_one_chat_and_one_album_is_not_mixed(desk: Desk) -> None:
    others = [{}, {"sender": "2"}, {"chat": "b"}, {"thread": "7"}, {"album": "other"}]
    for letter in "mn":
        for number, other in enumerate(others):
            await desk.say(picture(f"{letter}{number}", **other))
    await desk.pass_time(QUIET_S)

    assert desk.files == [[f"ref-m{number}", f"ref-n{number}"] for number in range(5)]


async def test_an_edit_of_a_picture_is_no_picture_of_the_album(desk: Desk) -> None:
    await desk.say(picture("m1", "cta"))
    await desk.say(replace(picture("m2", "cat"), kind="edit"))

    assert sorted(desk.texts) == ["cat", "cta"]


async def test_where_an_album_comes_as_one_message_nothing_waits(desk: Desk) -> None:
    await desk.say(replace(picture("m1"), channel="discord"))

    assert desk.files == [["ref-m1"]]


async def test_a_new_time_holds_for_the_next_album(desk: Desk) -> None:
    await desk.say(picture("m1"))
    desk.albums.use({"chat": 0.0})
    await desk.say(picture("m2"))
    await desk.pass_time(QUIET_S)
    await desk.say(picture("m3"))

    assert desk.files == [["ref-m1", "ref-m2"], ["ref-m3"]]


async def test_without_a_time_not_even_parts_that_come_at_once_are_gathered(desk: Desk) -> None:
    desk.albums.use({"chat": 0.0})
    for number in range(2):
        said = picture(f"m{number}")
        entry = await desk.ledger.accept(said, OWNER.trust)
        assert entry is not None
        assert desk.albums.take(Part(said, OWNER, entry)) is None


async def test_files_that_came_with_the_parts_stay_in_their_order(desk: Desk) -> None:
    here = [Media("image", "image/png", bytes([number])) for number in range(2)]
    for number, file in enumerate(here):
        await desk.say(replace(picture(f"m{number}"), media=(file,)))
    await desk.pass_time(QUIET_S)

    assert desk.whole[0].message.media == tuple(here)


async def test_too_many_albums_go_part_by_part_with_one_warning(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(200):
        await desk.say(picture(f"m{number}", album=f"al{number}"))
    for number in range(3):
        await desk.say(picture(f"n{number}", album="one too many"))
    await desk.say(picture("late", album="al0"))
    assert desk.files == [["ref-n0"], ["ref-n1"], ["ref-n2"]]
    assert caplog.text.count("albums are open at once") == 1
    await desk.pass_time(QUIET_S)
    await desk.say(picture("again", album="one too many"))

    assert len(desk.whole) == 3 + 200
    assert ["ref-m0", "ref-late"] in desk.files


@pytest.mark.parametrize(
    ("rights", "least"), [((OWNER, OWNER), OWNER), ((OWNER, GUEST), GUEST), ((GUEST, OWNER), GUEST)]
)
async def test_a_right_that_changes_between_two_parts_counts_as_the_lesser(
    desk: Desk, rights: tuple[Authorization, ...], least: Authorization
) -> None:
    for number, right in enumerate(rights):
        await desk.say(picture(f"m{number}"), right)
    await desk.pass_time(QUIET_S)

    assert [part.sender for part in desk.whole] == [least]
    assert [found.trust for found in await desk.ledger.unfinished()] == [least.trust]


async def test_one_row_carries_the_album_and_each_other_part_has_its_last_word(desk: Desk) -> None:
    for id in ("m1", "m2", "m3"):
        await desk.say(picture(id))
    await desk.pass_time(QUIET_S)

    (row,) = await desk.ledger.unfinished()
    assert (row.entry, row.message) == (desk.whole[0].entry, desk.whole[0].message)
    assert desk.settled() == [("m2", "handled"), ("m3", "handled")]


async def test_an_album_of_one_is_no_part_any_more(desk: Desk) -> None:
    """Else the next start could add it to an album that came later."""
    await desk.say(picture("m1"))
    await desk.pass_time(QUIET_S)

    assert [found.message.album for found in await desk.ledger.unfinished()] == [None]


def read(tmp_path: Path, text: str) -> Config:
    home = Home(tmp_path)
    home.config.write_text(text, encoding="utf-8")
    return load_config(home, {})


def test_two_channels_have_albums_and_wait_three_seconds_unless_told(tmp_path: Path) -> None:
    """Reference, 2.6: Telegram and WhatsApp only, 3000 ms."""
    assert album_times(read(tmp_path, "")) == {
        "telegram": 3.0, "whatsapp": 3.0, "discord": 0.0, "slack": 0.0, "signal": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(("stated", "seconds"), [(800, 0.8), (0, 0.0), (-1, 0.0)])
@pytest.mark.parametrize("name", ["telegram", "whatsapp"])
def test_the_time_is_stated_in_the_section_of_the_channel(
    tmp_path: Path, name: str, stated: int, seconds: float
) -> None:
    found = album_times(read(tmp_path, f"[fermix_channels.{name}]\nalbum_debounce_ms = {stated}\n"))

    assert found[name] == seconds


def test_a_time_of_hours_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="album_debounce_ms"):
        album_times(read(tmp_path, "[fermix_channels.telegram]\nalbum_debounce_ms = 3600000\n"))
