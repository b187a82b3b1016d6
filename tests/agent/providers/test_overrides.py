"""The section that says which models work for sub-agents and jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from fermix.agent.providers.overrides import RoutingSettings, primary_provider, why_unfit
from fermix.errors import ConfigError
from fermix.home import Home
from fermix.setup.sections import load_config


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"subagent_model": "gpt-5.4-mini"},
        {"cron_provider": "anthropic"},
        {"cron_provider": "anthropic", "cron_model": "claude-haiku-4-5", "cron_reasoning_effort": "max"},
        {"subagent_provider": "openrouter", "subagent_model": "openai/gpt-5.5"},
        {"subagent_provider": "openai", "subagent_model": "a-model-of-tomorrow"},
    ],
)
def test_what_fits_together_is_taken(stated: dict[str, str]) -> None:
    assert RoutingSettings(**stated).model_dump(exclude_none=True) == stated


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({"cron_provider": "nobody"}, "is not one of openai, anthropic"),
        ({"cron_provider": "local"}, "is not one of"),
        (
            {"subagent_provider": "anthropic", "subagent_model": "gpt-5.5"},
            "subagent_model 'gpt-5.5' is a model of openai, not of anthropic",
        ),
        ({"cron_provider": "xai", "cron_reasoning_effort": "max"}, "xai takes none or low or medium or high"),
        ({"cron_provider": "mistral", "cron_reasoning_effort": "low"}, "mistral takes none; leave it out"),
        ({"cron_reasoning_effort": "enormous"}, "none"),
        ({"agent_model": "gpt-5.5"}, "Extra inputs"),
        ({"cron_model": "two\nlines"}, "one line"),
    ],
)
def test_what_does_not_fit_is_refused(stated: dict[str, str], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        RoutingSettings(**stated)


def test_a_model_alone_is_one_of_the_primary_provider() -> None:
    settings = RoutingSettings(cron_model="gpt-5.5")

    assert why_unfit(settings, primary="openai") is None
    assert why_unfit(settings, primary=None) is None
    assert why_unfit(settings, primary="xai") == "cron_model 'gpt-5.5' is a model of openai, not of xai"


@pytest.mark.parametrize(
    ("text", "primary"),
    [
        ("", None),
        ('[fermix_core.providers.xai]\ndefault_model = "grok-4.3"\n', "xai"),
        ("[fermix_core.providers.openai]\n[fermix_core.providers.xai]\nprimary = true\n", "xai"),
    ],
)
def test_who_answers_the_owner_is_read_from_the_configuration(tmp_path: Path, text: str, primary: str | None) -> None:
    home = Home(tmp_path)
    home.config.write_text(text, encoding="utf-8")

    assert primary_provider(load_config(home, {})) == primary


def test_a_pair_that_cannot_work_stops_the_start_and_names_the_section(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.write_text('[fermix_core.routing]\ncron_provider = "xai"\ncron_model = "gpt-5.5"\n', encoding="utf-8")

    with pytest.raises(ConfigError, match=r"fermix_core\.routing.*model of openai, not of xai"):
        load_config(home, {})
