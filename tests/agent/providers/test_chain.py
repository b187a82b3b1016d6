"""From config.toml and keys to routes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fermix.agent.model import ChatRequest, UserMessage
from fermix.agent.providers.catalog import PROVIDERS, local_provider
from fermix.agent.providers.chain import Candidate, find_candidates
from fermix.agent.providers.provider import Endpoint, Route
from fermix.agent.providers.routing import Router
from fermix.config.load import build
from fermix.config.secret_store import FileStore
from fermix.config.secrets import Secret
from fermix.errors import ConfigError, NeedsOperator
from fermix.events import Events
from fermix.home import Home
from fermix.net import Net
from tests.fakes.books import FakeBooks
from tests.fakes.clock import ManualClock
from tests.fakes.provider import Answer, ScriptedProvider, failure

SECTIONS = {spec.section: spec.settings for spec in PROVIDERS}
VARIABLES = [spec.key_variable for spec in PROVIDERS if spec.key_variable]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    tmp_path.chmod(0o700)
    return Home(tmp_path)


def find(home: Home, text: str = "", **environ: str) -> tuple[Candidate, ...]:
    config = build(text, home, environ, SECTIONS, VARIABLES)
    return find_candidates(config, FileStore(home.auth))


def make(
    candidates: tuple[Candidate, ...], net: Net, *, embedded: bool = False, embedded_first: bool = False
) -> Router:
    async def endpoint() -> Endpoint:
        return Endpoint("http://127.0.0.1:1/v1", None)

    clock = ManualClock(moves_itself=True)
    local = local_provider(endpoint, net) if embedded else None
    return Router.build(candidates, local, net, clock, Events(clock), FakeBooks(), embedded_first=embedded_first)


def test_a_key_in_the_environment_is_enough(home: Home) -> None:
    (candidate,) = find(home, OPENAI_API_KEY="sk-environment-1")

    assert candidate.route == Route("openai", "gpt-5.5")
    assert (candidate.row["key_from"], candidate.row["usable"]) == ("OPENAI_API_KEY", True)


def test_the_primary_comes_first_and_the_rest_in_catalog_order(home: Home) -> None:
    text = """
    [fermix_core.providers.ollama]
    base_url = "http://localhost:11434/v1"
    [fermix_core.providers.mistral]
    api_key = "mistral-key-1"
    primary = true
    """
    found = find(home, text, ANTHROPIC_API_KEY="sk-ant-environment")

    assert [candidate.spec.id for candidate in found] == ["mistral", "anthropic", "ollama"]


def test_two_primaries_are_refused(home: Home) -> None:
    text = "[fermix_core.providers.openai]\nprimary = true\n[fermix_core.providers.xai]\nprimary = true\n"

    with pytest.raises(ConfigError, match="only one can be primary"):
        find(home, text)


def test_a_primary_beside_the_local_model_is_refused(home: Home) -> None:
    text = "[fermix_core.local_model]\nprimary = true\n[fermix_core.providers.xai]\nprimary = true\n"

    with pytest.raises(ConfigError, match=r"only one can be primary, not .*xai and fermix_core\.local_model"):
        find(home, text)


async def test_a_primary_without_a_key_is_left_out_when_another_can_answer(home: Home) -> None:
    text = "[fermix_core.providers.openai]\nprimary = true\n"
    found = find(home, text, XAI_API_KEY="xai-environment-1")
    async with Net.open(loopback_only=True) as net:
        router = make(found, net)

    assert [provider.route.provider for provider in router.routes] == ["xai"]
    assert [(row["provider"], row["usable"]) for row in router.rows()] == [("openai", False), ("xai", True)]


async def test_a_lone_primary_without_a_key_says_what_to_do(home: Home) -> None:
    found = find(home, "[fermix_core.providers.openai]\nprimary = true\n")
    async with Net.open(loopback_only=True) as net:
        router = make(found, net, embedded=True)
        with pytest.raises(NeedsOperator, match="OpenAI cannot be used: its key is missing: run `fermix setup`"):
            await router.complete(ChatRequest((), (UserMessage("hi"),)), lambda delta: None, turn_id="t")


async def test_the_embedded_model_stands_in_only_while_nothing_is_configured(home: Home) -> None:
    async with Net.open(loopback_only=True) as net:
        alone = make(find(home), net, embedded=True)
        beside = make(find(home, OPENAI_API_KEY="sk-environment-1"), net, embedded=True)

    assert (alone.current, alone.routes[0].facts.compact) == (Route("local", "qwen2.5-coder-0.5b"), True)
    assert beside.current == Route("openai", "gpt-5.5")


async def test_the_embedded_model_comes_first_when_it_is_primary_and_the_usable_stand_in(home: Home) -> None:
    found = find(home, "[fermix_core.providers.xai]\n", OPENAI_API_KEY="sk-environment-1")
    async with Net.open(loopback_only=True) as net:
        router = make(found, net, embedded=True, embedded_first=True)

    assert [provider.route.provider for provider in router.routes] == ["local", "openai"]


def test_any_compatible_server_needs_no_key_but_an_address_and_a_model(home: Home) -> None:
    section = "[fermix_core.providers.openai_compatible]\n"
    (without_model,) = find(home, section + 'base_url = "http://127.0.0.1:8080/v1"\n')
    (whole,) = find(
        home, section + 'base_url = "http://127.0.0.1:8080/v1"\ndefault_model = "qwen3"\ncontext_tokens = 32768\n'
    )

    assert "default_model is missing" in without_model.problem
    assert (whole.problem, whole.model.facts.context_tokens, whole.row["key_from"]) == ("", 32_768, "none needed")


def test_a_key_in_the_store_is_found_and_named(home: Home) -> None:
    FileStore(home.auth).put("anthropic", Secret("sk-ant-stored-1"))

    (candidate,) = find(home, ANTHROPIC_API_KEY="sk-ant-environment")

    assert candidate.row["key_from"] == "auth.json"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('default_model = "gpt-5.5"', "/responses"),
        ('default_model = "o4-mini"', "/responses"),
        ('default_model = "gpt-5.5"\nbase_url = "https://proxy.example/v1"', "/chat/completions"),
    ],
)
def test_openai_speaks_responses_at_home_only(home: Home, text: str, path: str) -> None:
    (candidate,) = find(home, f"[fermix_core.providers.openai]\n{text}\n", OPENAI_API_KEY="sk-environment-1")

    assert candidate.spec.choose_wire(candidate.base_url, candidate.model).path == path


async def test_a_limited_primary_hands_over_to_another_vendor_over_real_http(home: Home) -> None:
    """PRV-17: two servers, two wires; the completion says who answered."""
    async with (
        ScriptedProvider([failure(429, "slow down", headers={"retry-after": "1800"})], key="sk-one-12345") as first,
        ScriptedProvider([Answer(text="hi")], key="sk-two-12345") as second,
        Net.open(loopback_only=True) as net,
    ):
        text = f"""
        [fermix_core.providers.mistral]
        base_url = "{first.base_url}"
        api_key = "sk-one-12345"
        primary = true
        [fermix_core.providers.anthropic]
        base_url = "{second.base_url}"
        api_key = "sk-two-12345"
        """
        router = make(find(home, text), net)
        request = ChatRequest(("You are Fermix.",), (UserMessage("hi"),))
        async with asyncio.timeout(5):
            completion = await router.complete(request, lambda delta: None, turn_id="t")

    assert (completion.provider, completion.model, completion.text) == ("anthropic", "claude-sonnet-4-6", "hi")
    assert (first.requests[0].wire, second.requests[0].wire) == ("chat", "messages")


@pytest.mark.parametrize(
    ("address", "price"),
    [
        ("http://localhost:8080/v1", 0.0),
        ("http://192.168.1.5/v1", 0.0),
        ("http://[fd00::1]:8080/v1", 0.0),
        ("http://gpu.lan/v1", 0.0),
        ("https://api.example.com/v1", None),
        ("https://8.8.8.8/v1", None),
    ],
)
def test_a_server_of_ones_own_costs_nothing(home: Home, address: str, price: float | None) -> None:
    """A model that nobody knows the price of is not silently free; one on the owner's own network is."""
    (found,) = find(
        home, f'[fermix_core.providers.openai_compatible]\nbase_url = "{address}"\ndefault_model = "gpt-x"\n'
    )

    assert (found.model.facts.input_price, found.model.facts.output_price) == (price, price)
