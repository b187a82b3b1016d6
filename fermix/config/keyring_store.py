"""Provider keys in the system keyring: Secret Service on Linux, Keychain on macOS.

Opened by `secret_store.open_store` when the owner chose it. A backend that writes plain text is refused by name,
and no call waits longer than a bound: a locked keyring may ask a person who is not there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from fermix.config.secrets import Secret
from fermix.errors import ConfigError, NeedsOperator

try:
    import keyring
    from keyring.backend import KeyringBackend
    from keyring.backends.chainer import ChainerBackend
except ImportError as error:
    raise NeedsOperator(
        "this install cannot use the system keyring",
        advice='install it with `pip install "fermix[keyring]"`, or set secret_store = "file" in [fermix_core]',
    ) from error

T = TypeVar("T")

WAIT_S = 20.0  # long enough to type a password into the keyring's own window
REFUSED_MODULES = ("keyrings.alt", "keyring.backends.fail", "keyring.backends.null")
ADVICE = 'unlock or start the system keyring, or set secret_store = "file" in [fermix_core]'


class Backend(Protocol):
    """What we use of a keyring backend; its own annotations are partial."""

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...

    def delete_password(self, service: str, username: str) -> None: ...


class KeyringStore:
    """Entries are named `fermix:<profile>:<PROVIDER>_API_KEY`; the account is the home, so that two installs differ."""

    name = "keyring"

    def __init__(self, backend: Backend, profile: str, account: str, *, wait_s: float = WAIT_S) -> None:
        self._backend = backend
        self._profile = profile
        self._account = account
        self._wait_s = wait_s

    @classmethod
    def open(cls, profile: str, account: str) -> KeyringStore:
        """Choose the first backend of this machine that keeps secrets. Raises: NeedsOperator when there is none."""
        backend = safe_backend(_bounded(keyring.get_keyring, WAIT_S))
        return cls(backend, profile, account)  # pyright: ignore[reportArgumentType] - its decorator hides its types

    def get(self, provider: str) -> Secret | None:
        entry = self._entry(provider)
        value = _bounded(lambda: self._backend.get_password(entry, self._account), self._wait_s)
        if value is None:
            return None
        try:
            return Secret(value)
        except ValueError as error:
            raise ConfigError(str(error), path="keyring", key=entry) from error

    def put(self, provider: str, secret: Secret) -> None:
        entry = self._entry(provider)
        _bounded(lambda: self._backend.set_password(entry, self._account, secret.reveal()), self._wait_s)

    def remove(self, provider: str) -> None:
        if self.get(provider) is not None:
            entry = self._entry(provider)
            _bounded(lambda: self._backend.delete_password(entry, self._account), self._wait_s)

    def _entry(self, provider: str) -> str:
        return f"fermix:{self._profile}:{provider.upper()}_API_KEY"


def safe_backend(chosen: KeyringBackend) -> KeyringBackend:
    """Return the first backend that encrypts. Raises: NeedsOperator naming what was found instead."""
    found = list(chosen.backends) if isinstance(chosen, ChainerBackend) else [chosen]
    safe = [backend for backend in found if not type(backend).__module__.startswith(REFUSED_MODULES)]
    if not safe:
        names = ", ".join(type(backend).__module__ for backend in found) or "none"
        raise NeedsOperator(f"no keyring of this machine keeps secrets (found: {names})", advice=ADVICE)
    return safe[0]


def _bounded(call: Callable[[], T], wait_s: float) -> T:
    """Run a keyring call in a thread of its own and wait for it at most `wait_s`."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - backends are plug-ins with errors of their own; all mean "no keyring"
            errors.append(error)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(wait_s)
    if results:
        return results[0]
    if errors:
        raise NeedsOperator(f"the system keyring failed ({type(errors[0]).__name__})", advice=ADVICE) from errors[0]
    raise NeedsOperator(f"the system keyring does not answer within {wait_s:g} s", advice=ADVICE)
