"""The system keyring is used only when it keeps secrets, and never holds up the start."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("keyring", reason="needs the extra `keyring`")

from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.backends.chainer import ChainerBackend
from keyring.errors import KeyringLocked

from fermix.config.keyring_store import KeyringStore, safe_backend
from fermix.config.secret_store import find_key, open_store
from fermix.config.secrets import Secret
from fermix.errors import ConfigError, NeedsOperator
from fermix.home import Home

KEY = Secret("sk-canary-0123456789")


class MemoryBackend(KeyringBackend):
    """A keyring that forgets; unlike a real one it has no file."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


class LockedBackend(MemoryBackend):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("canary detail")


class PlainTextBackend(MemoryBackend):
    pass


PlainTextBackend.__module__ = "keyrings.alt.file"


def test_entries_are_named_by_profile_and_provider() -> None:
    backend = MemoryBackend()
    KeyringStore("work", "/home/ada/.fermix", find=lambda: backend).put("openai", KEY)

    assert backend.entries == {("fermix:work:OPENAI_API_KEY", "/home/ada/.fermix"): KEY.reveal()}


def test_two_installs_do_not_share_an_entry() -> None:
    """SEC-07"""
    backend = MemoryBackend()
    first = KeyringStore("general", "/home/ada/.fermix", find=lambda: backend)
    second = KeyringStore("general", "/srv/fermix", find=lambda: backend)

    first.put("openai", KEY)

    assert first.get("openai") == KEY
    assert second.get("openai") is None
    second.remove("openai")
    first.remove("openai")
    assert backend.entries == {}


def test_locked_keyring_leaves_a_named_problem_and_the_environment_still_counts() -> None:
    """SEC-09: the daemon starts without it and says which place could not be asked."""
    store = KeyringStore("general", "/h", find=LockedBackend)

    missing = find_key("openai", configured=None, store=store, environment={}, variable="OPENAI_API_KEY")
    found = find_key(
        "openai", configured=None, store=store, environment={"OPENAI_API_KEY": KEY}, variable="OPENAI_API_KEY"
    )

    assert (missing.secret, missing.origin) == (None, "missing")
    assert missing.problem.startswith("the system keyring failed (KeyringLocked): unlock")
    assert (found.secret, found.origin) == (KEY, "OPENAI_API_KEY")


def test_keyring_that_asks_a_person_who_is_not_there_is_given_up() -> None:
    never, asked = threading.Event(), 0

    class Asking(MemoryBackend):
        def get_password(self, service: str, username: str) -> str | None:
            nonlocal asked
            asked += 1
            never.wait(5)
            return None

    store = KeyringStore("general", "/h", find=Asking, wait_s=0.01)
    for provider in ("openai", "anthropic"):
        with pytest.raises(NeedsOperator, match="does not answer"):
            store.get(provider)

    assert asked == 1
    never.set()


def test_entry_that_is_no_key_is_named() -> None:
    """SEC-10"""
    backend = MemoryBackend()
    backend.entries["fermix:general:OPENAI_API_KEY", "/h"] = "ключ"

    with pytest.raises(ConfigError, match="keyring: fermix:general:OPENAI_API_KEY: a key must be printable ASCII"):
        KeyringStore("general", "/h", find=lambda: backend).get("openai")


@pytest.mark.parametrize("backend", [fail.Keyring(), null.Keyring(), PlainTextBackend()])
def test_backend_that_keeps_no_secret_is_refused_by_name(backend: KeyringBackend) -> None:
    with pytest.raises(NeedsOperator) as caught:
        safe_backend(backend)

    assert type(backend).__module__ in str(caught.value)
    assert 'secret_store = "file"' in caught.value.advice


def test_first_backend_of_a_chain_that_keeps_secrets_is_taken() -> None:
    good = MemoryBackend()

    class Chain(ChainerBackend):
        backends = (PlainTextBackend(), good, MemoryBackend())

    assert safe_backend(Chain()) is good


def test_machine_without_a_keyring_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")

    store = open_store(Home(tmp_path), "keyring", "general")

    with pytest.raises(NeedsOperator, match="no keyring of this machine keeps secrets"):
        store.put("openai", KEY)
    found = find_key("openai", configured=None, store=store, environment={}, variable=None)
    assert found.problem.startswith("no keyring of this machine keeps secrets (found: keyring.backends.fail)")
