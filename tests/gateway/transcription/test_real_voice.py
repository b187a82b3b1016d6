"""The real model, its real decoders and people who speak: what only they can show."""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
import struct
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.clock import SystemClock
from fermix.errors import Unavailable, Unusable
from fermix.events import Events
from fermix.gateway.media import MediaStep
from fermix.gateway.transcription import ChosenTranscriber, LocalListener, local
from fermix.gateway.transcription.choice import LISTENS_ITSELF
from fermix.gateway.transcription.listener import RATE_HZ
from fermix.gateway.transcription.transcriber import Audio
from fermix.message import Attachment
from fermix.native.child import Child
from fermix.net import Net
from fermix.supervisor import OUTSIDE, Supervisor
from fermix.workers import Workers
from tests.fakes.books import FakeBooks
from tests.fakes.channel import FakeAgent, FakeChannel, completed, message
from tests.fakes.voice import ROOT, spoken, voice_files, voice_note
from tests.gateway.conftest import Install

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(240)]

PROGRAM = (sys.executable, "-P", "-m", "fermix")
TRIED = "ever tried ever failed no matter try again fail again fail better"


@asynccontextmanager
async def listening() -> AsyncGenerator[LocalListener]:
    files, clock, workers = voice_files(), SystemClock(), Workers()
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    listener = LocalListener(lambda: files, PROGRAM, environ, workers, clock)
    try:
        async with asyncio.timeout(200), Supervisor([listener], OUTSIDE, Events(clock), clock):
            yield listener
    finally:
        workers.close()


def wave(samples: bytes, rate_hz: int = RATE_HZ) -> bytes:
    header = struct.pack("<IHHIIHH", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    return b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVEfmt " + header + b"data" + struct.pack(
        "<I", len(samples)
    ) + samples  # fmt: skip


def words(text: str) -> str:
    return " ".join(re.findall("[a-z]+", text.lower()))


async def test_voice_note_of_a_person_is_understood(tmp_path: Path) -> None:
    """Real parts, section 2: the words of a reader, as a messenger sends them."""
    async with listening() as listener:
        heard = await listener.transcribe(Audio(voice_note("beckett", tmp_path), "audio/ogg; codecs=opus"))

    assert words(heard) == TRIED


async def test_longer_one_is_understood_almost_everywhere(tmp_path: Path) -> None:
    async with listening() as listener:
        heard = words(await listener.transcribe(Audio(voice_note("two_cities", tmp_path), "audio/ogg")))

    assert heard.startswith("it was the best of times it was the worst of times")
    for said in ("season of light", "spring of hope", "winter of despair", "superlative degree of comparison only"):
        assert said in heard


async def test_note_reaches_the_agent_as_words_behind_its_caption(install: Install, tmp_path: Path) -> None:
    """The whole way: a platform's file, the gateway, the child that listens, the turn."""
    read: list[str] = []

    async def reader(turn: Turn, port: ReplyPort) -> TurnOutcome:
        read.append(turn.message.text)
        return completed("heard")

    install.platform.files["note"] = voice_note("beckett", tmp_path)
    channel = FakeChannel("chat", platform=install.platform, can=("downloads",))
    note = message(
        "listen to this", channel="chat", sender="1", attachments=(Attachment("audio", "note", "audio/ogg"),)
    )
    async with listening() as listener:
        media = MediaStep(ChosenTranscriber(Net(loopback_only=True), listener, LISTENS_ITSELF, FakeBooks()), 20 << 20)
        async with install.start(FakeAgent(reader), channel, media) as life:
            await life.gateway.ingest(note, channel)
            await life.settled(1)

    (text,) = read
    caption, delimiter, heard = text.split("\n")
    assert (caption, delimiter, words(heard)) == ("listen to this", "[voice note transcript]", TRIED)


async def test_type_that_a_platform_states_does_not_matter(tmp_path: Path) -> None:
    """The bytes say what they are."""
    recording = spoken("beckett", tmp_path).read_bytes()
    async with listening() as listener:
        assert words(await listener.transcribe(Audio(recording, "image/png", "picture.png"))) == TRIED


async def test_silence_and_noise_hold_no_words() -> None:
    """Without a look for speech the model hears words in silence."""
    tone = b"".join(struct.pack("<h", int(9_000 * math.sin(at / 6))) for at in range(3 * RATE_HZ))
    async with listening() as listener:
        assert await listener.transcribe(Audio(wave(bytes(10 * RATE_HZ)), "audio/wav")) == ""
        assert await listener.transcribe(Audio(wave(tone), "audio/wav")) == ""
        assert await listener.transcribe(Audio(wave(b""), "audio/wav")) == ""


async def test_minutes_are_heard_in_pieces_without_losing_words(tmp_path: Path) -> None:
    """A piece ends where it is quiet, so that no word is cut in two."""
    recording = spoken("beckett", tmp_path).read_bytes()
    rate_hz = struct.unpack_from("<I", recording, 24)[0]
    samples = recording[44:]
    times = 130 * rate_hz * 2 // len(samples) + 1
    async with listening() as listener:
        heard = words(await listener.transcribe(Audio(wave(samples * times, rate_hz), "audio/wav")))

    assert heard == " ".join([TRIED] * times)


@pytest.mark.parametrize(
    "data",
    [
        b"garbage" * 1_000,
        b"OggS" + bytes(5_000),
        b"RIFF\xff\xff\xff\xffWAVEfmt ",
        b"\x1aE\xdf\xa3" + os.urandom(50_000),
        b"ID3" + os.urandom(50_000),
        b"\x00\x00\x00\x20ftypM4A " + os.urandom(50_000),
    ],
    ids=["text", "ogg", "wav", "webm", "mp3", "mp4"],
)
async def test_garbage_is_unusable_or_silent_and_the_next_recording_works(data: bytes) -> None:
    async with listening() as listener:
        with suppress(Unusable, Unavailable):
            assert await listener.transcribe(Audio(data, "audio/ogg")) == ""
        assert await listener.transcribe(Audio(wave(bytes(RATE_HZ)), "audio/wav")) == ""


async def test_torn_note_is_heard_as_far_as_it_goes(tmp_path: Path) -> None:
    note = voice_note("beckett", tmp_path)
    async with listening() as listener:
        heard = words(await listener.transcribe(Audio(note[: len(note) // 2], "audio/ogg")))

    assert heard.startswith("ever tried")


async def test_recording_of_more_than_half_an_hour_is_refused() -> None:
    """A small file can hold days of sound: the length is bounded while it is decoded, not by the size."""
    async with listening() as listener:
        with pytest.raises(Unusable, match="longer than 30 minutes"):
            await listener.transcribe(Audio(wave(bytes(31 * 60 * 2 * 1_000), 1_000), "audio/wav"))


async def test_child_killed_while_it_listens_fails_that_note_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = Audio(voice_note("two_cities", tmp_path), "audio/ogg")
    asked, ask = asyncio.Event(), local._ask

    def ask_and_tell(child: Child, answers: AsyncIterator[str], data: bytes) -> Coroutine[None, None, str | None]:
        asked.set()
        return ask(child, answers, data)

    async with listening() as listener:
        await listener.transcribe(Audio(wave(bytes(RATE_HZ)), "audio/wav"))
        monkeypatch.setattr(local, "_ask", ask_and_tell)
        child = _child()
        os.kill(child, signal.SIGSTOP)  # so that it cannot be done before it is killed
        async with asyncio.TaskGroup() as group:
            failing = group.create_task(_failure(listener, note))
            await asked.wait()
            os.kill(child, signal.SIGKILL)
        assert isinstance(failing.result(), Unavailable)
        assert words(await listener.transcribe(note)).startswith("it was the best of times")


async def test_child_can_open_neither_file_nor_connection() -> None:
    """Even code that a hostile recording smuggled in would find no way out, and no parts report to their makers."""
    async with listening() as listener:
        await listener.transcribe(Audio(wave(bytes(RATE_HZ)), "audio/wav"))
        limits, links = _limits_and_links(_child())

    assert re.search(r"Max open files +0 +0 ", limits)
    assert re.search(r"Max file size +0 +0 ", limits)
    assert re.search(r"Max core file size +0 +0 ", limits)
    assert not re.search(r"Max address space +unlimited", limits)
    assert [link for link in links if link.startswith("socket:")] == []


async def _failure(listener: LocalListener, note: Audio) -> Exception:
    with pytest.raises(Unavailable) as caught:
        await listener.transcribe(note)
    return caught.value


def _child() -> int:
    """The one `_listen` process that this test's process has started."""
    for entry in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        for pid in entry.read_text(encoding="ascii").split():
            if b"_listen" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    raise AssertionError("no child listens")


def _limits_and_links(pid: int) -> tuple[str, list[str]]:
    process = Path(f"/proc/{pid}")
    return (process / "limits").read_text(encoding="ascii"), [
        str(link.readlink()) for link in (process / "fd").iterdir()
    ]
