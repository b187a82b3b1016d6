"""What is missing before Fermix can answer. One judgement: setup shows it of what is saved, the daemon of what runs.

Only who answers can gate: everything else is advice. Source: reference 3, section 11.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fermix.agent.providers.catalog import LOCAL_ID
from fermix.agent.providers.chain import Candidate, find_candidates
from fermix.agent.providers.local_files import MODEL_NAME, LocalFiles
from fermix.config.model import Config, LocalModelSettings
from fermix.config.secret_store import SecretStore
from fermix.errors import ConfigError, NeedsOperator
from fermix.protocol.methods import LocalModel

HERE = frozenset({"ready", "loaded"})  # states of the local model in which it can answer


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is missing. `gating`: nobody can answer before it is mended; the others are advice."""

    component: str
    action: str
    gating: bool
    pane: Literal["providers", "personality"]
    detail_key: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """`model` is the route that would answer now, e.g. "openai/gpt-5.5"; None when nobody could."""

    model: str | None
    found: tuple[Failure, ...]

    @property
    def ready(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(each for each in self.found if each.gating)

    @property
    def advice(self) -> tuple[Failure, ...]:
        return tuple(each for each in self.found if not each.gating)


def check_readiness(config: Config, store: SecretStore, files: LocalFiles) -> Readiness:
    """Judge a configuration; reads the secret store, so it blocks."""
    try:
        candidates = find_candidates(config, store)
    except (ConfigError, NeedsOperator) as error:
        return Readiness(None, (Failure("providers", str(error), True, "providers", "providers_unreadable"),))
    judged = judge(candidates, config.core.local_model, _look(files))
    return Readiness(judged.model, (*judged.found, *_advice(config)))


def judge(candidates: Sequence[Candidate], settings: LocalModelSettings, local: LocalModel) -> Readiness:
    """Judge who would answer, in the order in which the router asks."""
    usable = [candidate for candidate in candidates if not candidate.problem]
    broken = [candidate for candidate in candidates if candidate.problem]
    if settings.enabled and (settings.primary or not candidates):
        failures = _local_failures(local)
        advice = (_problem(candidate, "the local model") for candidate in broken)
        return Readiness(None if failures else f"{LOCAL_ID}/{MODEL_NAME}", (*failures, *advice))
    if usable:
        advice = (_problem(candidate, usable[0].spec.label) for candidate in broken)
        return Readiness(str(usable[0].route), tuple(advice))
    return Readiness(None, tuple(_problem(candidate) for candidate in broken) or (NOBODY,))


NOBODY = Failure(
    "providers",
    "no provider is configured and the local model is off: run `fermix setup`",
    True,
    "providers",
    "provider_missing",
)


def _look(files: LocalFiles) -> LocalModel:
    missing = files.missing()
    return LocalModel(
        state="failed" if files.unsupported else "absent" if missing else "ready",
        name=MODEL_NAME,
        total_bytes=sum(artifact.size_bytes for artifact in missing),
        done_bytes=files.done_bytes(),
        detail=files.unsupported,
    )


def _local_failures(local: LocalModel) -> tuple[Failure, ...]:
    if local["state"] in HERE:
        return ()
    if local["state"] == "failed":
        action = f"the local model cannot answer ({local['detail']}): run `fermix setup`, or see `fermix logs`"
        return (Failure("local_model", action, True, "providers", "local_model_failed"),)
    size = f"{local['total_bytes'] / 1e6:.0f} MB"
    action = (
        f"the local model answers once it is fetched ({size}): "
        "the first message fetches it, or run `fermix model fetch`, or `fermix setup`"
    )
    return (Failure("local_model", action, True, "providers", "local_model_absent"),)


def _problem(candidate: Candidate, instead: str = "") -> Failure:
    action = f"{candidate.spec.label}: {candidate.problem}"
    action += f"; {instead} answers instead" if instead else ": run `fermix setup`"
    return Failure(candidate.spec.id, action, not instead, "providers", "provider_unusable")


def _advice(config: Config) -> tuple[Failure, ...]:
    if config.core.personalization.user_name is not None:
        return ()
    action = "say who you are: user_name in [fermix_core.personalization]"
    return (Failure("personalization", action, False, "personality", "user_name_missing"),)
