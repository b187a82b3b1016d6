"""Speech to text without a model: a recording says what its bytes say."""

from __future__ import annotations

import asyncio

from fermix.gateway.media import MediaStep
from fermix.gateway.transcription.transcriber import Audio

MOST_AUDIO_BYTES = 10_000


class FakeTranscriber:
    """Reads the bytes as text, or fails once for each of `problems`; `gate` holds it until it is set."""

    def __init__(self, *problems: Exception, gate: asyncio.Event | None = None) -> None:
        self.heard: list[Audio] = []
        self.entered = asyncio.Event()
        self._problems = list(problems)
        self._gate = gate

    async def transcribe(self, audio: Audio) -> str:
        self.heard.append(audio)
        self.entered.set()
        if self._gate is not None:
            await self._gate.wait()
        if self._problems:
            raise self._problems.pop(0)
        return audio.data.decode().strip()


def media_step(transcriber: FakeTranscriber | None = None) -> MediaStep:
    """Make the media step of a gateway that can listen."""
    return MediaStep(transcriber or FakeTranscriber(), MOST_AUDIO_BYTES)
