"""From configuration to one backend: which one listens, with which key and model.

`find_voice` reads the secret store, which blocks; call it before the loop runs or through `Workers`. What must stay
true: a backend that was stated is the one that is used, also when its key is missing; nothing stands in for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fermix.agent.providers.catalog import PROVIDERS, ProviderSpec
from fermix.agent.providers.settings import KeyedSettings
from fermix.config.model import Config
from fermix.config.secret_store import ProviderKey, SecretStore, find_key
from fermix.config.secrets import Secret
from fermix.gateway.transcription.transcriber import NOT_YET, BackendName, TranscriptionSettings

DEEPGRAM_VARIABLE = "DEEPGRAM_API_KEY"


@dataclass(frozen=True, slots=True)
class Service:
    """A company that listens. `model` is the one it is asked for, None where there is no choice."""

    backend: BackendName
    label: str
    base_url: str
    model: str | None


SERVICES = (
    Service("openai", "OpenAI", "https://api.openai.com/v1", "gpt-4o-mini-transcribe"),
    Service("deepgram", "Deepgram", "https://api.deepgram.com/v1", "nova-3"),
    Service("xai", "xAI", "https://api.x.ai/v1", None),
)


@dataclass(frozen=True, slots=True)
class Voice:
    """The backend in use. `problem` says why it cannot be used, "" when it can; a local one has no key."""

    backend: BackendName
    label: str = "the local model"
    base_url: str = ""
    model: str | None = None
    key: Secret | None = None
    problem: str = ""


LISTENS_ITSELF = Voice("local")


def find_voice(config: Config, store: SecretStore) -> Voice:
    """Return who listens: the stated backend; else OpenAI where a key for it is there; else the local one.

    Raises: ConfigError, NeedsOperator when the store cannot be read.
    """
    stated = config[TranscriptionSettings].backend
    if stated == "local":
        return LISTENS_ITSELF
    found = _hosted(stated or "openai", config, store)
    return LISTENS_ITSELF if stated is None and found.key is None else found


def stored_as(backend: BackendName) -> str:
    """Return the name under which the secret store keeps a key of its own for a backend."""
    return f"transcription.{backend}"


def find_voice_key(backend: BackendName, config: Config, store: SecretStore) -> ProviderKey:
    """Look for a key: one for listening alone first, then the one that chats with the same company."""
    settings = config[TranscriptionSettings]
    own = {
        "openai": settings.openai_api_key,
        "deepgram": settings.deepgram_api_key,
        "xai": settings.xai_api_key,
    }
    variable = DEEPGRAM_VARIABLE if backend == "deepgram" else None
    name = stored_as(backend)
    found = find_key(name, configured=own[backend], store=store, environment=config.secrets, variable=variable)
    chat = next((spec for spec in PROVIDERS if spec.id == backend), None)
    if found.secret is not None or chat is None:
        return found
    section = config.section(chat.section, chat.settings)
    configured = section.api_key if isinstance(section, KeyedSettings) else None
    return find_key(chat.id, configured=configured, store=store, environment=config.secrets, variable=chat.key_variable)


def find_service(backend: BackendName) -> Service:
    """Raises: ValueError for the local one."""
    for service in SERVICES:
        if service.backend == backend:
            return service
    raise ValueError(f"{backend} is no service")


def _hosted(backend: BackendName, config: Config, store: SecretStore) -> Voice:
    service = find_service(backend)
    key = find_voice_key(backend, config, store)
    problem = f"{NOT_YET}, since {key.problem or f'the key for {service.label} is missing'}"
    model = service.model and (config[TranscriptionSettings].model or service.model)
    address = _base_url(backend, config) or service.base_url
    return Voice(backend, service.label, address, model, key.secret, "" if key.secret is not None else problem)


def _base_url(backend: BackendName, config: Config) -> str | None:
    """The address of the owner's own gateway to the company counts for its ears too."""
    spec: ProviderSpec | None = next((spec for spec in PROVIDERS if spec.id == backend), None)
    return None if spec is None else config.section(spec.section, spec.settings).base_url
