"""Which model does the work of sub-agents and jobs, when it is not the one that answers the owner.

Declared in config.toml and checked there; changed by hand or, with the owner's yes, by `override_changes.py`. The model
that answers the owner is no setting of this section.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, model_validator

from fermix.agent.providers.catalog import PROVIDERS
from fermix.agent.providers.models import MODELS
from fermix.config.model import Config, Line, Settings

SECTION = "fermix_core.routing"
Role = Literal["subagent", "cron"]
ROLES: tuple[Role, ...] = get_args(Role)
Effort = Literal["none", "low", "medium", "high", "xhigh", "max"]
EFFORTS: Mapping[str, tuple[Effort, ...]] = {
    "openai": ("none", "low", "medium", "high", "xhigh"),
    "anthropic": ("low", "medium", "high", "xhigh", "max"),
    "xai": ("none", "low", "medium", "high"),
}
"""What each provider takes; the others take none at all."""


def _known(provider: str) -> str:
    if provider not in MODELS or provider == "local":
        raise ValueError(f"is not one of {', '.join(spec.id for spec in PROVIDERS)}")
    return provider


Provider = Annotated[str, AfterValidator(_known)]


class RoutingSettings(Settings):
    """`[fermix_core.routing]`. What is not stated is as in the conversation with the owner."""

    subagent_model: Line | None = None
    subagent_provider: Provider | None = None
    subagent_reasoning_effort: Effort | None = None
    cron_model: Line | None = None
    cron_provider: Provider | None = None
    cron_reasoning_effort: Effort | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if (problem := why_unfit(self, primary=None)) is not None:
            raise ValueError(problem)
        return self


NAMES: tuple[str, ...] = tuple(RoutingSettings.model_fields)


def why_unfit(settings: RoutingSettings, *, primary: str | None) -> str | None:
    """Say what cannot work together, None when all can. A model without a provider means `primary`, None unknown."""
    stated = settings.model_dump()
    for role in ROLES:
        model, provider, effort = (stated[f"{role}_{part}"] for part in ("model", "provider", "reasoning_effort"))
        provider = provider or primary
        if provider is None:
            continue
        if model is not None and (owners := _others_that_know(model, provider)):
            return f"{role}_model {model!r} is a model of {' and '.join(owners)}, not of {provider}"
        if effort is not None and effort not in (taken := EFFORTS.get(provider, ())):
            return f"{role}_reasoning_effort: {provider} takes {' or '.join(taken) or 'none; leave it out'}"
    return None


def primary_provider(config: Config) -> str | None:
    """Return the provider that answers the owner as far as config.toml says so."""
    stated = [
        (spec.id, config.section(spec.section, spec.settings)) for spec in PROVIDERS if spec.section in config.stated
    ]
    chosen = [provider for provider, settings in stated if settings.primary]
    return next(iter([*chosen, *(provider for provider, _ in stated)]), None)


def _others_that_know(model: str, provider: str) -> list[str]:
    known = [name for name, models in MODELS.items() if any(one.id == model for one in models)]
    return [] if provider in known else known
