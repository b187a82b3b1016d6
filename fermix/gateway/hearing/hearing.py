"""The transcriber of the daemon: hands each recording to the backend in use, and to no other."""

from __future__ import annotations

from fermix.errors import Unusable
from fermix.gateway.hearing.choice import Voice
from fermix.gateway.hearing.hosted import HostedTranscriber
from fermix.gateway.transcription import Audio, NoBackend, Transcriber
from fermix.net import Net


class Hearing:
    """Made once; `use` puts a new choice in place on a reload. A recording on its way keeps the one it began with."""

    def __init__(self, net: Net, local: Transcriber) -> None:
        self._net = net
        self._local = local
        self._voice = Voice("local")

    def use(self, voice: Voice) -> None:
        """Listen with this backend from now on."""
        self._voice = voice

    @property
    def voice(self) -> Voice:
        return self._voice

    async def transcribe(self, audio: Audio) -> str:
        """Raises: NoBackend; Unavailable, Refused or Unusable when this recording could not be understood."""
        voice = self._voice
        if voice.problem:
            raise NoBackend(voice.problem)
        if not audio.data:
            raise Unusable("the recording is empty")
        backend = self._local if voice.backend == "local" else HostedTranscriber(voice, self._net)
        return await backend.transcribe(audio)
