"""From configuration to one backend that makes pictures. Called when the tools are built.

What must stay true: a backend that was stated is the one that is used, also when its key is missing; nothing stands
in for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fermix.agent.providers.catalog import PROVIDERS
from fermix.config.model import Config, Line, Settings
from fermix.config.secrets import Secret

log = logging.getLogger(__name__)

SECTION = "fermix_core.tools.generate_image"
GOOGLE_KEY = "generate_image.google"
BackendName = Literal["openai", "xai", "google"]


class ImageSettings(Settings):
    """`[fermix_core.tools.generate_image]`."""

    backend: BackendName | None = None
    """None means the first of OpenAI, xAI and Google that there is a key for."""
    model: Line | None = None
    """None means the backend's own default."""
    google_api_key: Secret | None = None
    """Better kept in auth.json, the keyring or GEMINI_API_KEY."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Who makes the pictures, with which model and key."""

    name: BackendName
    label: str
    base_url: str
    model: str
    key: Secret


@dataclass(frozen=True, slots=True)
class _Company:
    """`key` is how the keys of tools call its key; OpenAI and xAI take the one of the chat."""

    name: BackendName
    label: str
    base_url: str
    model: str
    key: str


COMPANIES = (
    _Company("openai", "OpenAI", "https://api.openai.com/v1", "gpt-image-1", "openai"),
    _Company("xai", "xAI", "https://api.x.ai/v1", "grok-imagine-image", "xai"),
    _Company(
        "google", "Google", "https://generativelanguage.googleapis.com/v1beta", "gemini-2.5-flash-image", GOOGLE_KEY
    ),
)


def find_backend(config: Config, keys: Mapping[str, Secret]) -> Backend | None:
    """Return who makes pictures; None when nobody can, and then there is no such tool."""
    settings = config[ImageSettings]
    wanted = [one for one in COMPANIES if settings.backend in (None, one.name)]
    found = next((one for one in wanted if one.key in keys), None)
    if found is None:
        if settings.backend is not None:
            log.warning("[%s] backend = %r has no key, so no pictures can be made", SECTION, settings.backend)
        return None
    address = _gateway(found.name, config) or found.base_url
    return Backend(found.name, found.label, address.rstrip("/"), settings.model or found.model, keys[found.key])


def _gateway(name: BackendName, config: Config) -> str | None:
    """The address of the owner's own gateway to the company counts for its pictures too."""
    spec = next((spec for spec in PROVIDERS if spec.id == name), None)
    return None if spec is None else config.section(spec.section, spec.settings).base_url
