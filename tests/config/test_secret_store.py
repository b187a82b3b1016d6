"""auth.json keeps keys privately, and a key's place is known."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from fermix.config.lock import hold_settings
from fermix.config.secret_store import FileStore, ProviderKey, find_key, open_store
from fermix.config.secrets import Secret
from fermix.errors import ConfigError, NeedsOperator, Unavailable
from fermix.home import Home
from tests.requirements import covers

KEY = Secret("sk-canary-0123456789")
OTHER = Secret("sk-other-9876543210")


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "auth.json")


@covers("home.auth")
def test_key_is_kept_in_a_private_file(store: FileStore, tmp_path: Path) -> None:
    store.put("openai", KEY)

    assert stat.S_IMODE((tmp_path / "auth.json").stat().st_mode) == 0o600
    assert store.get("openai") == KEY
    assert json.loads((tmp_path / "auth.json").read_bytes()) == {
        "version": 1,
        "providers": {"openai": {"auth_mode": "api_key", "api_key": KEY.reveal()}},
    }


def test_one_key_changes_and_the_others_stay(store: FileStore, tmp_path: Path) -> None:
    login = {"auth_mode": "oauth", "tokens": {"access_token": "a-token"}}
    content = {"version": 1, "providers": {"anthropic": login}}
    (tmp_path / "auth.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "auth.json").chmod(0o600)

    store.put("openai", KEY)
    store.put("openai", OTHER)
    store.put("xai", KEY)
    store.remove("xai")
    store.remove("mistral")

    providers = json.loads((tmp_path / "auth.json").read_bytes())["providers"]
    assert providers == {"anthropic": login, "openai": {"auth_mode": "api_key", "api_key": OTHER.reveal()}}
    assert store.get("anthropic") is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601, 0o700])
def test_file_open_to_others_is_refused_with_the_command_that_mends_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "auth.json"
    FileStore(path).put("openai", KEY)
    path.chmod(mode)

    with pytest.raises(NeedsOperator) as caught:
        open_store(Home(tmp_path), "file", "general")

    assert caught.value.advice == f"run `chmod 600 {path}`"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_refused(store: FileStore, tmp_path: Path) -> None:
    store.put("openai", KEY)
    os.chown(tmp_path / "auth.json", 65534, -1)

    with pytest.raises(NeedsOperator, match="belongs to another user"):
        store.check()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{\n,", "is not valid JSON at line 2"),
        (b"\xff\xfe\x00", "is not valid JSON"),
        (b"[" * 200_000, "is not valid JSON"),
        (b"", "is not valid JSON at line 1"),
        (b"[]", "must hold one JSON object"),
        (b'{"version": 1}', "providers: must be an object"),
        (b'{"version": 1, "providers": {"openai": 3}}', "providers.openai: must be an object"),
        (
            b'{"version": 1, "providers": {"openai": {"auth_mode": "api_key", "api_key": 7}}}',
            "providers.openai.api_key: must be a string",
        ),
        (
            b'{"version": 1, "providers": {"openai": {"auth_mode": "api_key", "api_key": "\xc3\xa9"}}}',
            "providers.openai.api_key: a key must be printable ASCII",
        ),
    ],
)
def test_broken_file_is_one_clear_error(store: FileStore, tmp_path: Path, text: bytes, message: str) -> None:
    """SEC-10"""
    path = tmp_path / "auth.json"
    path.write_bytes(text)
    path.chmod(0o600)

    with pytest.raises(ConfigError) as caught:
        store.get("openai")

    assert str(caught.value).startswith(f"{path}: {message}")


def test_file_of_a_later_version_is_never_overwritten(store: FileStore, tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_bytes(b'{"version": 2}')
    path.chmod(0o600)

    with pytest.raises(NeedsOperator):
        store.put("openai", KEY)
    assert path.read_bytes() == b'{"version": 2}'


def test_full_disk_keeps_the_old_key(tiny_disk: Path) -> None:
    store = FileStore(tiny_disk / "auth.json")
    store.put("openai", KEY)
    with pytest.raises(OSError, match="No space"):
        (tiny_disk / "filler").write_bytes(b"x" * 65_536)

    with pytest.raises(NeedsOperator, match="No space left on device"):
        store.put("openai", OTHER)

    assert store.get("openai") == KEY


def test_pipe_in_place_of_the_file_does_not_hang(store: FileStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "auth.json", 0o600)

    with pytest.raises(ConfigError, match="not a regular file"):
        store.check()


def test_folder_in_place_of_the_file_is_said(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "auth.json").mkdir(0o700)

    with pytest.raises(ConfigError, match="not a regular file"):
        store.check()


def test_two_writers_lose_nothing(store: FileStore) -> None:
    ids = [f"p{number}" for number in range(8)]
    threads = [threading.Thread(target=store.put, args=(provider, KEY)) for provider in ids]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    assert [store.get(provider) for provider in ids] == [KEY] * 8


def test_second_writer_is_told_to_come_back(tmp_path: Path) -> None:
    with (
        hold_settings(tmp_path),
        pytest.raises(Unavailable, match="try again shortly"),
        hold_settings(tmp_path, wait_s=0),
    ):
        raise AssertionError("both hold it")


def test_key_is_looked_for_in_config_then_store_then_environment(store: FileStore) -> None:
    environment = {"OPENAI_API_KEY": OTHER}

    def found(configured: Secret | None) -> ProviderKey:
        return find_key(
            "openai", configured=configured, store=store, environment=environment, variable="OPENAI_API_KEY"
        )

    assert found(None) == ProviderKey(OTHER, "OPENAI_API_KEY")
    store.put("openai", KEY)
    assert found(None) == ProviderKey(KEY, "auth.json")
    assert found(OTHER) == ProviderKey(OTHER, "config")


def test_missing_key_is_said_to_be_missing(store: FileStore) -> None:
    found = find_key("ollama", configured=None, store=store, environment={}, variable=None)

    assert found == ProviderKey(None, "missing")
