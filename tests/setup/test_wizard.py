"""Answers become settings and keys, whole or not at all."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fermix.config import secret_store
from fermix.config.keyring_store import KeyringStore
from fermix.config.secret_store import FileStore
from fermix.config.secrets import Secret
from fermix.errors import NeedsOperator
from fermix.home import Home
from fermix.setup.questions import find_spec
from fermix.setup.wizard import Answers, Removed, Saved, Wizard

KEY = Secret("sk-canary-0123456789")
OTHER = Secret("sk-other-9876543210")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def settings(home: Home) -> str:
    return home.config.read_text(encoding="utf-8") if home.config.exists() else ""


def test_key_goes_to_the_store_and_never_into_the_settings(home: Home) -> None:
    saved = Wizard(home, {}).save(Answers("openai", key=KEY))

    assert saved == Saved("openai", "gpt-5.5", "auth.json", ())
    assert settings(home) == '[fermix_core.providers.openai]\nprimary = true\ndefault_model = "gpt-5.5"\n'
    assert FileStore(home.auth).get("openai") == KEY
    assert Wizard(home, {}).readiness().model == "openai/gpt-5.5"


def test_key_that_only_the_environment_holds_is_written_nowhere(home: Home) -> None:
    saved = Wizard(home, {"OPENAI_API_KEY": KEY.reveal()}).save(Answers("openai", model="gpt-5.4"))

    assert saved.key_from == "OPENAI_API_KEY"
    assert saved.notes == (
        "the key stays in OPENAI_API_KEY and is written nowhere; a daemon started without it has none",
    )
    assert not home.auth.exists()
    assert KEY.reveal() not in settings(home)


def test_address_of_the_environment_is_written_nowhere(home: Home) -> None:
    wizard = Wizard(home, {"OLLAMA_BASE_URL": "http://10.0.0.5:11434/v1"})

    assert wizard.base_url(find_spec("ollama"), None) == "http://10.0.0.5:11434/v1"
    wizard.save(Answers("ollama", model="qwen3:32b"))

    assert "base_url" not in settings(home)


def test_new_primary_takes_the_place_of_the_old_one(home: Home) -> None:
    Wizard(home, {}).save(Answers("openai", key=KEY))
    Wizard(home, {}).save(Answers("anthropic", key=OTHER))

    assert settings(home) == (
        '[fermix_core.providers.openai]\ndefault_model = "gpt-5.5"\n\n'
        '[fermix_core.providers.anthropic]\nprimary = true\ndefault_model = "claude-sonnet-4-6"\n'
    )
    assert Wizard(home, {}).provider == "anthropic"
    assert FileStore(home.auth).get("openai") == KEY


def test_keyless_server_is_configured_by_its_address(home: Home) -> None:
    saved = Wizard(home, {}).save(Answers("ollama", model="qwen3:32b"))

    assert saved.key_from == "none needed"
    assert 'base_url = "http://localhost:11434/v1"' in settings(home)
    assert Wizard(home, {}).readiness().model == "ollama/qwen3:32b"


def test_key_in_the_settings_moves_to_the_store(home: Home) -> None:
    home.config.write_text(f'[fermix_core.providers.openai]\napi_key = "{OTHER.reveal()}"\n', encoding="utf-8")

    Wizard(home, {}).save(Answers("openai", key=KEY))

    assert "api_key" not in settings(home)
    assert Wizard(home, {}).key_for(find_spec("openai"), None) == KEY


def test_usual_address_of_a_provider_is_not_repeated_in_the_settings(home: Home) -> None:
    wizard = Wizard(home, {})
    wizard.save(Answers("openai", base_url="https://proxy.example/v1", key=KEY))
    assert 'base_url = "https://proxy.example/v1"' in settings(home)

    wizard.save(Answers("openai", base_url="https://api.openai.com/v1"))
    assert "base_url" not in settings(home)


def test_local_model_is_switched_on_and_takes_the_place_of_a_provider(home: Home) -> None:
    home.config.write_text("[fermix_core.local_model]\nenabled = false\n", encoding="utf-8")
    (size,) = Wizard(home, {}).save(Answers("local")).notes
    assert settings(home) == "[fermix_core.local_model]\nenabled = true\nprimary = true\n"
    assert size.startswith("the first message fetches its ")

    Wizard(home, {}).save(Answers("openai", key=KEY))
    assert Wizard(home, {}).readiness().model == "openai/gpt-5.5"
    assert settings(home).startswith("[fermix_core.local_model]\nenabled = true\n\n")
    saved = Wizard(home, {}).save(Answers("local"))

    rival = (
        "OpenAI stays configured and stands in when the local model fails; `fermix setup --remove openai` takes it out"
    )
    assert saved.notes == (rival, size)
    assert Wizard(home, {}).provider == "local"
    assert [failure.detail_key for failure in Wizard(home, {}).readiness().failures] == ["local_model_absent"]
    assert settings(home).count("primary") == 1


def test_local_model_that_cannot_run_here_is_not_chosen(home: Home) -> None:
    wizard = Wizard(home, {})
    wizard.files = dataclasses.replace(wizard.files, unsupported="the local model does not run on vax")

    with pytest.raises(NeedsOperator, match="does not run on vax"):
        wizard.save(Answers("local"))
    assert settings(home) == ""


def test_removal_takes_out_the_section_and_the_key_and_nothing_else(home: Home) -> None:
    mine = "# mine\n[fermix_web]\nport = 4040  # likewise\n"
    home.config.write_text(mine, encoding="utf-8")
    Wizard(home, {}).save(Answers("anthropic", key=OTHER))
    Wizard(home, {}).save(Answers("openai", key=KEY))

    assert Wizard(home, {}).remove("openai") == Removed("openai", "anthropic/claude-sonnet-4-6", ())
    assert "openai" not in settings(home)
    assert FileStore(home.auth).get("openai") is None

    last = Wizard(home, {}).remove("anthropic")
    assert (last.model, last.notes[0].startswith("the local model answers once")) == (None, True)
    assert settings(home).rstrip() == mine.rstrip()
    with pytest.raises(NeedsOperator, match="nothing is saved for Anthropic"):
        Wizard(home, {}).remove("anthropic")


def test_removal_names_a_key_that_stays_in_the_environment(home: Home) -> None:
    environ = {"OPENAI_API_KEY": OTHER.reveal()}
    Wizard(home, environ).save(Answers("openai", key=KEY))

    assert Wizard(home, environ).remove("openai").notes == ("OpenAI stays usable with the key in OPENAI_API_KEY",)
    with pytest.raises(NeedsOperator, match="unset OPENAI_API_KEY"):
        Wizard(home, environ).remove("openai")


def test_removal_that_cannot_be_saved_keeps_the_key(home: Home) -> None:
    wizard = Wizard(home, {})
    wizard.save(Answers("openai", key=KEY))
    home.config.write_text(settings(home) + "# by another hand\n", encoding="utf-8")

    with pytest.raises(NeedsOperator, match="changed by someone else"):
        wizard.remove("openai")
    assert FileStore(home.auth).get("openai") == KEY


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        (Answers("openai"), "OpenAI needs a key"),
        (Answers("ollama", key=KEY), "Ollama takes no key"),
        (Answers("openai_compatible", model="m"), "needs an address"),
        (Answers("openai_compatible", base_url="http://127.0.0.1:1/v1"), "needs the name of a model"),
        (Answers("opnai"), "unknown provider 'opnai'"),
    ],
)
def test_missing_answer_is_named_and_nothing_is_saved(home: Home, answers: Answers, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Wizard(home, {}).save(answers)
    assert (settings(home), home.auth.exists()) == ("", False)


def test_settings_that_cannot_be_saved_take_the_key_back(home: Home) -> None:
    wizard = Wizard(home, {})
    wizard.save(Answers("openai", key=KEY))
    home.config.write_text(settings(home) + "# by another hand\n", encoding="utf-8")

    for provider in ("openai", "xai"):
        with pytest.raises(NeedsOperator, match="changed by someone else"):
            wizard.save(Answers(provider, key=OTHER))

    store = FileStore(home.auth)
    assert (store.get("openai"), store.get("xai")) == (KEY, None)


def test_secret_that_no_store_takes_refuses_the_whole_save(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Success must not be said of a key that was lost."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")

    with pytest.raises(NeedsOperator, match="keyring"):
        Wizard(home, {}).save(Answers("openai", key=KEY, secret_store="keyring"))
    assert (settings(home), home.auth.exists()) == ("", False)


def test_change_of_store_moves_every_key(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    entries: dict[tuple[str, str], str] = {}

    class Backend:
        def get_password(self, service: str, username: str) -> str | None:
            return entries.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            entries[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del entries[service, username]

    monkeypatch.setattr("fermix.config.keyring_store.find_backend", Backend)
    Wizard(home, {}).save(Answers("openai", key=KEY))

    saved = Wizard(home, {}).save(Answers("anthropic", key=OTHER, secret_store="keyring"))

    assert saved.key_from == "keyring"
    assert sorted(entries.values()) == sorted([KEY.reveal(), OTHER.reveal()])
    assert json.loads(home.auth.read_bytes())["providers"] == {}
    assert isinstance(secret_store.open_store(home, "keyring", "general"), KeyringStore)
    Wizard(home, {}).save(Answers("openai", secret_store="file"))
    assert (entries, FileStore(home.auth).get("anthropic")) == ({}, OTHER)
