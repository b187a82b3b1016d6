"""The transcriber of the daemon: hands each recording to the backend in use, and to no other."""

from __future__ import annotations

from fermix.agent.budget import Books
from fermix.errors import Unusable
from fermix.gateway.transcription.choice import Voice
from fermix.gateway.transcription.hosted import HostedTranscriber
from fermix.gateway.transcription.local import LocalListener
from fermix.gateway.transcription.transcriber import Audio, NoBackend
from fermix.net import Net


class ChosenTranscriber:
    """Made once. `local` is the service that listens here; `use` puts a new choice in place on a reload, and a
    recording on its way keeps the one it began with.
    """

    def __init__(self, net: Net, local: LocalListener, voice: Voice, books: Books) -> None:
        self.local = local
        self._net = net
        self._voice = voice
        self._books = books

    def use(self, voice: Voice) -> None:
        """Listen with this backend from now on."""
        self._voice = voice

    async def transcribe(self, audio: Audio) -> str:
        """Raises: NoBackend; Unavailable, Refused or Unusable when this recording could not be understood."""
        voice = self._voice
        if voice.problem:
            raise NoBackend(voice.problem)
        if not audio.data:
            raise Unusable("the recording is empty")
        if voice.backend == "local":
            return await self.local.transcribe(audio)
        said = await HostedTranscriber(voice, self._net).transcribe(audio)
        self._books.note(voice.backend, voice.model or "speech", "voice")
        return said
