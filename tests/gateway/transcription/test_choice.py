"""Which backend listens, with whose key; and that nothing ever stands in for the one that was stated."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.config.load import build
from fermix.config.secret_store import FileStore
from fermix.config.secrets import Secret
from fermix.errors import Unavailable
from fermix.gateway.transcription import ChosenTranscriber, Voice, find_voice
from fermix.gateway.transcription.transcriber import Audio, NoBackend
from fermix.home import Home
from fermix.net import Net
from fermix.setup.sections import SECRET_NAMES, SECTIONS
from tests.fakes.books import FakeBooks
from tests.fakes.speech import KEY, speech_services

OWN, CHAT, STORED = "own-key-12345678", "chat-key-12345678", "stored-key-12345678"


class Deaf:
    """A local transcriber that was never meant to be asked."""

    async def transcribe(self, audio: Audio) -> str:
        raise AssertionError("the local one was asked")


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "auth.json")


def choose(text: str, store: FileStore, environ: dict[str, str] | None = None) -> Voice:
    home = Home.locate({"FERMIX_HOME": "/nowhere"})
    return find_voice(build(text, home, environ or {}, SECTIONS, SECRET_NAMES), store)


def test_without_any_key_the_local_one_listens(store: FileStore) -> None:
    """Issue 3, item 4."""
    assert choose("", store).backend == "local"


@pytest.mark.parametrize(
    ("text", "stored", "environ"),
    [
        (f'[fermix_core.providers.openai]\napi_key = "{CHAT}"', None, {}),
        ("", CHAT, {}),
        ("", None, {"OPENAI_API_KEY": CHAT}),
    ],
)
def test_key_that_chats_with_openai_listens_too(
    text: str, stored: str | None, environ: dict[str, str], store: FileStore
) -> None:
    """Reference 3, section 2.3: wherever that key is kept."""
    if stored:
        store.put("openai", Secret(stored))
    voice = choose(text, store, environ)
    assert (voice.backend, voice.key, voice.problem) == ("openai", Secret(CHAT), "")
    assert (voice.base_url, voice.model) == ("https://api.openai.com/v1", "gpt-4o-mini-transcribe")


@pytest.mark.parametrize("backend", ["openai", "xai"])
def test_own_key_comes_before_the_chat_key(backend: str, store: FileStore) -> None:
    store.put(backend, Secret(CHAT))
    section = f'[fermix_core.transcription]\nbackend = "{backend}"\n'
    assert choose(section, store).key == Secret(CHAT)
    store.put(f"transcription.{backend}", Secret(STORED))
    assert choose(section, store).key == Secret(STORED)
    assert choose(f'{section}{backend}_api_key = "{OWN}"', store).key == Secret(OWN)


def test_key_of_its_own_is_enough_for_openai_to_listen(store: FileStore) -> None:
    assert choose(f'[fermix_core.transcription]\nopenai_api_key = "{OWN}"', store).backend == "openai"


@pytest.mark.parametrize("backend", ["openai", "deepgram", "xai"])
def test_stated_backend_without_its_key_says_so(backend: str, store: FileStore) -> None:
    """It stays the stated one: neither the local one nor another company hears what was not meant for it."""
    for other in {"openai", "deepgram", "xai"} - {backend}:
        store.put(f"transcription.{other}", Secret(STORED))
    voice = choose(f'[fermix_core.transcription]\nbackend = "{backend}"', store)
    assert voice.backend == backend
    assert voice.key is None
    assert "is missing" in voice.problem


def test_stated_local_stays_local_beside_every_key(store: FileStore) -> None:
    store.put("openai", Secret(CHAT))
    assert choose('[fermix_core.transcription]\nbackend = "local"', store) == Voice("local")


def test_deepgram_takes_its_key_from_the_environment(store: FileStore) -> None:
    voice = choose('[fermix_core.transcription]\nbackend = "deepgram"', store, {"DEEPGRAM_API_KEY": OWN})
    assert (voice.key, voice.model, voice.problem) == (Secret(OWN), "nova-3", "")


def test_stated_model_is_asked_for_and_xai_has_none(store: FileStore) -> None:
    text = f'[fermix_core.transcription]\nmodel = "m"\nbackend = "%s"\nopenai_api_key = "{OWN}"\nxai_api_key = "{OWN}"'
    assert choose(text % "openai", store).model == "m"
    assert choose(text % "xai", store).model is None


def test_address_of_the_openai_section_counts_for_listening(store: FileStore) -> None:
    """The owner's own gateway: a key that is meant for it goes nowhere else."""
    text = f'[fermix_core.providers.openai]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "{CHAT}"'
    assert choose(text, store).base_url == "http://127.0.0.1:9/v1"


async def test_missing_key_gives_the_setup_reply_and_nothing_stands_in() -> None:
    async with Net.open(loopback_only=True) as net:
        chosen = ChosenTranscriber(net, Deaf(), Voice("xai", "xAI", problem="the key is missing"), FakeBooks())
        with pytest.raises(NoBackend, match="run `fermix setup`"):
            await chosen.transcribe(Audio(b"OggS", "audio/ogg"))


async def test_failing_service_is_not_replaced_by_the_local_one() -> None:
    async with speech_services() as services, Net.open(loopback_only=True) as net:
        books = FakeBooks()
        wrong = Voice("openai", "OpenAI", f"{services.base_url}/openai/v1", "whisper-1", Secret("wrong-key-123"))
        chosen = ChosenTranscriber(net, Deaf(), wrong, books)
        with pytest.raises(Unavailable):
            await chosen.transcribe(Audio(b"OggS", "audio/ogg"))
        assert books.noted == []


async def test_new_choice_counts_from_the_next_recording_on() -> None:
    async with speech_services(says="yes") as services, Net.open(loopback_only=True) as net:
        books = FakeBooks()
        chosen = ChosenTranscriber(net, Deaf(), Voice("xai", "xAI", problem="no key"), books)
        chosen.use(Voice("openai", "OpenAI", f"{services.base_url}/openai/v1", "whisper-1", Secret(KEY)))
        assert await chosen.transcribe(Audio(b"OggS", "audio/ogg")) == "yes"
        assert books.noted == [("openai", "whisper-1", "voice", "")]
