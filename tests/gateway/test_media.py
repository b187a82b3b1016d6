"""Recordings, pictures and other files on their way in: a real gateway and ledger before a platform in miniature."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.errors import Refused, Unavailable, Unusable
from fermix.gateway.gateway import EMPTY
from fermix.gateway.media import FAILED, NO_BACKEND, MediaStep
from fermix.gateway.transcription import Audio, NoBackend, TranscriptionSettings
from fermix.message import Attachment, Message
from tests.fakes.channel import PIECE_BYTES, FakeAgent, FakeChannel, completed, message
from tests.fakes.transcriber import MOST_AUDIO_BYTES, FakeTranscriber, hearing
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
    async with install.start(phone.agent, phone.channel, hearing(listener)) as life:
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
@pytest.mark.parametrize("listener", [None, FakeTranscriber(NoBackend("no speech model is here"))])
async def test_without_a_backend_the_sender_is_pointed_at_setup(
    install: Install, phone: Phone, listener: FakeTranscriber | None
) -> None:
    async with install.start(phone.agent, phone.channel, MediaStep(listener, MOST_AUDIO_BYTES)) as life:
        await phone.send(life, phone.voice("hi"), text="a caption is no substitute")
        assert await life.settled(1) == [("m1", "failed")]

    assert phone.platform.texts() == [NO_BACKEND if listener is None else "no speech model is here: run `fermix setup`"]
    assert "run `fermix setup`" in NO_BACKEND
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


@covers("audio.fail.other", "audio.fail.no-turn")
@pytest.mark.parametrize(
    "problem",
    [Unavailable("the backend is away"), Refused("no"), Unusable("noise"), RuntimeError("bug"), TimeoutError()],
    ids=lambda problem: type(problem).__name__,
)
async def test_any_other_failure_of_a_transcription_asks_to_try_again(
    install: Install, phone: Phone, problem: Exception
) -> None:
    async with install.start(phone.agent, phone.channel, hearing(FakeTranscriber(problem))) as life:
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
