"""What each hosted speech service is sent, and what becomes of its answers."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

import pytest
from aiohttp import web

from fermix.config.secrets import Secret, redact
from fermix.errors import Refused, Unavailable
from fermix.gateway.transcription.choice import Voice, find_service
from fermix.gateway.transcription.hosted import MAX_ANSWER_BYTES, HostedTranscriber
from fermix.gateway.transcription.transcriber import Audio, BackendName
from fermix.net import Net
from tests.fakes.speech import KEY, SpeechServices, speech_services

NOTE = Audio(b"OggS\x00\r\n--not a border--\r\n\xff" * 100, "audio/ogg; codecs=opus", "voice of Ada.oga")
BACKENDS: tuple[BackendName, ...] = ("openai", "deepgram", "xai")

every_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture
async def net() -> AsyncGenerator[Net]:
    async with Net.open(loopback_only=True) as net:
        yield net


def voice(backend: BackendName, services: SpeechServices, key: str = KEY) -> Voice:
    service = find_service(backend)
    return Voice(backend, service.label, f"{services.base_url}/{backend}/v1", service.model, Secret(key))


@every_backend
async def test_recording_arrives_whole_and_its_words_come_back(backend: BackendName, net: Net) -> None:
    """Each fake refuses what its service refuses: the wrong scheme, field, model, ending or order."""
    async with speech_services(says=" ever tried \n") as services:
        words = await HostedTranscriber(voice(backend, services), net).transcribe(NOTE)

    assert words == "ever tried"
    assert services.refused == []
    (heard,) = services.heard
    assert heard.audio == NOTE.data
    assert heard.content_type == "audio/ogg"


async def test_openai_is_asked_for_its_model_as_json(net: Net) -> None:
    async with speech_services() as services:
        await HostedTranscriber(voice("openai", services), net).transcribe(NOTE)

    assert services.heard[0].fields == {"model": "gpt-4o-mini-transcribe", "response_format": "json"}


async def test_xai_gets_the_file_and_no_model(net: Net) -> None:
    async with speech_services() as services:
        await HostedTranscriber(voice("xai", services), net).transcribe(NOTE)

    assert services.heard[0].fields == {}


async def test_deepgram_is_asked_in_the_address(net: Net) -> None:
    async with speech_services() as services:
        await HostedTranscriber(voice("deepgram", services), net).transcribe(NOTE)

    assert services.heard[0].fields == {"model": "nova-3", "smart_format": "true", "detect_language": "true"}


@pytest.mark.parametrize(
    ("mime", "name", "sent"),
    [
        ("audio/ogg; codecs=opus", None, "voice.ogg"),
        ("audio/mpeg", "song.wav", "voice.mp3"),
        ("audio/mp4", None, "voice.m4a"),
        ("application/octet-stream", "note.WEBM", "voice.webm"),
        ("application/octet-stream", 'x.ogg"\r\nX-Evil: 1', "voice.ogg"),
        ("audio/ogg\r\nX-Evil: 1", None, "voice.ogg"),
        ("", "notes.exe", "voice.ogg"),
    ],
)
async def test_name_and_type_of_the_platform_only_choose_an_ending(
    mime: str, name: str | None, sent: str, net: Net
) -> None:
    """They come from a stranger: nothing of them is sent as it is."""
    async with speech_services() as services:
        await HostedTranscriber(voice("openai", services), net).transcribe(Audio(b"OggS", mime, name))

    assert services.heard[0].filename == sent
    assert services.heard[0].content_type in {"audio/ogg", "audio/mpeg", "audio/mp4", "application/octet-stream"}


@every_backend
async def test_silence_is_an_empty_text(backend: BackendName, net: Net) -> None:
    async with speech_services(says="") as services:
        assert await HostedTranscriber(voice(backend, services), net).transcribe(NOTE) == ""


@every_backend
async def test_refused_key_is_in_no_log_and_no_error(
    backend: BackendName, net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    """The service says which key it got; the log has the status and what it said, the sender none of it."""
    wrong = "sk-wrong-key-9876543210"
    with caplog.at_level(logging.DEBUG):
        async with speech_services() as services:
            with pytest.raises(Unavailable, match="answered HTTP 401") as caught:
                await HostedTranscriber(voice(backend, services, wrong), net).transcribe(NOTE)

    assert caught.value.user_text is None
    assert wrong not in str(caught.value)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fermix.gateway.transcription.hosted"]
    assert "HTTP 401" in line
    assert "Incorrect API key" in line
    assert wrong not in redact(line)


@every_backend
@pytest.mark.parametrize(
    "answer",
    [
        {"text": b"not json at all"},
        {"text": b'{"text": 5, "results": {"channels": []}}'},
        {"text": b'{"results": {"channels": [{"alternatives": [{"transcript": null}]}]}}'},
        {"text": b'{"text": "' + b"x" * MAX_ANSWER_BYTES + b'"}'},
        {"text": b"\xff\xfe"},
        {"text": b"[" * 100_000},
        {"text": b"{}", "status": 500},
        {"text": b"", "status": 204},
        {"text": b"", "status": 302},
    ],
    ids=["text", "number", "null", "endless", "bytes", "nested", "500", "204", "redirect"],
)
async def test_useless_answer_is_unavailable(backend: BackendName, answer: dict[str, bytes | int], net: Net) -> None:
    """At most a mebibyte is read, and no redirect is followed."""
    status, body = answer.get("status", 200), answer["text"]
    assert isinstance(status, int)
    async with speech_services(
        answer=web.Response(body=body, status=status, headers={"Location": "http://127.0.0.1:1/"})
    ) as services:
        with pytest.raises(Unavailable) as caught:
            await HostedTranscriber(voice(backend, services), net).transcribe(NOTE)

    assert caught.value.user_text is None


async def test_line_breaks_of_an_answer_stay_one_line_of_the_log(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    """A service cannot write lines into our log."""
    async with speech_services(answer=web.Response(body=b"a\r\nERROR forged\x1b[0m", status=500)) as services:
        with pytest.raises(Unavailable):
            await HostedTranscriber(voice("openai", services), net).transcribe(NOTE)

    (line,) = [record.getMessage() for record in caplog.records if "did not transcribe" in record.getMessage()]
    assert line.isprintable()


async def test_absent_service_is_unavailable(net: Net) -> None:
    nobody = Voice("openai", "OpenAI", "http://127.0.0.1:1/v1", "whisper-1", Secret(KEY))
    with pytest.raises(Unavailable):
        await HostedTranscriber(nobody, net).transcribe(NOTE)


@every_backend
async def test_tests_cannot_reach_the_real_services(backend: BackendName, net: Net) -> None:
    service = find_service(backend)
    real = Voice(backend, service.label, service.base_url, service.model, Secret(KEY))
    with pytest.raises(Refused, match="loopback"):
        await HostedTranscriber(real, net).transcribe(NOTE)
