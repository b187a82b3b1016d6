"""The section `[fermix_core.tools.web_search]` of config.toml."""

from __future__ import annotations

from typing import Literal

from fermix.config.model import Settings
from fermix.config.secrets import Secret

SECTION = "fermix_core.tools.web_search"

BackendName = Literal["duckduckgo", "brave", "exa", "tavily", "parallel", "perplexity", "firecrawl"]


class WebSearchSettings(Settings):
    """Who is asked. Each key also comes from the environment or the secret store."""

    backend: BackendName = "duckduckgo"
    """The only one that needs no key; it also answers while another one fails."""
    brave_api_key: Secret | None = None
    exa_api_key: Secret | None = None
    tavily_api_key: Secret | None = None
    parallel_api_key: Secret | None = None
    perplexity_api_key: Secret | None = None
    firecrawl_api_key: Secret | None = None
