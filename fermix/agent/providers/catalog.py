"""PROVIDERS: one line per provider, in the order in which they stand in for each other. Read by config and setup.

Adding one that speaks a known wire is one more line here and its models in `models.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fermix.agent.providers.anthropic import MessagesWire
from fermix.agent.providers.models import MODELS, Model
from fermix.agent.providers.openai_chat import ChatWire
from fermix.agent.providers.openai_responses import ResponsesWire
from fermix.agent.providers.provider import OpenEndpoint, Route
from fermix.agent.providers.remote import RemoteProvider
from fermix.agent.providers.settings import CompatibleSettings, KeyedSettings, ProviderSettings
from fermix.agent.providers.stream import Patience
from fermix.agent.providers.wire import Wire
from fermix.net import Net

OPENAI_URL = "https://api.openai.com/v1"
HOSTED = Patience()
OWN_SERVER = Patience(chunk_s=300.0, news_s=300.0)  # loads a model and reads a long prompt before the first word


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """A provider as config, setup and routing see it.

    `choose_wire` takes the base URL in use and the model. `base_url` is None where the owner must name one;
    `key_variable` is the environment variable that may hold the key.
    """

    id: str
    label: str
    settings: type[ProviderSettings]
    choose_wire: Callable[[str, Model], Wire]
    base_url: str | None
    key_variable: str | None
    needs_key: bool
    patience: Patience = HOSTED

    @property
    def section(self) -> str:
        return f"fermix_core.providers.{self.id}"

    @property
    def models(self) -> tuple[Model, ...]:
        return MODELS[self.id]

    @property
    def default_model(self) -> str | None:
        """The first model of the catalog; None where only the owner can know."""
        return self.models[0].id if self.models else None


def _openai(base_url: str, model: Model) -> Wire:
    """Choose Responses for OpenAI's own models at home; other servers of the name speak Chat Completions."""
    if base_url.rstrip("/") != OPENAI_URL:
        return ChatWire()
    if re.match(r"gpt-|o\d", model.id):
        return ResponsesWire()
    return ChatWire(limit_field="max_completion_tokens", caches_by_key=True)


def _anthropic(base_url: str, model: Model) -> Wire:
    return MessagesWire(max_output_tokens=model.facts.max_output_tokens, thinks=model.thinks)


def _xai(base_url: str, model: Model) -> Wire:
    return ResponsesWire(summarizes_reasoning=False, caches_by_key=False, takes_slashes=False)


def _openrouter(base_url: str, model: Model) -> Wire:
    return ChatWire(extra_headers={"HTTP-Referer": "https://fermix.sh", "X-Title": "Fermix"})


def _mistral(base_url: str, model: Model) -> Wire:
    return ChatWire(asks_for_usage=False)  # it reports usage unasked and refuses the question


def _plain_chat(base_url: str, model: Model) -> Wire:
    return ChatWire()


PROVIDERS: tuple[ProviderSpec, ...] = (
    ProviderSpec("openai", "OpenAI", KeyedSettings, _openai, OPENAI_URL, "OPENAI_API_KEY", True),
    ProviderSpec(
        "anthropic", "Anthropic", KeyedSettings, _anthropic, "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", True
    ),
    ProviderSpec("xai", "xAI", KeyedSettings, _xai, "https://api.x.ai/v1", "XAI_API_KEY", True),
    ProviderSpec(
        "openrouter",
        "OpenRouter",
        KeyedSettings,
        _openrouter,
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        True,
    ),
    ProviderSpec("mistral", "Mistral", KeyedSettings, _mistral, "https://api.mistral.ai/v1", "MISTRAL_API_KEY", True),
    ProviderSpec(
        "openai_compatible", "OpenAI-compatible server", CompatibleSettings, _plain_chat, None, None, False, OWN_SERVER
    ),
    ProviderSpec(
        "ollama", "Ollama", ProviderSettings, _plain_chat, "http://localhost:11434/v1", None, False, OWN_SERVER
    ),
)

LOCAL_ID = "local"


def local_provider(endpoint: OpenEndpoint, net: Net) -> RemoteProvider:
    """Return the provider of the embedded model, whose engine is started by asking for its endpoint."""
    model = MODELS[LOCAL_ID][0]
    wire = ChatWire(fields={"temperature": 0.0, "max_tokens": model.facts.max_output_tokens})
    return RemoteProvider(Route(LOCAL_ID, model.id), model.facts, wire, endpoint, net, OWN_SERVER)
