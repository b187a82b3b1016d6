"""The catalog: what config, setup and routing rely on."""

from __future__ import annotations

import pytest

from fermix.agent.providers.catalog import LOCAL_ID, PROVIDERS, ProviderSpec
from fermix.agent.providers.models import MODELS, UNKNOWN, Model, find_model


@pytest.mark.parametrize("spec", PROVIDERS, ids=lambda spec: spec.id)
def test_every_provider_is_whole(spec: ProviderSpec) -> None:
    assert spec.section == f"fermix_core.providers.{spec.id}"
    assert spec.settings().default_model is None
    assert spec.needs_key == (spec.key_variable is not None)
    assert (spec.base_url is None, spec.default_model is None) in [(True, True), (False, False)]


def test_ids_variables_and_models_are_unique() -> None:
    ids = [spec.id for spec in PROVIDERS]
    variables = [spec.key_variable for spec in PROVIDERS if spec.key_variable]
    models = [(provider, model.id) for provider, known in MODELS.items() for model in known]

    assert sorted(MODELS) == sorted([*ids, LOCAL_ID])
    assert [len(set(names)) for names in (ids, variables, models)] == [len(ids), len(variables), len(models)]


def test_ollama_stands_in_last() -> None:
    """Reference 4, section 2.1."""
    assert [spec.id for spec in PROVIDERS][-1] == "ollama"


def test_an_unknown_model_is_taken_as_it_is() -> None:
    """Reference 4, section 2.4: a window of 100,000 tokens; only models known to be text-only refuse pictures."""
    assert find_model("openai", "gpt-99") == Model("gpt-99", UNKNOWN)
    assert (UNKNOWN.context_tokens, UNKNOWN.vision) == (100_000, None)


def test_only_the_embedded_model_asks_for_the_short_profile() -> None:
    compact = [model.id for known in MODELS.values() for model in known if model.facts.compact]

    assert compact == ["qwen2.5-coder-0.5b"]


def test_limits_and_prices_are_plausible() -> None:
    known = [model.facts for models in MODELS.values() for model in models]

    assert all(0 < facts.max_output_tokens <= facts.context_tokens for facts in known)
    assert all((facts.input_price is None) == (facts.output_price is None) for facts in known)
    assert all((facts.input_price or 0) <= (facts.output_price or 0) for facts in known)
