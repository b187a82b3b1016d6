"""Which keys the tools have of their own, and where each was found: config.toml, the secret store, the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fermix.agent.providers.catalog import PROVIDERS
from fermix.agent.providers.settings import KeyedSettings
from fermix.agent.tools.image.choice import GOOGLE_KEY, ImageSettings
from fermix.agent.tools.web_search.settings import WebSearchSettings
from fermix.config.model import Config
from fermix.config.secret_store import SecretStore, find_key
from fermix.config.secrets import Secret


@dataclass(frozen=True, slots=True)
class ToolKey:
    """One key. `name` is how the secret store and the tool call it ("web_search.brave"), `variable` the environment,
    `configured` reads it out of config.toml.
    """

    name: str
    variable: str
    configured: Callable[[Config], Secret | None]


def _of_chat(provider: str) -> ToolKey:
    """The key that chats with a company also serves its other services."""
    spec = next(spec for spec in PROVIDERS if spec.id == provider)

    def configured(config: Config) -> Secret | None:
        settings = config.section(spec.section, spec.settings)
        return settings.api_key if isinstance(settings, KeyedSettings) else None

    return ToolKey(spec.id, spec.key_variable or "", configured)


TOOL_KEYS: tuple[ToolKey, ...] = (
    ToolKey("web_search.brave", "BRAVE_API_KEY", lambda config: config[WebSearchSettings].brave_api_key),
    ToolKey("web_search.exa", "EXA_API_KEY", lambda config: config[WebSearchSettings].exa_api_key),
    ToolKey("web_search.tavily", "TAVILY_API_KEY", lambda config: config[WebSearchSettings].tavily_api_key),
    ToolKey("web_search.parallel", "PARALLEL_API_KEY", lambda config: config[WebSearchSettings].parallel_api_key),
    ToolKey("web_search.perplexity", "PERPLEXITY_API_KEY", lambda config: config[WebSearchSettings].perplexity_api_key),
    ToolKey("web_search.firecrawl", "FIRECRAWL_API_KEY", lambda config: config[WebSearchSettings].firecrawl_api_key),
    _of_chat("openai"),
    _of_chat("xai"),
    ToolKey(GOOGLE_KEY, "GEMINI_API_KEY", lambda config: config[ImageSettings].google_api_key),
)


def find_tool_keys(config: Config, store: SecretStore) -> Mapping[str, Secret]:
    """Return the keys that are there, by name; blocks on the secret store. Raises: ConfigError, NeedsOperator."""
    found = {key.name: _find(key, config, store) for key in TOOL_KEYS}
    return {name: secret for name, secret in found.items() if secret is not None}


def _find(key: ToolKey, config: Config, store: SecretStore) -> Secret | None:
    configured = key.configured(config)
    return find_key(
        key.name, configured=configured, store=store, environment=config.secrets, variable=key.variable
    ).secret
