"""Who makes pictures, from real configuration and keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.agent.tools.image import find_backend
from fermix.agent.tools.image.choice import GOOGLE_KEY
from fermix.agent.tools.keys import find_tool_keys
from fermix.config.secret_store import FileStore
from fermix.config.secrets import Secret
from fermix.errors import ConfigError
from fermix.home import Home
from fermix.setup.sections import load_config

SECTION = "[fermix_core.tools.generate_image]\n"


def chosen(tmp_path: Path, text: str = "", *, stored: str | None = None, **environ: str) -> tuple[str, ...] | None:
    home = Home(tmp_path)
    home.config.write_text(text, encoding="utf-8")
    store = FileStore(home.auth)
    if stored is not None:
        store.put(stored, Secret("stored-key-0123456789"))
    config = load_config(home, environ)
    found = find_backend(config, find_tool_keys(config, store))
    return None if found is None else (found.name, found.model, found.base_url, found.key.reveal())


OPENAI = ("openai", "gpt-image-1", "https://api.openai.com/v1")
XAI = ("xai", "grok-imagine-image", "https://api.x.ai/v1")
GOOGLE = ("google", "gemini-2.5-flash-image", "https://generativelanguage.googleapis.com/v1beta")


def test_without_a_key_nobody_makes_pictures(tmp_path: Path) -> None:
    assert chosen(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("", {"OPENAI_API_KEY": "sk-1"}, (*OPENAI, "sk-1")),
        ("", {"XAI_API_KEY": "xai-1", "GEMINI_API_KEY": "AIza1"}, (*XAI, "xai-1")),
        ("", {"GEMINI_API_KEY": "AIza1"}, (*GOOGLE, "AIza1")),
        (f'{SECTION}backend = "google"\n', {"OPENAI_API_KEY": "sk-1", "GEMINI_API_KEY": "AIza1"}, (*GOOGLE, "AIza1")),
        (f'{SECTION}google_api_key = "AIza2"\n', {"GEMINI_API_KEY": "AIza1"}, (*GOOGLE, "AIza2")),
        ('[fermix_core.providers.xai]\napi_key = "xai-2"\n', {}, (*XAI, "xai-2")),
        (
            f'{SECTION}model = "gpt-image-9"\n[fermix_core.providers.openai]\nbase_url = "http://127.0.0.1:4000/v1/"\n',
            {"OPENAI_API_KEY": "sk-1"},
            ("openai", "gpt-image-9", "http://127.0.0.1:4000/v1", "sk-1"),
        ),
    ],
)
def test_the_first_with_a_key_or_the_stated_one_makes_them(
    tmp_path: Path, text: str, environ: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert chosen(tmp_path, text, **environ) == expected


def test_keys_of_setup_count(tmp_path: Path) -> None:
    assert chosen(tmp_path, stored="xai") == (*XAI, "stored-key-0123456789")
    (tmp_path / "auth.json").unlink()
    assert chosen(tmp_path, stored=GOOGLE_KEY) == (*GOOGLE, "stored-key-0123456789")


def test_a_stated_backend_without_its_key_is_replaced_by_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert chosen(tmp_path, f'{SECTION}backend = "xai"\n', OPENAI_API_KEY="sk-1") is None
    assert "backend = 'xai' has no key" in caplog.text


def test_an_unknown_key_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="generate_image"):
        chosen(tmp_path, f'{SECTION}openai_api_key = "x"\n')
