"""Where provider keys are kept: auth.json or the system keyring, as the owner chose; and where a key was found.

Setup writes, the daemon reads at start. Blocking: call before the loop runs or through `Workers`. The keyring's
library is imported only when the keyring is the chosen store.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeGuard, cast

from fermix.config.lock import hold_settings
from fermix.config.secrets import Secret
from fermix.errors import ConfigError, NeedsOperator
from fermix.home import PRIVATE_FILE, Home, write_atomic

StoreKind: TypeAlias = Literal["file", "keyring"]
Entry: TypeAlias = dict[str, object]

VERSION = 1
MAX_FILE_BYTES = 1_048_576


class SecretStore(Protocol):
    """Keys by provider id."""

    @property
    def name(self) -> str:
        """What `fermix status` shows as the place of a key."""
        ...

    def get(self, provider: str) -> Secret | None:
        """Return the key; None when there is none. Raises: ConfigError, NeedsOperator."""
        ...

    def put(self, provider: str, secret: Secret) -> None:
        """Keep a key, replacing the old one. Raises: ConfigError, NeedsOperator, Unavailable."""
        ...

    def remove(self, provider: str) -> None:
        """Forget a key; nothing happens when there is none. Raises: as `put`."""
        ...


def open_store(home: Home, kind: StoreKind, profile: str) -> SecretStore:
    """Return the chosen store; a keyring is asked only when a key is wanted.

    Raises: ConfigError, NeedsOperator when auth.json is open to others or cannot be read.
    """
    if kind == "file":
        store = FileStore(home.auth)
        store.check()
        return store
    from fermix.config.keyring_store import KeyringStore

    return KeyringStore(profile, account=str(home.root))


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A key and its place: "config", the store's name, a variable, or "missing".

    `problem` is a sentence when a place could not be asked; the daemon starts without it and status shows it.
    """

    secret: Secret | None
    origin: str
    problem: str = ""


def find_key(
    provider: str,
    *,
    configured: Secret | None,
    store: SecretStore,
    environment: Mapping[str, Secret],
    variable: str | None,
) -> ProviderKey:
    """Look for a provider's key: config.toml first, then the store, then the environment."""
    if configured is not None:
        return ProviderKey(configured, "config")
    problem = ""
    try:
        kept = store.get(provider)
    except NeedsOperator as error:
        kept, problem = None, str(error)
    if kept is not None:
        return ProviderKey(kept, store.name)
    if variable is not None and variable in environment:
        return ProviderKey(environment[variable], variable, problem)
    return ProviderKey(None, "missing", problem)


class FileStore:
    """auth.json, 0600: {"version": 1, "providers": {"openai": {"auth_mode": "api_key", "api_key": "sk-…"}}}.

    Entries of other kinds, such as logins, are carried over untouched.
    """

    name = "auth.json"

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """Raises: NeedsOperator, ConfigError when the file must not or cannot be used."""
        self._read()

    def get(self, provider: str) -> Secret | None:
        entry = self._read().get(provider)
        if entry is None or entry.get("auth_mode") != "api_key":
            return None
        key = entry.get("api_key")
        if not isinstance(key, str):
            raise self._wrong(f"providers.{provider}.api_key", "must be a string")
        try:
            return Secret(key)
        except ValueError as error:
            raise self._wrong(f"providers.{provider}.api_key", str(error)) from error

    def put(self, provider: str, secret: Secret) -> None:
        with hold_settings(self._path.parent):
            entries = self._read()
            entries[provider] = {"auth_mode": "api_key", "api_key": secret.reveal()}
            self._write(entries)

    def remove(self, provider: str) -> None:
        with hold_settings(self._path.parent):
            entries = self._read()
            if entries.pop(provider, None) is not None:
                self._write(entries)

    def _write(self, entries: Mapping[str, Entry]) -> None:
        text = json.dumps({"version": VERSION, "providers": entries}, indent=2) + "\n"
        try:
            write_atomic(self._path, text.encode("utf-8"))
        except OSError as error:
            raise NeedsOperator(
                f"cannot write {self._path}: {error.strerror}", advice="free space or make the folder writable"
            ) from error

    def _read(self) -> dict[str, Entry]:
        text = self._read_text()
        if text is None:
            return {}
        document = self._parse(text)
        if document.get("version") != VERSION:
            raise NeedsOperator(f"{self._path} is of another version", advice="use the Fermix that wrote it")
        providers = document.get("providers")
        if not _is_entry(providers):
            raise self._wrong("providers", "must be an object")
        return {name: self._entry(name, entry) for name, entry in providers.items()}

    def _entry(self, name: str, entry: object) -> Entry:
        if not _is_entry(entry):
            raise self._wrong(f"providers.{name}", "must be an object")
        return entry

    def _read_text(self) -> bytes | None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._wrong("", f"cannot be read: {error.strerror}") from error
        try:
            self._check_mode(os.fstat(descriptor))  # first: a folder cannot be made a file object
        except BaseException:
            os.close(descriptor)
            raise
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MAX_FILE_BYTES)

    def _check_mode(self, state: os.stat_result) -> None:
        """Refuse what others could read or write; checked on the open file, so that nobody swaps it in between."""
        mode = stat.S_IMODE(state.st_mode)
        if not stat.S_ISREG(state.st_mode):
            raise self._wrong("", "is not a regular file")
        if state.st_uid != os.geteuid():
            raise NeedsOperator(f"{self._path} belongs to another user", advice="make it yours with chown")
        if mode & ~PRIVATE_FILE:
            raise NeedsOperator(
                f"{self._path} is open to others (mode {mode:04o})", advice=f"run `chmod 600 {self._path}`"
            )

    def _parse(self, text: bytes) -> Entry:
        try:
            document: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            place = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise self._wrong("", f"is not valid JSON{place}") from None  # the error's own text holds the file
        if not _is_entry(document):
            raise self._wrong("", "must hold one JSON object")
        return document

    def _wrong(self, key: str, message: str) -> ConfigError:
        return ConfigError(message, path=str(self._path), key=key)


def _is_entry(value: object) -> TypeGuard[Entry]:
    return isinstance(value, dict) and all(isinstance(key, str) for key in cast("dict[object, object]", value))
