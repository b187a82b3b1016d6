"""From answers to config.toml and the secret store. No screen: the verb and the terminal UI ask, this saves.

What must stay true: a save is whole or not at all; a key goes to the secret store and never into config.toml; a key
that only the environment holds is written nowhere.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fermix.agent.providers.catalog import LOCAL_ID, PROVIDERS, ProviderSpec
from fermix.agent.providers.chain import NO_KEY_NEEDED, find_candidates
from fermix.agent.providers.local_files import LocalFiles
from fermix.agent.providers.settings import KeyedSettings, ProviderSettings
from fermix.config.edit import ConfigEditor, Key, Value
from fermix.config.secret_store import ProviderKey, SecretStore, StoreKind, find_key, open_store
from fermix.config.secrets import Secret
from fermix.errors import NeedsOperator
from fermix.gateway.transcription.choice import SERVICES, stored_as
from fermix.home import Home
from fermix.setup.questions import Kept, WrongAnswer, find_spec
from fermix.setup.readiness import Readiness, check_readiness
from fermix.setup.sections import SECTIONS, load_config

LOCAL_SECTION = ("fermix_core", "local_model")


@dataclass(frozen=True, slots=True)
class Answers:
    """What the owner chose; None leaves things as they are. `provider` may be "local"."""

    provider: str
    base_url: str | None = None
    key: Secret | None = None
    model: str | None = None
    secret_store: StoreKind | None = None

    @property
    def is_local(self) -> bool:
        return self.provider == LOCAL_ID


@dataclass(frozen=True, slots=True)
class Saved:
    """What a save did. `model` is None for the local one, `key_from` is where the key will be found, and `notes` are
    sentences worth showing.
    """

    provider: str
    model: str | None
    key_from: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal did. `model` is the route that answers now; None when nobody can, and a note says why."""

    provider: str
    model: str | None
    notes: tuple[str, ...]


class Wizard:
    """One run of setup over one home."""

    def __init__(self, home: Home, environ: Mapping[str, str]) -> None:
        """Read what is configured. Raises: ConfigError, NeedsOperator."""
        self._home = home
        self._environ = environ
        self._editor = ConfigEditor(home, SECTIONS)
        self._read()
        self.files = LocalFiles.of(home.models)

    @property
    def provider(self) -> str | None:
        """The primary provider as saved, "local" for the local model; None when there is none."""
        if self._saved.core.local_model.primary:
            return LOCAL_ID
        primaries = self._primaries()
        return primaries[0].id if primaries else None

    def kept(self, spec: ProviderSpec) -> Kept:
        """Return what is configured for a provider now."""
        settings = self._saved_settings(spec)
        found = self._find(spec)
        return Kept(settings.base_url, settings.default_model, None if found.secret is None else found.origin)

    def readiness(self) -> Readiness:
        """Judge what is saved and in the environment."""
        return check_readiness(self._config, self._store, self.files)

    def key_for(self, spec: ProviderSpec, given: Secret | None) -> Secret | None:
        """Return the key that would be used after saving `given`."""
        return given or self._find(spec).secret

    def base_url(self, spec: ProviderSpec, given: str | None) -> str:
        """Return the address that would be used after saving `given`; "" when nobody named one."""
        merged = self._config.section(spec.section, spec.settings).base_url
        return given or self._saved_settings(spec).base_url or merged or spec.base_url or ""

    def check(self, answers: Answers) -> None:
        """Look whether a provider could be asked with these answers. Raises: WrongAnswer, NeedsOperator."""
        if answers.is_local:
            self._check_local()
            return
        spec = find_spec(answers.provider)
        if spec.needs_key and self.key_for(spec, answers.key) is None:
            raise WrongAnswer("key", f"{spec.label} needs a key")
        if answers.key is not None and not issubclass(spec.settings, KeyedSettings):
            raise WrongAnswer("key", f"{spec.label} takes no key")
        if not self.base_url(spec, answers.base_url):
            raise WrongAnswer("base_url", f"{spec.label} needs an address")

    def save(self, answers: Answers) -> Saved:
        """Write the answers. Raises: WrongAnswer, ConfigError, NeedsOperator, Unavailable."""
        self.check(answers)
        spec = None if answers.is_local else find_spec(answers.provider)
        if spec is not None and not self._model(spec, answers):
            raise WrongAnswer("model", f"{spec.label} needs the name of a model")
        core = self._config.core.settings
        kind = answers.secret_store or core.secret_store
        store = self._store if kind == core.secret_store else open_store(self._home, kind, core.profile)
        keys: dict[str, Secret | None] = {} if store is self._store else {**self._kept_keys()}
        moved = tuple(keys)
        if spec is not None and answers.key is not None:
            keys[spec.id] = answers.key
        with all_or_nothing(store, keys):
            self._editor.apply(self._changes(spec, answers, kind))
        for provider in moved:
            self._store.remove(provider)
        self._read()
        model = None if spec is None else self._model(spec, answers)
        return Saved(answers.provider, model, self._key_from(spec), tuple(self._notes(spec)))

    def remove(self, provider: str) -> Removed:
        """Take out a provider's section and its key.

        Raises: WrongAnswer when it is unknown, ConfigError, NeedsOperator when nothing is saved of it, Unavailable.
        """
        spec = find_spec(provider)
        kept = self._store.get(spec.id)
        if kept is None and spec.section not in self._saved.stated:
            where = self._find(spec).origin
            advice = f"unset {where}" if where == spec.key_variable else "see `fermix setup --print-state`"
            raise NeedsOperator(f"nothing is saved for {spec.label}", advice=advice)
        with all_or_nothing(self._store, {spec.id: None}):
            self._editor.apply({tuple(spec.section.split(".")): None})
        self._read()
        readiness = self.readiness()
        left = [failure.action for failure in readiness.failures]
        if self._find(spec).secret is not None:
            left.append(f"{spec.label} stays usable with the key in {self._find(spec).origin}")
        return Removed(spec.id, readiness.model, tuple(left))

    def _check_local(self) -> None:
        if self.files.unsupported:
            raise NeedsOperator(self.files.unsupported, advice="choose a provider or a server of your own")

    def _read(self) -> None:
        self._config = load_config(self._home, self._environ)
        self._saved = load_config(self._home, {})
        core = self._config.core.settings
        self._store = open_store(self._home, core.secret_store, core.profile)

    def _find(self, spec: ProviderSpec) -> ProviderKey:
        return find_key(
            spec.id,
            configured=self._configured_key(spec),
            store=self._store,
            environment=self._config.secrets,
            variable=spec.key_variable,
        )

    def _configured_key(self, spec: ProviderSpec) -> Secret | None:
        settings = self._saved_settings(spec)
        return settings.api_key if isinstance(settings, KeyedSettings) else None

    def _kept_keys(self) -> dict[str, Secret]:
        names = (*(spec.id for spec in PROVIDERS), *(stored_as(service.backend) for service in SERVICES))
        found = {name: self._store.get(name) for name in names}
        return {provider: key for provider, key in found.items() if key is not None}

    def _changes(self, spec: ProviderSpec | None, answers: Answers, kind: StoreKind) -> dict[Key, Value | None]:
        changes: dict[Key, Value | None] = {_key(rival, "primary"): None for rival in self._primaries()}
        changes[*LOCAL_SECTION, "primary"] = True if spec is None else None
        if kind != self._config.core.settings.secret_store:
            changes["fermix_core", "secret_store"] = kind
        if spec is None:
            if not self._config.core.local_model.enabled:
                changes[*LOCAL_SECTION, "enabled"] = True
            return changes
        changes[_key(spec, "primary")] = True
        changes[_key(spec, "base_url")] = self._written_base_url(spec, answers.base_url)
        changes[_key(spec, "default_model")] = self._model(spec, answers)
        if answers.key is not None and self._configured_key(spec) is not None:
            changes[_key(spec, "api_key")] = None
        return changes

    def _written_base_url(self, spec: ProviderSpec, given: str | None) -> str | None:
        """A keyless server counts as configured by its address, so there even the usual one is written."""
        stated = given or self._saved_settings(spec).base_url
        if spec.needs_key:
            return None if stated == spec.base_url else stated
        only_in_environment = self._config.section(spec.section, spec.settings).base_url is not None
        return stated or (None if only_in_environment else spec.base_url)

    def _saved_settings(self, spec: ProviderSpec) -> ProviderSettings:
        """What the file alone says: the environment of this terminal is not that of a service."""
        return self._saved.section(spec.section, spec.settings)

    def _model(self, spec: ProviderSpec, answers: Answers) -> str | None:
        return answers.model or self.kept(spec).model or spec.default_model

    def _primaries(self) -> list[ProviderSpec]:
        return [spec for spec in PROVIDERS if self._saved_settings(spec).primary]

    def _key_from(self, spec: ProviderSpec | None) -> str:
        if spec is None or (not spec.needs_key and self._find(spec).secret is None):
            return NO_KEY_NEEDED
        return self._find(spec).origin

    def _notes(self, spec: ProviderSpec | None) -> Iterator[str]:
        if spec is None:
            for candidate in find_candidates(self._config, self._store):
                if not candidate.problem:
                    yield (
                        f"{candidate.spec.label} stays configured and stands in when the local model fails; "
                        f"`fermix setup --remove {candidate.spec.id}` takes it out"
                    )
            if size_bytes := sum(artifact.size_bytes for artifact in self.files.missing()):
                megabytes = f"{size_bytes / 1e6:.0f} MB"
                yield f"the first message fetches its {megabytes}, or `fermix model fetch` now"
            return
        found = self._find(spec)
        if found.origin == spec.key_variable:
            yield f"the key stays in {found.origin} and is written nowhere; a daemon started without it has none"
        if found.problem:
            yield found.problem


def _key(spec: ProviderSpec, name: str) -> Key:
    return (*spec.section.split("."), name)


@contextmanager
def all_or_nothing(store: SecretStore, keys: Mapping[str, Secret | None]) -> Generator[None]:
    """Keep the keys, or forget those that are None, while the rest is saved; undo it when that cannot be."""
    before = {provider: store.get(provider) for provider in keys}
    saved = False
    try:
        _put_all(store, keys)
        yield
        saved = True
    finally:
        if not saved:
            _put_all(store, before)


def _put_all(store: SecretStore, keys: Mapping[str, Secret | None]) -> None:
    for provider, key in keys.items():
        if key is None:
            store.remove(provider)
        else:
            store.put(provider, key)
