"""Setup of voice notes: what listens now, what could, and saving the choice. No screen: the verb asks, this saves.

The same rules as for who answers: a key goes to the secret store and never into config.toml, and a save is whole or
not at all. Nothing is fetched here; the verb does it, since that takes a while and the owner wants to see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fermix.config.edit import ConfigEditor, Key, Value
from fermix.config.secret_store import open_store
from fermix.config.secrets import Secret
from fermix.errors import NeedsOperator
from fermix.gateway.transcription import VoiceFiles, find_voice
from fermix.gateway.transcription.choice import SERVICES, find_service, find_voice_key, stored_as
from fermix.gateway.transcription.transcriber import SECTION, BackendName, TranscriptionSettings
from fermix.home import Home
from fermix.setup.questions import Option, Question, WrongAnswer
from fermix.setup.sections import SECTIONS, load_config
from fermix.setup.wizard import all_or_nothing

KEEP = "keep"
BACKENDS: tuple[BackendName, ...] = ("local", *(service.backend for service in SERVICES))


@dataclass(frozen=True, slots=True)
class VoiceSetup:
    """One look at what this install has for listening."""

    home: Home
    environ: Mapping[str, str]
    files: VoiceFiles

    @classmethod
    def of(cls, home: Home, environ: Mapping[str, str]) -> VoiceSetup:
        return cls(home, environ, VoiceFiles.of(home.models))

    def listens(self) -> str:
        """Tell who listens now, as a phrase. Raises: ConfigError, NeedsOperator."""
        config = load_config(self.home, self.environ)
        core = config.core.settings
        voice = find_voice(config, open_store(self.home, core.secret_store, core.profile))
        if voice.problem:
            return f"nobody yet: {voice.label} is chosen and has no key"
        if voice.backend == "local" and not self.files.ready:
            return "nobody yet"
        return f"{voice.label} listens"

    def has_key(self, backend: BackendName) -> bool:
        """Whether a service could be used without another key. Raises: ConfigError, NeedsOperator."""
        config = load_config(self.home, self.environ)
        core = config.core.settings
        store = open_store(self.home, core.secret_store, core.profile)
        return find_voice_key(backend, config, store).secret is not None

    def check(self, backend: str, key: Secret | None) -> BackendName:
        """Look whether this could listen. Raises: WrongAnswer, NeedsOperator, ConfigError."""
        name = _known(backend)
        if name == "local":
            if key is not None:
                raise WrongAnswer("key", "the local model takes no key")
            if self.files.unsupported:
                raise NeedsOperator(self.files.unsupported, advice="choose OpenAI, Deepgram or xAI instead")
        elif key is None and not self.has_key(name):
            raise WrongAnswer("key", f"{find_service(name).label} needs a key")
        return name

    def save(self, name: BackendName, key: Secret | None) -> None:
        """Write a choice that was checked. Raises: ConfigError, NeedsOperator, Unavailable."""
        saved = load_config(self.home, {})
        core = saved.core.settings
        changes: dict[Key, Value | None] = {_key("backend"): name}
        if key is not None and getattr(saved[TranscriptionSettings], f"{name}_api_key") is not None:
            changes[_key(f"{name}_api_key")] = None  # it would come before the new one
        keys = {} if key is None else {stored_as(name): key}
        with all_or_nothing(open_store(self.home, core.secret_store, core.profile), keys):
            ConfigEditor(self.home, SECTIONS).apply(changes)


def ask_voice(setup: VoiceSetup) -> Question:
    """Offer to leave it as it is, then the local model, then the services. Raises: ConfigError, NeedsOperator."""
    services = [Option(service.backend, service.label, "with a key") for service in SERVICES]
    options = (Option(KEEP, "As it is", setup.listens()), Option("local", "Local model", _local_note(setup)), *services)
    return Question("voice", "Who should turn voice notes into text?", KEEP, options, closed=True)


def ask_voice_key(setup: VoiceSetup, backend: BackendName) -> Question:
    """Ask for a key of a service. Raises: ConfigError, NeedsOperator."""
    label = find_service(backend).label
    if setup.has_key(backend):
        return Question("key", f"Key for {label} (the one that is here stays when you leave this blank)", optional=True,
                        secret=True)  # fmt: skip
    return Question("key", f"Key for {label}", secret=True)


def _known(backend: str) -> BackendName:
    for name in BACKENDS:
        if name == backend:
            return name
    raise WrongAnswer("voice", f"unknown backend {backend!r}; choose one of {', '.join(BACKENDS)}")


def _local_note(setup: VoiceSetup) -> str:
    if setup.files.unsupported:
        return setup.files.unsupported
    megabytes = sum(artifact.size_bytes for artifact in setup.files.missing()) / 1e6
    return "private, English only; " + (f"downloads {megabytes:.0f} MB once" if megabytes else "is here")


def _key(name: str) -> Key:
    return (*SECTION.split("."), name)
