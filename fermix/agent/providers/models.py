"""The models we know: windows, limits, vision, prices. Data, read by `chain.py` and setup.

Sources: the vendors' model and price pages, October 2026; reference 4, section 2.4. The first model of a provider
is its default. Prices of aliases are left open: a wrong price is worse
than none. A server of one's own costs nothing; `chain.py` knows one by its address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fermix.agent.providers.provider import ModelFacts

UNKNOWN = ModelFacts(context_tokens=100_000, max_output_tokens=8_192, vision=None)


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the catalog, or one outside it with the facts of `UNKNOWN`. `thinks`: takes adaptive thinking."""

    id: str
    facts: ModelFacts
    thinks: bool = False


_GPT_5_5 = ModelFacts(1_050_000, 128_000, True, 5.0, 30.0, cached_price=0.5)
_GPT_5_4 = ModelFacts(1_050_000, 128_000, True, 2.5, 15.0, cached_price=0.25)
_GPT_5_4_MINI = ModelFacts(400_000, 128_000, True, 0.75, 4.5, cached_price=0.075)
_SONNET_4_6 = ModelFacts(1_000_000, 64_000, True, 3.0, 15.0, cached_price=0.3)
_FABLE_5 = ModelFacts(1_000_000, 128_000, True, 10.0, 50.0, cached_price=1.0)
_OPUS_4_8 = ModelFacts(1_000_000, 128_000, True, 5.0, 25.0, cached_price=0.5)
_HAIKU_4_5 = ModelFacts(200_000, 64_000, True, 1.0, 5.0, cached_price=0.1)
_GROK_4_3 = ModelFacts(1_000_000, 32_768, True, 1.25, 2.5)
_MISTRAL = ModelFacts(128_000, 16_384, True)
_OWN_SERVER = ModelFacts(128_000, 8_192, False)
_EMBEDDED = ModelFacts(8_192, 1_024, False, 0.0, 0.0, compact=True)

MODELS: Mapping[str, tuple[Model, ...]] = {
    "openai": (Model("gpt-5.5", _GPT_5_5), Model("gpt-5.4", _GPT_5_4), Model("gpt-5.4-mini", _GPT_5_4_MINI)),
    "anthropic": (
        Model("claude-sonnet-4-6", _SONNET_4_6, thinks=True),
        Model("claude-fable-5", _FABLE_5, thinks=True),
        Model("claude-opus-4-8", _OPUS_4_8, thinks=True),
        Model("claude-haiku-4-5", _HAIKU_4_5),
    ),
    "xai": (Model("grok-4.3", _GROK_4_3),),
    "openrouter": (
        Model("anthropic/claude-sonnet-4.6", _SONNET_4_6),
        Model("anthropic/claude-opus-4.8", _OPUS_4_8),
        Model("openai/gpt-5.5", _GPT_5_5),
        Model("openai/gpt-5.4-mini", _GPT_5_4_MINI),
        Model("x-ai/grok-4.3", _GROK_4_3),
    ),
    "mistral": (
        Model("mistral-large-latest", _MISTRAL),
        Model("mistral-medium-latest", _MISTRAL),
        Model("mistral-small-latest", _MISTRAL),
    ),
    "ollama": (
        Model("qwen3:32b", _OWN_SERVER),
        Model("gpt-oss:20b", _OWN_SERVER),
        Model("llama3.3:70b", _OWN_SERVER),
    ),
    "openai_compatible": (),
    "local": (Model("qwen2.5-coder-0.5b", _EMBEDDED),),
}


def find_model(provider: str, name: str) -> Model:
    """Return the model of the catalog, else one of which nothing is known."""
    return next((model for model in MODELS[provider] if model.id == name), Model(name, UNKNOWN))
