"""What `[fermix_core.providers.<id>]` may hold, by kind of provider. Checked by config, read by `chain.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fermix.config.model import Line, Settings, WebAddress
from fermix.config.secrets import Secret


class ProviderSettings(Settings):
    """What every provider shares."""

    base_url: WebAddress | None = None
    """Where it listens; None means its own service."""
    default_model: Line | None = None
    """None means the first model of the catalog."""
    primary: bool = False
    """Asked first. At most one provider may be; without one it is the first that is configured."""


class KeyedSettings(ProviderSettings):
    """A provider that takes a key."""

    api_key: Secret | None = None
    """Better kept by `fermix setup` in auth.json or the keyring."""


class CompatibleSettings(KeyedSettings):
    """Any server that speaks Chat Completions."""

    context_tokens: Annotated[int, Field(ge=1_024, le=10_000_000)] | None = None
    """The window it serves; None assumes 100,000 tokens."""
