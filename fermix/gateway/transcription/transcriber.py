"""What the gateway asks of speech to text: sound in, words out, and the section `[fermix_core.transcription]`.

The media step calls a `Transcriber`; this folder holds those that exist. A recording goes to the one backend that was
chosen and never to another: a local one does not send it away, and no missing key makes it go somewhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field

from fermix.config.model import Line, Settings
from fermix.config.secrets import Secret
from fermix.errors import NeedsOperator

BackendName = Literal["openai", "deepgram", "xai", "local"]

SECTION = "fermix_core.transcription"
NOT_YET = "I cannot listen to voice notes yet"


class TranscriptionSettings(Settings):
    """`[fermix_core.transcription]`: who turns voice notes into text."""

    backend: BackendName | None = None
    """None: OpenAI where a key for it is there, else the local one."""
    model: Line | None = None
    """None: the backend's usual one. xAI and the local one have no choice of models."""
    max_file_mb: Annotated[int, Field(gt=0, le=1_000)] = 20
    """Longer recordings are refused, in units of 1,048,576 bytes."""
    openai_api_key: Secret | None = None
    """Used instead of the key that chats with OpenAI."""
    deepgram_api_key: Secret | None = None
    xai_api_key: Secret | None = None
    """Used instead of the key that chats with xAI."""

    @property
    def max_file_bytes(self) -> int:
        return self.max_file_mb << 20


@dataclass(frozen=True, slots=True)
class Audio:
    """A whole recording. `mime` and `name` are what the platform says of it, so they prove nothing."""

    data: bytes
    mime: str
    name: str | None = None


class NoBackend(NeedsOperator):
    """Nothing can listen here before the owner has set it up; `user_text` is the reply to the sender."""

    def __init__(self, problem: str, *, advice: str = "run `fermix setup`") -> None:
        super().__init__(problem, advice=advice)


class Transcriber(Protocol):
    """Turns speech into text."""

    async def transcribe(self, audio: Audio) -> str:
        """Return the words without surrounding blanks, "" when nothing is said.

        Raises: NoBackend; Unavailable, Refused or Unusable when this recording could not be understood.
        """
        ...
