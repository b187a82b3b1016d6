"""Setup of voice notes: after it, the transcriber of the daemon works with what was chosen."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fermix.config.load import load
from fermix.config.secret_store import FileStore
from fermix.config.secrets import Secret
from fermix.errors import ConfigError, NeedsOperator
from fermix.gateway.transcription import Voice, find_voice
from fermix.gateway.transcription.transcriber import BackendName
from fermix.home import Home
from fermix.setup.questions import WrongAnswer, read_answer
from fermix.setup.sections import SECTIONS
from fermix.setup.voice import VoiceSetup, ask_voice, ask_voice_key
from fermix.setup.wizard import Answers, Wizard

KEY = Secret("voice-canary-0123456789")
CHAT = Secret("chat-canary-0123456789")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def supported(home: Home) -> VoiceSetup:
    """As on a machine that has an engine, whatever this one has."""
    setup = VoiceSetup.of(home, {})
    return dataclasses.replace(setup, files=dataclasses.replace(setup.files, unsupported=""))


def in_use(home: Home) -> Voice:
    return find_voice(load(home, {}, SECTIONS), FileStore(home.auth))


def settings(home: Home) -> str:
    return home.config.read_text(encoding="utf-8") if home.config.exists() else ""


@pytest.mark.parametrize("backend", ["openai", "deepgram", "xai"])
def test_chosen_service_listens_and_its_key_is_in_no_settings(backend: BackendName, home: Home) -> None:
    supported(home).save(backend, KEY)

    assert settings(home) == f'[fermix_core.transcription]\nbackend = "{backend}"\n'
    voice = in_use(home)
    assert (voice.backend, voice.key, voice.problem) == (backend, KEY, "")


@pytest.mark.parametrize("backend", ["openai", "xai"])
def test_key_that_chats_is_enough(backend: BackendName, home: Home) -> None:
    FileStore(home.auth).put(backend, CHAT)
    supported(home).save(backend, None)

    assert in_use(home).key == CHAT


@pytest.mark.parametrize(
    ("backend", "key", "problem"),
    [
        ("deepgram", None, "Deepgram needs a key"),
        ("local", KEY, "takes no key"),
        ("siri", None, "choose one of local, openai, deepgram, xai"),
    ],
)
def test_what_cannot_listen_is_not_saved(backend: str, key: Secret | None, problem: str, home: Home) -> None:
    with pytest.raises(WrongAnswer, match=problem):
        supported(home).check(backend, key)
    assert (settings(home), home.auth.exists()) == ("", False)


def test_machine_without_an_engine_says_so_before_anything_is_saved(home: Home) -> None:
    setup = VoiceSetup.of(home, {})
    setup = dataclasses.replace(setup, files=dataclasses.replace(setup.files, unsupported="no engine here"))
    with pytest.raises(NeedsOperator, match=r"no engine here.*OpenAI, Deepgram or xAI"):
        setup.check("local", None)
    assert settings(home) == ""


def test_new_key_comes_before_one_in_the_settings(home: Home) -> None:
    home.config.write_text('[fermix_core.transcription]\nxai_api_key = "old-key-12345678"\n', encoding="utf-8")
    supported(home).save("xai", KEY)

    assert "old-key" not in settings(home)
    assert in_use(home).key == KEY


def test_save_that_fails_keeps_no_key(home: Home) -> None:
    home.config.write_text("[fermix_core]\nprofile = 5\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        supported(home).save("deepgram", KEY)
    assert not home.auth.exists() or FileStore(home.auth).get("transcription.deepgram") is None


def test_question_says_who_listens_now(home: Home) -> None:
    setup = supported(home)
    assert ask_voice(setup).options[0].note == "nobody yet"
    FileStore(home.auth).put("openai", CHAT)
    assert ask_voice(setup).options[0].note == "OpenAI listens"
    assert read_answer(ask_voice(setup), "") == "keep"
    assert [option.value for option in ask_voice(setup).options] == ["keep", "local", "openai", "deepgram", "xai"]
    assert "English only" in ask_voice(setup).options[1].note


def test_key_may_be_left_out_where_one_is_here(home: Home) -> None:
    FileStore(home.auth).put("openai", CHAT)
    assert ask_voice_key(supported(home), "openai").optional
    assert not ask_voice_key(supported(home), "deepgram").optional
    assert ask_voice_key(supported(home), "deepgram").secret


def test_key_moves_with_the_others_to_another_store(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keyring as the new place; nothing of it stays in auth.json."""
    supported(home).save("deepgram", KEY)
    kept: dict[str, Secret] = {}

    class Ring:
        name = "keyring"

        def get(self, provider: str) -> Secret | None:
            return kept.get(provider)

        def put(self, provider: str, secret: Secret) -> None:
            kept[provider] = secret

        def remove(self, provider: str) -> None:
            kept.pop(provider, None)

    from fermix.setup import wizard as wizard_module

    opened = wizard_module.open_store
    monkeypatch.setattr(
        wizard_module,
        "open_store",
        lambda home, kind, profile: Ring() if kind == "keyring" else opened(home, kind, profile),
    )
    Wizard(home, {}).save(Answers("openai", key=CHAT, secret_store="keyring"))

    assert kept == {"openai": CHAT, "transcription.deepgram": KEY}
    assert FileStore(home.auth).get("transcription.deepgram") is None
