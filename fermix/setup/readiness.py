"""What is missing before Fermix can answer, judged from configuration. Shown by setup; the daemon judges live services.

Only a provider can gate: everything else is advice. Source: reference 3, section 11.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fermix.agent.providers.catalog import LOCAL_ID
from fermix.agent.providers.chain import Candidate, find_candidates
from fermix.agent.providers.local_files import MODEL_NAME, LocalFiles
from fermix.config.model import Config
from fermix.config.secret_store import SecretStore
from fermix.errors import ConfigError, NeedsOperator


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is missing. `gating`: nobody can answer before it is mended."""

    component: str
    action: str
    gating: bool
    pane: Literal["providers", "personality"]
    detail_key: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """`model` is the route that would answer, e.g. "openai/gpt-5.5"; None when nobody could."""

    model: str | None
    failures: tuple[Failure, ...]

    @property
    def ready(self) -> bool:
        return not any(failure.gating for failure in self.failures)


def check_readiness(config: Config, store: SecretStore, files: LocalFiles) -> Readiness:
    """Judge a configuration; reads the secret store, so it blocks."""
    try:
        candidates = find_candidates(config, store)
    except (ConfigError, NeedsOperator) as error:
        return Readiness(None, (Failure("providers", str(error), True, "providers", "providers_unreadable"),))
    advice = _advice(config)
    if not candidates:
        model, failures = _without_provider(config, files)
        return Readiness(model, (*failures, *advice))
    usable = [candidate for candidate in candidates if not candidate.problem]
    problems = [_problem(candidate, usable) for candidate in candidates if candidate.problem]
    return Readiness(str(usable[0].route) if usable else None, (*problems, *advice))


def _without_provider(config: Config, files: LocalFiles) -> tuple[str | None, tuple[Failure, ...]]:
    if not config.core.local_model.enabled:
        action = "no provider is configured and the local model is off: run `fermix setup`"
        return None, (Failure("providers", action, True, "providers", "provider_missing"),)
    if files.unsupported:
        action = f"{files.unsupported}, and no provider is configured: run `fermix setup`"
        return None, (Failure("local_model", action, True, "providers", "local_model_unsupported"),)
    if files.missing():
        action = "the local model is fetched when it is first used, or now with `fermix model fetch`"
        return f"{LOCAL_ID}/{MODEL_NAME}", (Failure("local_model", action, False, "providers", "local_model_absent"),)
    return f"{LOCAL_ID}/{MODEL_NAME}", ()


def _problem(candidate: Candidate, usable: list[Candidate]) -> Failure:
    action = f"{candidate.spec.label}: {candidate.problem}"
    if usable:
        action += f"; {usable[0].spec.label} answers instead"
    return Failure(candidate.spec.id, action, not usable, "providers", "provider_unusable")


def _advice(config: Config) -> tuple[Failure, ...]:
    if config.core.personalization.user_name is not None:
        return ()
    action = "say who you are: user_name in [fermix_core.personalization]"
    return (Failure("personalization", action, False, "personality", "user_name_missing"),)
