"""Recordings, pictures and other files on their way in: a real gateway and ledger before a platform in miniature."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace

import pytest

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.errors import ChannelUnavailable, Refused, Unavailable, Unusable
from fermix.events import MessageSettled
from fermix.gateway import media as media_module
from fermix.gateway import queue as queue_module
from fermix.gateway.commands.stop import USAGE
from fermix.gateway.gateway import EMPTY, FULL
from fermix.gateway.media import FAILED, MediaStep
from fermix.gateway.transcription.transcriber import Audio, NoBackend, TranscriptionSettings
from fermix.message import Attachment, Media, Message, Sender
from fermix.trust import Trust
from tests.fakes.channel import PIECE_BYTES, FakeAgent, FakeChannel, completed, message
from tests.fakes.platform import AWAY, Platform, slow
from tests.fakes.transcriber import MOST_AUDIO_BYTES, FakeTranscriber, media_step
from tests.gateway.conftest import Install, Open
from tests.requirements import covers

PNG, JPEG, GIF = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a"
WEBP = b"RIFF\x24\x00\x00\x00WEBPVP8 "
MIB = 1 << 20


@dataclass
class Reader:
    """An agent that remembers what it was given to read."""

    read: list[Message] = field(default_factory=list)

    async def __call__(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        self.read.append(turn.message)
        return completed(f"answer to {turn.message.id}")

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.read]

    @property
    def pictures(self) -> list[tuple[tuple[str, bytes], ...]]:
        return [tuple((one.mime, one.data) for one in message.media) for message in self.read]


@dataclass
class Phone:
    """Somebody who sends files to a gateway."""

    install: Install
    reader: Reader = field(default_factory=Reader)

    def __post_init__(self) -> None:
        self.platform = self.install.platform
        self.channel = FakeChannel("chat", platform=self.platform, can=("downloads",))
        self.agent = FakeAgent(self.reader)

    def file(self, body: bytes, kind: str = "image", *, mime: str = "", size: int | None = None) -> Attachment:
        reference = f"https://files.invalid/bot-token/{len(self.platform.files)}"
        self.platform.files[reference] = body
        return Attachment(kind, reference, mime, size, "from-the-platform")  # type: ignore[arg-type]

    def voice(self, words: str | bytes, *, size: int | None = None) -> Attachment:
        body = words if isinstance(words, bytes) else words.encode()
        return self.file(body, "audio", mime="audio/ogg", size=size)

    def message(self, *files: Attachment, text: str = "", id: str = "m1", chat: str = "chat") -> Message:
        return message(text, id=id, chat=chat, channel="chat", sender="1", attachments=files)

    async def send(self, life: Open, *files: Attachment, text: str = "", id: str = "m1", chat: str = "chat") -> None:
        await life.gateway.ingest(self.message(*files, text=text, id=id, chat=chat), life.channel)


@pytest.fixture
def phone(install: Install) -> Phone:
    return Phone(install)


@covers("audio.with-or-without-caption", "audio.caption.delimiter")
@pytest.mark.parametrize(
    ("caption", "read"),
    [("", "hello there"), (" \n", "hello there"), ("hear", "hear\n[voice note transcript]\nhello there")],
)
async def test_a_voice_note_becomes_text_with_or_without_a_caption(
    install: Install, phone: Phone, caption: str, read: str
) -> None:
    """VOX-05: both texts are kept, the caption first."""
    listener = FakeTranscriber()
    async with install.start(phone.agent, phone.channel, media_step(listener)) as life:
        await phone.send(life, phone.voice("hello there"), text=caption)
        await life.settled(1)

    assert phone.reader.texts == [read]
    assert listener.heard == [Audio(b"hello there", "audio/ogg", "from-the-platform")]
    assert install.outcomes() == {"m1": "answered"}


async def test_only_the_first_recording_is_fetched_and_heard(install: Install, phone: Phone) -> None:
    """Reference 3, 2.3."""
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.voice("first"), phone.voice("second"))
        await life.settled(1)

    assert phone.reader.texts == ["first"]
    assert phone.platform.calls["download"] == 1


async def test_where_nothing_can_be_downloaded_files_are_not_read(install: Install, phone: Phone) -> None:
    """Reference 3, 2.3 and 2.4: only where the channel can download."""
    phone.channel = FakeChannel("chat", platform=phone.platform, can=())
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.voice("hi"), phone.file(PNG), text="look", id="m1")
        await phone.send(life, phone.voice("hi"), id="m2")
        await life.settled(2)

    assert phone.reader.texts == ["look"]
    assert phone.platform.texts() == ["answer to m1", EMPTY]


@covers("audio.fail.no-backend", "audio.fail.no-turn")
async def test_without_a_backend_the_sender_is_pointed_at_setup(install: Install, phone: Phone) -> None:
    listener = FakeTranscriber(NoBackend("no speech model is here"))
    async with install.start(phone.agent, phone.channel, media_step(listener)) as life:
        await phone.send(life, phone.voice("hi"), text="a caption is no substitute")
        assert await life.settled(1) == [("m1", "failed")]

    assert phone.platform.texts() == ["no speech model is here: run `fermix setup`"]
    assert (phone.reader.read, install.outcomes()) == ([], {"m1": "failed"})


@covers("audio.fail.too-large", "audio.fail.no-turn")
@pytest.mark.parametrize("declared", [True, False, "a lie"])
async def test_a_recording_over_the_cap_is_told_with_the_limit(
    install: Install, phone: Phone, declared: bool | str
) -> None:
    """VOX-05: not fetched at all when its size is known, else no further than to the cap."""
    listener, cap = FakeTranscriber(), MIB
    body = b"x" * (25 * MIB // 10)
    size = {True: len(body), False: None, "a lie": 100}[declared]
    async with install.start(phone.agent, phone.channel, MediaStep(listener, cap)) as life:
        await phone.send(life, phone.voice(body, size=size), text="hear this")
        assert await life.settled(1) == [("m1", "failed")]

    known = "has 2.5 MB" if declared is True else "is too large"
    assert phone.platform.texts() == [f"Your voice note {known}; I take at most 1 MB. Please send a shorter clip."]
    assert phone.platform.calls["download"] == (0 if declared is True else 1)
    assert phone.platform.downloaded_bytes <= cap + PIECE_BYTES
    assert (listener.heard, phone.reader.read, install.outcomes()) == ([], [], {"m1": "failed"})


@pytest.mark.parametrize("size", [MOST_AUDIO_BYTES, None])
async def test_a_recording_of_just_the_cap_is_heard(install: Install, phone: Phone, size: int | None) -> None:
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.voice("x" * MOST_AUDIO_BYTES, size=size))
        await life.settled(1)

    assert phone.reader.texts == ["x" * MOST_AUDIO_BYTES]


@covers("audio.cap.default")
def test_the_cap_of_a_recording_is_20_mb_unless_stated() -> None:
    assert TranscriptionSettings().max_file_bytes == 20 * MIB
    assert TranscriptionSettings(max_file_mb=1).max_file_bytes == MIB


async def test_a_changed_cap_counts_from_the_next_message_on(install: Install, phone: Phone) -> None:
    step = media_step()
    async with install.start(phone.agent, phone.channel, step) as life:
        await phone.send(life, phone.voice("hello"), id="m1")
        await life.settled(1)
        step.use(4)
        await phone.send(life, phone.voice("hello"), id="m2")
        assert await life.settled(1) == [("m2", "failed")]

    assert phone.reader.texts == ["hello"]


@covers("audio.fail.other", "audio.fail.no-turn")
@pytest.mark.parametrize(
    "problem",
    [Unavailable("the backend is away"), Refused("no"), Unusable("noise"), RuntimeError("bug"), TimeoutError()],
    ids=lambda problem: type(problem).__name__,
)
async def test_any_other_failure_of_a_transcription_asks_to_try_again(
    install: Install, phone: Phone, problem: Exception
) -> None:
    async with install.start(phone.agent, phone.channel, media_step(FakeTranscriber(problem))) as life:
        await phone.send(life, phone.voice("one"), text="caption", id="m1")
        await phone.send(life, phone.voice("two"), id="m2")
        assert await life.settled(2) == [("m1", "failed"), ("m2", "completed")]

    assert "the transcription failed, please try again" in FAILED
    assert phone.platform.texts() == [FAILED, "answer to m2"]
    assert install.outcomes() == {"m1": "failed", "m2": "answered"}


@covers("audio.fail.other")
@pytest.mark.parametrize("words", ["", " \n\t"])
async def test_a_transcript_without_words_is_a_failure(install: Install, phone: Phone, words: str) -> None:
    """Reference 3, 2.3."""
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.voice(words), text="caption")
        await life.settled(1)

    assert (phone.platform.texts(), phone.reader.read) == ([FAILED], [])


@covers("image.attached-as-image", "empty.image-alone-is-content")
async def test_pictures_reach_the_agent_as_what_they_are(install: Install, phone: Phone) -> None:
    """Neither the declared type nor the name is believed; a picture alone is content; the order is kept."""
    files = [phone.file(head + bytes(20_000), mime="text/html") for head in (PNG, JPEG, GIF, WEBP)]
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, *files)
        await life.settled(1)

    types = ["image/png", "image/jpeg", "image/gif", "image/webp"]
    bodies = [phone.platform.files[one.reference] for one in files]
    assert phone.reader.pictures == [tuple(zip(types, bodies, strict=True))]
    assert phone.reader.texts == [""]
    assert install.outcomes() == {"m1": "answered"}


async def test_pictures_come_a_few_at_a_time_and_keep_their_order(install: Install, phone: Phone) -> None:
    gates = [asyncio.Event() for _ in range(6)]
    phone.platform.fail("download", *(slow(gate) for gate in gates))
    files = [phone.file(PNG + bytes([number])) for number in range(len(gates))]
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, *files)
        await phone.platform.until(lambda: phone.platform.calls["download"] == 4)
        for _ in range(20):
            await asyncio.sleep(0)
        assert phone.platform.calls["download"] == 4
        for gate in reversed(gates):
            gate.set()
        await life.settled(1)

    assert phone.reader.pictures == [tuple(("image/png", phone.platform.files[one.reference]) for one in files)]


def _is_refused(phone: Phone) -> Attachment:
    phone.platform.fail("download", AWAY)
    return phone.file(PNG)


def _breaks_the_adapter(phone: Phone) -> Attachment:
    return replace(phone.file(PNG), reference="nobody knows this one")


def _never_comes(phone: Phone) -> Attachment:
    phone.platform.fail("download", slow(asyncio.Event()))
    return phone.file(PNG)


BAD: dict[str, Callable[[Phone], Attachment]] = {
    "refused": _is_refused,
    "breaks the adapter": _breaks_the_adapter,
    "never comes": _never_comes,
    "empty": lambda phone: phone.file(b"", mime="image/png"),
    "a web page": lambda phone: phone.file(b"<html>log in</html>", mime="image/png"),
    "an svg": lambda phone: phone.file(b"<svg xmlns='http://www.w3.org/2000/svg'/>", mime="image/svg+xml"),
    "declared too large": lambda phone: phone.file(PNG, size=50_001),
    "too large": lambda phone: phone.file(PNG + bytes(50_000), size=10),
    "too large together": lambda phone: phone.file(PNG + bytes(49_000)),
}


@covers("image.fail.no-degraded-turn", "image.fail.log-only")
@pytest.mark.parametrize("bad", BAD)
async def test_one_picture_that_cannot_be_had_leaves_no_turn_no_reply_and_a_log(
    install: Install, phone: Phone, bad: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DLV-02, reference 3, 2.4: all or nothing; the messages that came with it are answered."""
    monkeypatch.setattr(media_module, "MOST_PICTURE_BYTES", 50_000)
    monkeypatch.setattr(media_module, "MOST_PICTURES_BYTES", 90_000)
    monkeypatch.setattr(media_module, "DOWNLOAD_S", 0.05)
    files = (BAD[bad](phone), phone.file(PNG + bytes(40_993)), phone.file(JPEG))
    async with install.start(phone.agent, phone.channel) as life:
        with caplog.at_level(logging.ERROR):
            await phone.send(life, *files, text="what is this?", id="m1")
            await phone.send(life, text="and this?", id="m2")
            assert await life.settled(2) == [("m1", "failed"), ("m2", "completed")]

    assert (phone.reader.texts, phone.platform.texts()) == (["and this?"], ["answer to m2"])
    assert install.outcomes() == {"m1": "failed", "m2": "answered"}
    assert "message 1 gets no turn" in caplog.text
    assert all(one.reference not in caplog.text for one in files if one.reference in phone.platform.files)
    assert phone.platform.downloaded_bytes <= 90_000 + PIECE_BYTES


async def test_pictures_that_are_declared_too_large_together_are_not_fetched(
    install: Install, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_module, "MOST_PICTURES_BYTES", 90_000)
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.file(PNG, size=45_000), phone.file(PNG, size=45_001))
        assert await life.settled(1) == [("m1", "failed")]

    assert phone.platform.calls["download"] == 0


async def test_pictures_that_are_here_stay_beside_those_that_are_fetched(install: Install, phone: Phone) -> None:
    here = Media("image", "image/gif", GIF)
    async with install.start(phone.agent, phone.channel) as life:
        await life.gateway.ingest(replace(phone.message(phone.file(PNG)), media=(here,)), life.channel)
        await life.settled(1)

    assert phone.reader.pictures == [(("image/gif", GIF), ("image/png", PNG))]


@pytest.mark.parametrize(("size", "outcome"), [(5_000, "completed"), (5_001, "failed")])
async def test_a_picture_of_just_the_size_is_taken_and_not_one_byte_more(
    install: Install, phone: Phone, monkeypatch: pytest.MonkeyPatch, size: int, outcome: str
) -> None:
    monkeypatch.setattr(media_module, "MOST_PICTURE_BYTES", 5_000)
    monkeypatch.setattr(media_module, "MOST_PICTURES_BYTES", 10_001)
    body = PNG + bytes(4_992)
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.file(body, size=5_000), phone.file(PNG.ljust(size)))
        assert await life.settled(1) == [("m1", outcome)]


@pytest.mark.parametrize("step", ["DOWNLOAD_S", "TRANSCRIPTION_S"])
async def test_a_voice_note_is_not_waited_for_without_end(
    install: Install, phone: Phone, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(media_module, step, 0.02)
    if step == "DOWNLOAD_S":
        phone.platform.fail("download", slow(asyncio.Event()))
    listener = FakeTranscriber(gate=asyncio.Event())
    async with install.start(phone.agent, phone.channel, media_step(listener)) as life:
        await phone.send(life, phone.voice("hello"))
        await life.settled(1)

    assert (phone.platform.texts(), install.outcomes()) == ([FAILED], {"m1": "failed"})


@covers("ingress.reply-path.before-media")
async def test_a_failed_voice_note_is_told_where_it_was_sent(install: Install, phone: Phone) -> None:
    """Ingress and trust, step 3: the way back is there before media are touched; a guest walks the same one."""
    phone.platform.fail("download", AWAY)
    async with install.start(phone.agent, phone.channel) as life:
        said = replace(phone.message(phone.voice("hi"), id="m7", chat="group"), thread="9", private=False)
        await life.gateway.ingest(replace(said, sender=Sender("2", "Guest")), life.channel)
        await life.settled(1)

    (told,) = phone.platform.shown()
    assert (told.chat, told.thread, told.answers, told.text) == ("group", "9", "m7", FAILED)


@pytest.mark.parametrize("kind", ["file", "nothing"])
async def test_what_is_neither_text_nor_readable_is_empty(install: Install, phone: Phone, kind: str) -> None:
    """Ingress and trust, step 5: a sticker, a poll, blanks, or a document, of which nothing is fetched."""
    files = (phone.file(b"%PDF-1.7", "file", mime="application/pdf"),) if kind == "file" else ()
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, *files, text=" \n")
        await life.settled(1)

    assert (phone.platform.texts(), phone.reader.read) == ([EMPTY], [])
    assert phone.platform.calls["download"] == 0
    assert install.outcomes() == {"m1": "handled"}


async def test_a_document_beside_text_changes_nothing(install: Install, phone: Phone) -> None:
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.file(b"%PDF-1.7", "file"), text="read this")
        await life.settled(1)

    assert (phone.reader.texts, phone.platform.calls["download"]) == (["read this"], 0)


async def test_a_recording_and_pictures_of_one_message_are_read_together(install: Install, phone: Phone) -> None:
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.file(PNG), phone.voice("what is this?"), phone.file(JPEG), text="look")
        await life.settled(1)

    assert phone.reader.texts == ["look\n[voice note transcript]\nwhat is this?"]
    assert phone.reader.pictures == [(("image/png", PNG), ("image/jpeg", JPEG))]


async def test_the_agent_is_shown_no_reference(install: Install, phone: Phone) -> None:
    """An address of a file can carry the bot's token."""
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.file(PNG), phone.voice("hi"), phone.file(b"x", "file"))
        await life.settled(1)

    assert "bot-token" not in repr(phone.reader.read)
    assert phone.reader.read[0].attachments == ()


async def test_a_stop_ends_what_is_being_fetched_and_the_lane_goes_on(install: Install, phone: Phone) -> None:
    """QUE-01: no phase of a message is out of a stop's reach."""
    phone.platform.fail("download", slow(asyncio.Event()))
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.file(PNG), text="slow", id="m1")
        await phone.send(life, text="behind it", id="m2")
        await phone.platform.until(lambda: phone.platform.calls["download"] == 1)
        await phone.send(life, text="/stop", id="m3")
        await phone.send(life, text="after it", id="m4")
        assert sorted(await life.settled(4)) == [
            ("m1", "cancelled"), ("m2", "cancelled"), ("m3", "handled"), ("m4", "completed"),
        ]  # fmt: skip

    assert phone.platform.texts() == ["Nothing was running. 2 waiting messages were dropped.", "answer to m4"]
    assert install.outcomes() == {"m1": "stopped", "m2": "stopped", "m3": "handled", "m4": "answered"}
    assert phone.reader.texts == ["after it"]


class Stubborn(FakeChannel):
    """An adapter that tidies up for a while when it is cancelled, and then fails, or ends as if nothing had been."""

    def __init__(self, platform: Platform, *, fails: bool) -> None:
        super().__init__("chat", platform=platform, can=("downloads",))
        self.tidied = asyncio.Event()
        self.tidies = asyncio.Event()
        self._fails = fails

    async def _pieces(self, attachment: Attachment) -> AsyncGenerator[bytes]:
        try:
            yield b"hello"
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.tidies.set()
            await self.tidied.wait()
            if self._fails:
                raise ChannelUnavailable("the connection broke") from None


@pytest.mark.parametrize("fails", [True, False])
async def test_one_message_is_stopped_at_once_whatever_its_adapter_does(
    install: Install, phone: Phone, fails: bool
) -> None:
    """The row has one last word and the sender is told nothing, however the download ends after the stop."""
    channel = Stubborn(phone.platform, fails=fails)
    async with install.start(phone.agent, channel) as life:
        await phone.send(life, phone.voice("slow"), id="m1")
        await phone.send(life, text="behind it", id="m2")
        await phone.platform.until(lambda: phone.platform.calls["download"] == 1)
        assert life.gateway.stop(phone.message().key, "m1") == (0, 1)
        assert await life.settled(2) == [("m1", "cancelled"), ("m2", "completed")]
        await asyncio.wait_for(channel.tidies.wait(), 5)
        channel.tidied.set()
    assert [item.event for item in life.news.drain() if isinstance(item.event, MessageSettled)] == []
    assert install.outcomes() == {"m1": "stopped", "m2": "answered"}
    assert (phone.platform.texts(), phone.reader.texts) == (["answer to m2"], ["behind it"])


async def test_a_second_stop_drops_nothing_again_while_the_adapter_tidies_up(install: Install, phone: Phone) -> None:
    """Behind a running turn its place is still there, and its message has had its last word."""
    channel, key = Stubborn(phone.platform, fails=False), phone.message().key
    entered, go = asyncio.Event(), asyncio.Event()

    async def runs(turn: Turn, port: ReplyPort) -> TurnOutcome:
        entered.set()
        await go.wait()
        return completed("done")

    async with install.start(FakeAgent(runs), channel) as life:
        await phone.send(life, text="runs", id="m1")
        await asyncio.wait_for(entered.wait(), 5)
        await phone.send(life, phone.voice("slow"), id="m2")
        await phone.platform.until(lambda: phone.platform.calls["download"] == 1)

        assert [life.gateway.stop(key, "m2") for _ in range(2)] == [(0, 1), (0, 0)]
        await asyncio.wait_for(channel.tidies.wait(), 5)
        channel.tidied.set()
        go.set()
        assert await life.settled(2) == [("m2", "cancelled"), ("m1", "completed")]


async def test_a_stop_that_comes_before_the_fetching_lets_nothing_be_fetched(install: Install, phone: Phone) -> None:
    """After a restart a message first takes its old draft back."""
    gate = asyncio.Event()
    phone.channel = FakeChannel("chat", platform=phone.platform, can=("downloads", "drafts"))
    said = phone.message(phone.file(PNG))
    async with install.ledger() as ledger:
        entry = await ledger.accept(said, Trust.OPERATOR)
        assert entry is not None
        ledger.draft(entry, await phone.channel.open(said, "half an ans", "key-1"))
    phone.platform.fail("discard", slow(gate))
    async with install.start(phone.agent, phone.channel) as life:
        await phone.platform.until(lambda: phone.platform.calls["discard"] == 1)
        life.gateway.stop(said.key)
        gate.set()
        assert await life.settled(1) == [("m1", "cancelled")]

    assert (phone.platform.calls["download"], install.outcomes()) == (0, {"m1": "stopped"})


async def test_a_stop_while_somebody_listens_ends_that_too(install: Install, phone: Phone) -> None:
    listener = FakeTranscriber(gate=asyncio.Event())
    async with install.start(phone.agent, phone.channel, media_step(listener)) as life:
        await phone.send(life, phone.voice("slow"), id="m1")
        await asyncio.wait_for(listener.entered.wait(), 5)
        assert life.gateway.stop(phone.message().key) == (0, 1)
        assert await life.settled(1) == [("m1", "cancelled")]
        await asyncio.wait_for(life.gateway.lanes.idle(), 5)

    assert (phone.platform.texts(), install.outcomes()) == ([], {"m1": "stopped"})


@pytest.mark.parametrize("fetched", [False, True])
async def test_a_shutdown_leaves_unprepared_messages_and_the_next_start_fetches_them(
    install: Install, phone: Phone, fetched: bool
) -> None:
    """DLV-05, DLV-06: at once, without a word, and what came behind it does not overtake it."""
    listener = FakeTranscriber(gate=asyncio.Event())
    if not fetched:
        phone.platform.fail("download", slow(asyncio.Event()))
    async with install.start(phone.agent, phone.channel, media_step(listener)) as life:
        await phone.send(life, phone.voice("first"), text="hear", id="m1")
        await phone.send(life, text="second", id="m2")
        await phone.send(life, phone.file(PNG), id="m3")
        await phone.platform.until(lambda: phone.platform.calls["download"] == 1)
        if fetched:
            await asyncio.wait_for(listener.entered.wait(), 5)
        async with asyncio.timeout(1):
            await life.gateway.drain()
    assert install.outcomes() == dict.fromkeys(["m1", "m2", "m3"])
    assert (phone.reader.read, phone.platform.texts()) == ([], [])
    async with install.start(phone.agent, phone.channel) as life:
        assert await life.settled(3) == [("m1", "completed"), ("m2", "completed"), ("m3", "completed")]

    assert phone.reader.texts == ["hear\n[voice note transcript]\nfirst", "second", ""]
    assert phone.platform.texts() == ["answer to m1", "answer to m2", "answer to m3"]
    assert install.rows("SELECT begun FROM inbox") == [(1,), (1,), (1,)]


async def test_a_shutdown_lets_a_running_turn_end_that_unprepared_messages_wait_for(
    install: Install, phone: Phone
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slowly(turn: Turn, port: ReplyPort) -> TurnOutcome:
        asked.set()
        await go.wait()
        return completed("answer")

    phone.platform.fail("download", slow(asyncio.Event()))
    async with install.start(FakeAgent(slowly), phone.channel) as life, asyncio.TaskGroup() as group:
        await phone.send(life, text="runs", id="m1")
        await phone.send(life, phone.file(PNG), id="m2")
        await asyncio.wait_for(asked.wait(), 5)
        await phone.platform.until(lambda: phone.platform.calls["download"] == 1)
        group.create_task(life.gateway.drain())
        await asyncio.sleep(0)
        go.set()

    assert install.outcomes() == {"m1": "answered", "m2": None}


async def test_one_message_of_a_lane_is_fetched_at_a_time_and_other_lanes_do_not_wait(
    install: Install, phone: Phone
) -> None:
    """Whoever sends a hundred pictures at once does not have them in memory at once."""
    gate = asyncio.Event()
    phone.platform.fail("download", slow(gate))
    async with install.start(phone.agent, phone.channel) as life:
        for number in range(3):
            await phone.send(life, phone.file(PNG), id=f"m{number}")
        await phone.send(life, phone.file(PNG), id="other", chat="b")
        assert await life.settled(1) == [("other", "completed")]
        assert phone.platform.calls["download"] == 2
        gate.set()
        assert [id for id, _ in await life.settled(3)] == ["m0", "m1", "m2"]


async def test_a_lane_bounds_the_bytes_that_wait_in_it(
    install: Install, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 3, queue: past the bound the sender is told and the row is settled as refused; what runs is not counted."""
    monkeypatch.setattr(queue_module, "MOST_WAITING_MEDIA_BYTES", 2_000)
    asked, go = asyncio.Event(), asyncio.Event()

    async def slowly(turn: Turn, port: ReplyPort) -> TurnOutcome:
        asked.set()
        await go.wait()
        return completed(turn.message.id)

    picture = PNG + bytes(992)
    async with install.start(FakeAgent(slowly), phone.channel) as life:
        await phone.send(life, phone.file(PNG + bytes(5_000)), id="runs")
        await asyncio.wait_for(asked.wait(), 5)
        await phone.send(life, phone.file(picture), id="m1")
        await phone.send(life, phone.file(picture), id="m2")
        await phone.send(life, phone.file(PNG), id="m3")
        await phone.send(life, text="text alone", id="m4")
        assert await life.settled(1) == [("m3", "failed")]
        go.set()
        await life.settled(4)

    assert phone.platform.texts() == [FULL, "runs", "m1", "m2", "m4"]
    assert install.outcomes()["m3"] == "refused"


async def test_after_a_restart_media_are_fetched_when_it_is_their_turn(install: Install, phone: Phone) -> None:
    """No full lane refuses what was accepted, so its bytes must not wait in memory."""
    async with install.ledger() as ledger:
        for number in range(3):
            await ledger.accept(phone.message(phone.file(PNG + bytes([number])), id=f"m{number}"), Trust.OPERATOR)
    fetched_then: list[int] = []

    async def counts(turn: Turn, port: ReplyPort) -> TurnOutcome:
        fetched_then.append(phone.platform.calls["download"])
        return completed(turn.message.id)

    async with install.start(FakeAgent(counts), phone.channel) as life:
        await life.settled(3)

    assert fetched_then == [1, 2, 3]
    assert phone.platform.texts() == ["m0", "m1", "m2"]


async def test_what_waits_for_its_media_after_a_restart_can_be_stopped(install: Install, phone: Phone) -> None:
    async with install.ledger() as ledger:
        for number in range(2):
            await ledger.accept(phone.message(phone.file(PNG), id=f"m{number}"), Trust.OPERATOR)
    phone.platform.fail("download", slow(asyncio.Event()))
    async with install.start(phone.agent, phone.channel) as life:
        await phone.platform.until(lambda: phone.platform.calls["download"] == 1)
        assert life.gateway.stop(phone.message().key) == (0, 2)
        await life.settled(2)

    assert install.outcomes() == {"m0": "stopped", "m1": "stopped"}
    assert phone.reader.read == []


async def test_the_bytes_go_with_their_turn(install: Install, phone: Phone) -> None:
    agent = FakeAgent()  # remembers no message
    async with install.start(agent, phone.channel) as life:
        await phone.send(life, phone.file(PNG + b"kept by nobody"), text="look")
        await life.settled(1)
        await life.gateway.lanes.idle()
        gc.collect()

        assert [one for one in gc.get_objects() if isinstance(one, Media) and one.data.endswith(b"nobody")] == []


async def test_a_request_that_runs_again_fetches_its_own_media_again(install: Install, phone: Phone) -> None:
    """On approval the original request is resumed as it was sent, not with a transcript inside its caption."""
    turns: list[Turn] = []

    async def keeps(turn: Turn, port: ReplyPort) -> TurnOutcome:
        turns.append(turn)
        return completed("answer")

    async with install.start(FakeAgent(keeps), phone.channel) as life:
        await phone.send(life, phone.voice("open it"), phone.file(PNG), text="please")
        await life.settled(1)
        seam = turns[0].seam
        assert seam is not None
        assert seam.resume is not None
        await seam.resume()
        await life.settled(1)

    first, again = (turn.message for turn in turns)
    assert again == replace(first, id=again.id)
    assert first.text == "please\n[voice note transcript]\nopen it"


async def test_what_was_heard_is_on_disk_before_anything_is_made_of_it(install: Install, phone: Phone) -> None:
    """DLV-06: a start that finds the message knows the words; the recording is heard once, pictures come again."""
    files = (phone.voice("what is this?"), phone.file(PNG))
    listener = FakeTranscriber()
    held = asyncio.Event()

    async def hangs(turn: Turn, port: ReplyPort) -> TurnOutcome:
        held.set()
        return await asyncio.get_running_loop().create_future()

    async with install.start(FakeAgent(hangs), phone.channel, media_step(listener)) as life:
        await phone.send(life, *files, text="look")
        await asyncio.wait_for(held.wait(), 5)
        life.gateway.lanes.leave_all()
    async with install.start(phone.agent, phone.channel, media_step(listener)) as life:
        await life.settled(1)

    assert phone.reader.texts == ["look\n[voice note transcript]\nwhat is this?"]
    assert phone.reader.pictures == [(("image/png", PNG),)]
    assert (len(listener.heard), phone.platform.calls["download"]) == (1, 3)


@pytest.mark.parametrize("said", ["/new", " /stop all", "//grant path /"])
async def test_what_is_spoken_is_never_a_command(install: Install, phone: Phone, said: str) -> None:
    """A forwarded voice note speaks with the owner's trust, yet the words are somebody else's."""
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.voice(said), id="m1")
        await life.settled(1)

        assert life.conversations.cleared == []
    assert phone.reader.texts == [said.lstrip(" /")]


@pytest.mark.parametrize("sender", ["1", "4"], ids=["owner", "commander"])
async def test_what_comes_behind_a_stop_that_takes_its_time_is_not_stopped(
    install: Install, phone: Phone, sender: str
) -> None:
    """The command's place in its lane is the border, whenever it is carried out."""
    come = asyncio.Event()
    phone.platform.fail("download", slow(come))
    stop = replace(phone.message(phone.file(PNG), text="/stop", id="m1"), sender=Sender(sender, "Jo"))
    async with install.start(phone.agent, phone.channel) as life:
        await life.gateway.ingest(stop, life.channel)
        await phone.platform.until(lambda: phone.platform.calls["download"] == 1)
        await phone.send(life, text="later", id="m2")
        await life.database.run(lambda _: None)
        await asyncio.sleep(0)
        come.set()
        assert await life.settled(2) == [("m1", "handled"), ("m2", "completed")]

    assert phone.reader.texts == ["later"]


@covers("ingress.order", "command.recognised")
async def test_what_is_said_with_a_typed_command_is_part_of_it(install: Install, phone: Phone) -> None:
    """Steps 4 and 7 in their order: a command is read when the whole message is there, the transcript included."""
    async with install.start(phone.agent, phone.channel) as life:
        await phone.send(life, phone.voice("the other one"), text="/stop", id="m1")
        assert await life.settled(1) == [("m1", "handled")]

    assert phone.platform.texts() == [USAGE]
    assert phone.reader.texts == []


@covers("ingress.order")
async def test_a_stranger_s_files_are_never_fetched(install: Install, phone: Phone) -> None:
    """R-16: the sender is judged before anything is downloaded or heard."""
    listener = FakeTranscriber()
    async with install.start(phone.agent, phone.channel, media_step(listener)) as life:
        for file in (phone.voice("hi"), phone.file(PNG), phone.file(b"x", "file")):
            stranger = replace(phone.message(file, text="hi"), sender=Sender("66", "Eve"))
            await life.gateway.ingest(stranger, life.channel)
        await asyncio.sleep(0)

    assert (listener.heard, phone.platform.calls["download"], phone.platform.log()) == ([], 0, [])


@covers("ingress.normalize")
async def test_whatever_form_it_came_in_it_is_one_type_from_the_door_on(install: Install, phone: Phone) -> None:
    """Ingress and trust, step 1: pushed, polled, tapped, with files or without."""
    async with install.start(phone.agent, phone.channel) as life, asyncio.TaskGroup() as group:
        polled = group.create_task(life.channel.poll(life.gateway.ingest))
        phone.platform.say(phone.message(text="polled", id="m1"))
        assert await life.settled(1) == [("m1", "completed")]
        polled.cancel()
        assert await life.channel.push(phone.message(phone.voice("heard"), id="m2"), life.gateway.ingest) == [200]
        await life.settled(1)
        edited = replace(phone.message(text="edited", id="m3"), kind="edit")
        await life.gateway.ingest(edited, life.channel)
        await life.settled(1)

    assert [type(one) for one in phone.reader.read] == [Message] * 3
    assert phone.reader.texts == ["polled", "heard", "edited"]
