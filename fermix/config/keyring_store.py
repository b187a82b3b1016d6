"""Provider keys in the system keyring: Secret Service on Linux, Keychain on macOS.

Opened by `secret_store.open_store` when the owner chose it. Nothing is asked before the first key is wanted, so that
the daemon starts without its keyring and says what is missing. A backend that writes plain text is refused by name,
and no call waits longer than a bound: a locked keyring may ask a person who is not there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from fermix.config.secrets import Secret
from fermix.errors import ConfigError, NeedsOperator

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

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

    def __init__(
        self, profile: str, account: str, *, find: Callable[[], Backend] | None = None, wait_s: float = WAIT_S
    ) -> None:
        self._profile = profile
        self._account = account
        self._find = find or find_backend
        self._wait_s = wait_s
        self._silent = False

    def get(self, provider: str) -> Secret | None:
        entry = self._entry(provider)
        value = self._ask(lambda backend: backend.get_password(entry, self._account))
        if value is None:
            return None
        try:
            return Secret(value)
        except ValueError as error:
            raise ConfigError(str(error), path="keyring", key=entry) from error

    def put(self, provider: str, secret: Secret) -> None:
        entry = self._entry(provider)
        self._ask(lambda backend: backend.set_password(entry, self._account, secret.reveal()))

    def remove(self, provider: str) -> None:
        if self.get(provider) is not None:
            entry = self._entry(provider)
            self._ask(lambda backend: backend.delete_password(entry, self._account))

    def _entry(self, provider: str) -> str:
        return f"fermix:{self._profile}:{provider.upper()}_API_KEY"

    def _ask(self, call: Callable[[Backend], T]) -> T:
        """Ask the keyring in a thread of its own, because a thread can be left behind and a call cannot."""
        results: list[T] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                results.append(call(self._find()))
            except Exception as error:  # noqa: BLE001 - backends are plug-ins with errors of their own
                errors.append(error)

        thread = threading.Thread(target=run, name="keyring", daemon=True)
        if not self._silent:  # having waited once is enough; a start asks for every provider's key
            thread.start()
            thread.join(self._wait_s)
        if results:
            return results[0]
        if errors and isinstance(errors[0], NeedsOperator):
            raise errors[0]
        if errors:
            kind = type(errors[0]).__name__
            raise NeedsOperator(f"the system keyring failed ({kind})", advice=ADVICE) from errors[0]
        self._silent = True
        raise NeedsOperator(f"the system keyring does not answer within {self._wait_s:g} s", advice=ADVICE)


def find_backend() -> Backend:
    """Return this machine's keyring. Raises: NeedsOperator when there is none that keeps secrets."""
    try:
        import keyring
    except ImportError as error:
        raise NeedsOperator(
            "this install cannot use the system keyring",
            advice='install it with `pip install "fermix[keyring]"`, or set secret_store = "file" in [fermix_core]',
        ) from error
    return safe_backend(keyring.get_keyring())  # pyright: ignore[reportReturnType] - its decorator hides its types


def safe_backend(chosen: KeyringBackend) -> KeyringBackend:
    """Return the first backend that encrypts. Raises: NeedsOperator naming what was found instead."""
    from keyring.backends.chainer import ChainerBackend

    found = list(chosen.backends) if isinstance(chosen, ChainerBackend) else [chosen]
    safe = [backend for backend in found if not type(backend).__module__.startswith(REFUSED_MODULES)]
    if not safe:
        names = ", ".join(type(backend).__module__ for backend in found) or "none"
        raise NeedsOperator(f"no keyring of this machine keeps secrets (found: {names})", advice=ADVICE)
    return safe[0]
