"""What the outcome of a probe means for saving: one rule for flags, prompts and the terminal UI."""

from __future__ import annotations

from fermix.agent.providers.catalog import ProviderSpec
from fermix.setup.probe import Probe

NAMED_MODELS = 5


def why_not(spec: ProviderSpec, found: Probe) -> str:
    """Return why these answers should not be saved, "" when they may be.

    A hosted service that is away will be back; a server of one's own that does not answer is not running, or its
    address is wrong.
    """
    if found.outcome == "rejected" or (found.outcome == "inconclusive" and not spec.needs_key):
        return found.detail
    return ""


def doubt(spec: ProviderSpec, model: str | None, found: Probe) -> str:
    """Return a sentence when a server of one's own does not list the model; hosted services list in part."""
    if spec.needs_key or not model or not found.models or {model, f"{model}:latest"} & set(found.models):
        return ""
    more = ", …" if len(found.models) > NAMED_MODELS else ""
    return f"{spec.label} does not list the model {model}; it has {', '.join(found.models[:NAMED_MODELS])}{more}"
