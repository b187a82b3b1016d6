"""The three services that listen over HTTP: what each is sent, and where its answer holds the words.

Called by `chosen.py`. One request a recording, never repeated: it costs money, and the sender can say it again. What
must stay true: a key stands in the header of its own service and nowhere else; what a service says goes to the log,
short and escaped, and never to the sender; the recording's own name is sent to nobody.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlencode

from fermix.agent.model import JsonValue
from fermix.agent.providers.fields import a_list, an_object, load_json
from fermix.errors import Unavailable
from fermix.gateway.transcription.choice import Voice
from fermix.gateway.transcription.transcriber import Audio, BackendName
from fermix.net import Net, Timeouts

log = logging.getLogger(__name__)

PATIENCE = Timeouts(connect_s=10.0, chunk_s=120.0, total_s=120.0)
MAX_ANSWER_BYTES = 1_048_576
SHOWN_CHARS = 200

_MIME = re.compile(r"audio/[a-z0-9.+-]{1,40}|video/(mp4|webm|ogg)")
_KIND = re.compile(r"flac|m4a|mp3|mp4|mpeg|mpga|oga|ogg|opus|wav|webm|aac|amr")
KINDS: Mapping[str, str] = {
    "audio/ogg": "ogg",
    "audio/opus": "ogg",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/x-m4a": "m4a",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/webm": "webm",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/aac": "aac",
    "audio/amr": "amr",
    "video/mp4": "mp4",
    "video/webm": "webm",
}
"""The endings by which these services tell formats apart."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request. The body is made whole: a recording has at most a few dozen megabytes."""

    url: str
    headers: Mapping[str, str]
    body: bytes


class Wire(Protocol):
    """How one service is spoken to."""

    def call(self, voice: Voice, audio: Audio) -> Call: ...

    def words(self, answer: JsonValue) -> str | None:
        """Return what was said; None when the answer has no such place."""
        ...


class OpenAiWire:
    """POST /audio/transcriptions with a form: the model, the form of the answer, the file."""

    def call(self, voice: Voice, audio: Audio) -> Call:
        fields = {"model": voice.model or "", "response_format": "json"}
        kind, body = _form(fields, audio)
        return Call(f"{voice.base_url.rstrip('/')}/audio/transcriptions", _bearer(voice, kind), body)

    def words(self, answer: JsonValue) -> str | None:
        return _text_of(answer)


class XaiWire:
    """POST /stt with a form that holds the file alone: there is no choice of models."""

    def call(self, voice: Voice, audio: Audio) -> Call:
        kind, body = _form({}, audio)
        return Call(f"{voice.base_url.rstrip('/')}/stt", _bearer(voice, kind), body)

    def words(self, answer: JsonValue) -> str | None:
        return _text_of(answer)


class DeepgramWire:
    """POST /listen with the bare recording; what is wanted stands in the address."""

    def call(self, voice: Voice, audio: Audio) -> Call:
        wanted = urlencode({"model": voice.model or "", "smart_format": "true", "detect_language": "true"})
        headers = {"Authorization": f"Token {_key(voice)}", "Content-Type": _content_type(audio)}
        return Call(f"{voice.base_url.rstrip('/')}/listen?{wanted}", headers, audio.data)

    def words(self, answer: JsonValue) -> str | None:
        channels = a_list(an_object(an_object(answer).get("results")).get("channels"))
        heard = a_list(an_object(channels[0]).get("alternatives")) if channels else []
        return _string(an_object(heard[0]).get("transcript")) if heard else None


WIRES: Mapping[BackendName, Wire] = {"openai": OpenAiWire(), "deepgram": DeepgramWire(), "xai": XaiWire()}


class HostedTranscriber:
    """Sends a recording to the one service of `voice`, which has a key."""

    def __init__(self, voice: Voice, net: Net) -> None:
        self._voice = voice
        self._wire = WIRES[voice.backend]
        self._net = net

    async def transcribe(self, audio: Audio) -> str:
        """Raises: Unavailable when no words came back; Refused when this process may not go there."""
        call, label = self._wire.call(self._voice, audio), self._voice.label
        async with self._net.post_stream(call.url, headers=call.headers, body=call.body, timeouts=PATIENCE) as response:
            answer = await response.read(MAX_ANSWER_BYTES)
        if not 200 <= response.status < 300:
            log.warning("%s did not transcribe (HTTP %d): %s", label, response.status, _shown(answer))
            raise Unavailable(f"{label} answered HTTP {response.status}")
        words = self._read(answer)
        if words is None:
            log.warning("%s sent no transcript: %s", label, _shown(answer))
            raise Unavailable(f"{label} sent an answer without a transcript")
        return words.strip()

    def _read(self, answer: bytes) -> str | None:
        try:
            return self._wire.words(load_json(answer.decode("utf-8")))
        except ValueError:
            return None


def _bearer(voice: Voice, content_type: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {_key(voice)}", "Content-Type": content_type}


def _key(voice: Voice) -> str:
    assert voice.key is not None, "a voice without a key is never called"
    return voice.key.reveal()


def _text_of(answer: JsonValue) -> str | None:
    return _string(an_object(answer).get("text"))


def _string(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _form(fields: Mapping[str, str], audio: Audio) -> tuple[str, bytes]:
    """Return the content type and the body of a form; the file stands last, as xAI wants it."""
    border = secrets.token_hex(16)
    parts = [_part(border, f'name="{name}"', b"", value.encode("utf-8")) for name, value in fields.items()]
    disposition = f'name="file"; filename="voice.{_ending(audio)}"'
    parts.append(_part(border, disposition, f"Content-Type: {_content_type(audio)}\r\n".encode("ascii"), audio.data))
    return f"multipart/form-data; boundary={border}", b"".join(parts) + f"--{border}--\r\n".encode("ascii")


def _part(border: str, disposition: str, headers: bytes, value: bytes) -> bytes:
    head = f"--{border}\r\nContent-Disposition: form-data; {disposition}\r\n".encode("ascii")
    return b"".join((head, headers, b"\r\n", value, b"\r\n"))


def _content_type(audio: Audio) -> str:
    bare = audio.mime.partition(";")[0].strip().lower()
    return bare if _MIME.fullmatch(bare) else "application/octet-stream"


def _ending(audio: Audio) -> str:
    """What the platform calls it, else the end of its name, else what almost every voice note is."""
    named = (audio.name or "").rpartition(".")[2].lower()
    return KINDS.get(_content_type(audio)) or (named if _KIND.fullmatch(named) else "ogg")


def _shown(answer: bytes) -> str:
    return ascii(answer[:SHOWN_CHARS].decode("utf-8", "replace"))
