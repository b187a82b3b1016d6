"""The section of speech to text: strict like every other, and no key of it is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.config.load import build
from fermix.errors import ConfigError
from fermix.gateway.transcription.transcriber import SECTION, NoBackend, TranscriptionSettings
from fermix.home import Home
from tests.requirements import covers


def read(text: str, folder: Path) -> TranscriptionSettings:
    home = Home.locate({"FERMIX_HOME": str(folder)})
    config = build(text, home, {}, {SECTION: TranscriptionSettings})
    return config[TranscriptionSettings]


@covers("audio.cap.default")
def test_cap_is_twenty_megabytes_unless_stated(tmp_path: Path) -> None:
    assert read("", tmp_path).max_file_bytes == 20 * 1_048_576
    assert read("[fermix_core.transcription]\nmax_file_mb = 3", tmp_path).max_file_bytes == 3 * 1_048_576


@pytest.mark.parametrize("cap", ["0", "-1", "true", '"20"', "2.5", "1001"])
def test_cap_that_is_no_positive_number_fails_the_load(cap: str, tmp_path: Path) -> None:
    """Reference 3, section 2.3."""
    with pytest.raises(ConfigError, match=r"fermix_core\.transcription\.max_file_mb") as caught:
        read(f"[fermix_core.transcription]\nmax_file_mb = {cap}", tmp_path)
    assert caught.value.key == "fermix_core.transcription.max_file_mb"


def test_unknown_backend_fails_the_load_and_names_the_known_ones(tmp_path: Path) -> None:
    """Reference 3, section 2.3."""
    with pytest.raises(ConfigError) as caught:
        read('[fermix_core.transcription]\nbackend = "whisperx"', tmp_path)
    for known in ("openai", "deepgram", "xai", "local"):
        assert known in str(caught.value)
    assert caught.value.key == "fermix_core.transcription.backend"


@pytest.mark.parametrize("name", ["openai_api_key", "deepgram_api_key", "xai_api_key"])
def test_key_shows_in_no_text_of_the_settings(name: str, tmp_path: Path) -> None:
    settings = read(f'[fermix_core.transcription]\n{name} = "a-key-nobody-sees"', tmp_path)
    assert "nobody" not in repr(settings) + str(settings) + settings.model_dump_json(fallback=str)


def test_reply_to_the_sender_says_what_to_run() -> None:
    assert NoBackend("I hear nothing").user_text == "I hear nothing: run `fermix setup`"
