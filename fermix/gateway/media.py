"""Step 4 of the way in: the first recording of a message becomes text, its pictures are fetched, or it gets no turn.

The gateway calls `MediaStep.prepare` once for a message whose sender was let in. What a platform says of a file (its
size, its type, its name) proves nothing: bytes are counted while they come, and a picture is what its first bytes
say. References stay here: what goes on carries words and bytes only.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from fermix.errors import FermixError, LimitReached
from fermix.gateway.channel import Channel, Downloads
from fermix.gateway.leaks import is_cancelled
from fermix.gateway.transcription.transcriber import Audio, NoBackend, Transcriber
from fermix.message import Attachment, Media, Message

log = logging.getLogger(__name__)

MOST_PICTURE_BYTES = 20 << 20  # what Telegram hands out at most; no model takes a larger one
MOST_PICTURES_BYTES = 50 << 20  # of one message
PICTURES_AT_ONCE = 4
DOWNLOAD_S = 120.0
TRANSCRIPTION_S = 660.0  # each backend has a bound of its own; this one is for a backend that breaks it

NO_WORDS = " \t\r\n/"  # a command is typed: what is heard, forwarded perhaps, never begins with a slash
TRANSCRIPT = "[voice note transcript]"
FAILED = "I could not understand your voice note: the transcription failed, please try again."


class MediaFailed(FermixError):
    """A message is not answered because its media cannot be had. Without a `user_text` only the log is told."""


class MediaStep:
    """Fetches and transcribes. `max_audio_bytes` is the longest recording that is taken."""

    def __init__(self, transcriber: Transcriber, max_audio_bytes: int) -> None:
        self._transcriber = transcriber
        self._max_audio_bytes = max_audio_bytes

    def use(self, max_audio_bytes: int) -> None:
        """Take recordings up to this length from the next message on."""
        self._max_audio_bytes = max_audio_bytes

    async def prepare(self, message: Message, channel: Channel) -> Message:
        """Return the message with the words of its first recording and with all its pictures.

        Raises: MediaFailed.
        """
        downloads, bare = channel.abilities.downloads, replace(message, attachments=())
        if downloads is None:
            return bare
        recording = next((one for one in message.attachments if one.kind == "audio"), None)
        if recording is not None:
            bare = replace(bare, text=_joined(message.text, await self._words(recording, downloads)))
        shown = [one for one in message.attachments if one.kind == "image"]
        pictures = await _pictures(shown, downloads) if shown else ()
        return replace(bare, media=(*message.media, *pictures))

    async def _words(self, recording: Attachment, downloads: Downloads) -> str:
        audio = Audio(await self._recorded(recording, downloads), recording.mime, recording.name)
        async with _bounded("a voice note could not be transcribed", TRANSCRIPTION_S, FAILED):
            words = (await self._transcriber.transcribe(audio)).lstrip(NO_WORDS).rstrip()
        if not words:
            raise MediaFailed("no words were found in a voice note", user_text=FAILED)
        return words

    async def _recorded(self, recording: Attachment, downloads: Downloads) -> bytes:
        declared, most = recording.size_bytes, self._max_audio_bytes
        if declared is not None and declared > most:
            raise MediaFailed(f"a voice note has {declared} bytes", user_text=_too_long(most, declared))
        async with _bounded("a voice note could not be downloaded", DOWNLOAD_S, FAILED):
            try:
                return await _body(recording, downloads, Allowance(most))
            except LimitReached as error:
                raise MediaFailed(f"a voice note is too long: {error}", user_text=_too_long(most)) from error


@dataclass(slots=True)
class Allowance:
    """How many bytes may still come."""

    left_bytes: int

    def take(self, size_bytes: int) -> None:
        """Raises: LimitReached before more is taken than is left."""
        if size_bytes > self.left_bytes:
            raise LimitReached("more bytes came than are allowed", limit="bytes")
        self.left_bytes -= size_bytes


def picture_type(data: bytes) -> str | None:
    """Tell which picture these bytes are, None when no model can look at them."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


async def _pictures(attachments: Sequence[Attachment], downloads: Downloads) -> tuple[Media, ...]:
    """Fetch all of them, in their order, or none: a turn that lacks one would answer something else."""
    declared = [one.size_bytes or 0 for one in attachments]
    if max(declared) > MOST_PICTURE_BYTES or sum(declared) > MOST_PICTURES_BYTES:
        raise MediaFailed(f"the pictures are too large: {declared} bytes")
    total, places = Allowance(MOST_PICTURES_BYTES), asyncio.Semaphore(PICTURES_AT_ONCE)

    async def fetch(attachment: Attachment) -> Media:
        async with places:
            data = await _body(attachment, downloads, Allowance(MOST_PICTURE_BYTES), total)
        if (mime := picture_type(data)) is None:
            raise MediaFailed(f"{attachment.name!r} is no picture: {len(data)} bytes, called {attachment.mime!r}")
        return Media("image", mime, data, attachment.name)

    async with _bounded("a picture could not be downloaded", DOWNLOAD_S):
        try:
            async with asyncio.TaskGroup() as group:
                fetching = [group.create_task(fetch(one), name="intake picture") for one in attachments]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return tuple(one.result() for one in fetching)


async def _body(attachment: Attachment, downloads: Downloads, *allowances: Allowance) -> bytes:
    """Raises: LimitReached before the piece is kept that would cross an allowance; whatever the channel raises."""
    body = bytearray()
    async with downloads.download(attachment) as pieces:
        async for piece in pieces:
            for allowance in allowances:
                allowance.take(len(piece))
            body += piece
    return bytes(body)


@asynccontextmanager
async def _bounded(what: str, limit_s: float, sentence: str | None = None) -> AsyncGenerator[None]:
    """Let whatever goes wrong inside, and a wait without end, fail this message alone. Raises: MediaFailed."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except MediaFailed:
        raise
    except NoBackend as error:
        raise MediaFailed(str(error), user_text=error.user_text) from error
    except TimeoutError as error:
        raise MediaFailed(f"{what}: it took too long", user_text=sentence) from error
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise MediaFailed(f"{what}: it broke off by itself", user_text=sentence) from error
    except FermixError as error:
        raise MediaFailed(f"{what}: {error}", user_text=sentence) from error
    except Exception as error:
        log.exception("an adapter or a transcriber broke")
        raise MediaFailed(f"{what}: {type(error).__name__}", user_text=sentence) from error


def _joined(caption: str, words: str) -> str:
    return f"{caption}\n{TRANSCRIPT}\n{words}" if caption.strip() else words


def _too_long(most_bytes: int, size_bytes: int | None = None) -> str:
    size = "is too large" if size_bytes is None else f"has {math.ceil(size_bytes * 10 / (1 << 20)) / 10:g} MB"
    return f"Your voice note {size}; I take at most {most_bytes / (1 << 20):g} MB. Please send a shorter clip."
