"""From configuration to routes: which providers are configured, with which key and model, and in which order.

`find_candidates` reads the secret store, which blocks; call it before the loop runs or through `Workers`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from fermix.addresses import is_own
from fermix.agent.providers.catalog import PROVIDERS, ProviderSpec
from fermix.agent.providers.models import Model, find_model
from fermix.agent.providers.provider import Endpoint, OpenEndpoint, Route
from fermix.agent.providers.remote import RemoteProvider
from fermix.agent.providers.settings import CompatibleSettings, KeyedSettings, ProviderSettings
from fermix.config.model import Config
from fermix.config.secret_store import ProviderKey, SecretStore, find_key
from fermix.errors import ConfigError, NeedsOperator
from fermix.net import Net
from fermix.protocol.methods import ProviderRow

log = logging.getLogger(__name__)

NO_KEY_NEEDED = "none needed"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A provider that config, a store or the environment mentions. `problem` is "" when it can be used."""

    spec: ProviderSpec
    base_url: str
    model: Model
    key: ProviderKey
    primary: bool
    problem: str

    @property
    def route(self) -> Route:
        return Route(self.spec.id, self.model.id)

    @property
    def row(self) -> ProviderRow:
        """How it stands, for `fermix status`."""
        return ProviderRow(
            provider=self.spec.id,
            model=self.model.id,
            primary=self.primary,
            key_from=NO_KEY_NEEDED if self.key.secret is None and not self.spec.needs_key else self.key.origin,
            usable=not self.problem,
            problem=self.problem,
        )


def find_candidates(config: Config, store: SecretStore) -> tuple[Candidate, ...]:
    """Return what is mentioned, the primary first, then in the order of the catalog.

    Raises: ConfigError when two claim to be primary, or the store cannot be read.
    """
    found = [candidate for spec in PROVIDERS if (candidate := _candidate(spec, config, store)) is not None]
    claims = [candidate.spec.section for candidate in found if candidate.primary]
    if config.core.local_model.primary:
        claims.append("fermix_core.local_model")
    if len(claims) > 1:
        raise ConfigError(f"only one can be primary, not {' and '.join(claims)}", path="config.toml", key=claims[1])
    return tuple(sorted(found, key=lambda candidate: not candidate.primary))


def usable_candidates(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the chain. When none is usable, the first one mentioned stays, so that a turn says what is missing."""
    usable = tuple(candidate for candidate in candidates if not candidate.problem)
    for candidate in candidates:
        if candidate.problem and candidate.primary and usable:
            log.warning("the primary provider %s is left out: %s", candidate.spec.id, candidate.problem)
    return usable or tuple(candidates[:1])


def open_route(candidate: Candidate, net: Net) -> RemoteProvider:
    """Make the provider of a candidate."""
    wire = candidate.spec.choose_wire(candidate.base_url, candidate.model)
    patience = candidate.spec.patience
    return RemoteProvider(candidate.route, candidate.model.facts, wire, _endpoint(candidate), net, patience)


def _endpoint(candidate: Candidate) -> OpenEndpoint:
    async def endpoint() -> Endpoint:
        if candidate.problem:
            raise NeedsOperator(
                f"{candidate.spec.label} cannot be used: {candidate.problem}", advice="run `fermix setup`"
            )
        return Endpoint(candidate.base_url, candidate.key.secret)

    return endpoint


def _candidate(spec: ProviderSpec, config: Config, store: SecretStore) -> Candidate | None:
    settings = config.section(spec.section, spec.settings)
    configured = settings.api_key if isinstance(settings, KeyedSettings) else None
    key = find_key(spec.id, configured=configured, store=store, environment=config.secrets, variable=spec.key_variable)
    if spec.section not in config.stated and key.secret is None:
        return None
    base_url = settings.base_url or spec.base_url or ""
    name = settings.default_model or spec.default_model or ""
    return Candidate(
        spec,
        base_url,
        _model(spec, settings, name, base_url),
        key,
        settings.primary,
        _problem(spec, settings, key, name),
    )


def _model(spec: ProviderSpec, settings: ProviderSettings, name: str, base_url: str) -> Model:
    model = find_model(spec.id, name)
    if isinstance(settings, CompatibleSettings) and settings.context_tokens is not None:
        model = replace(model, facts=replace(model.facts, context_tokens=settings.context_tokens))
    if is_own(urlsplit(base_url).hostname or ""):
        model = replace(model, facts=replace(model.facts, input_price=0.0, output_price=0.0))
    return model


def _problem(spec: ProviderSpec, settings: ProviderSettings, key: ProviderKey, model: str) -> str:
    if spec.needs_key and key.secret is None:
        return key.problem or "its key is missing"
    if not spec.needs_key and settings.base_url is None:
        return f"[{spec.section}] base_url is missing"
    return "" if model else f"[{spec.section}] default_model is missing"
