"""The probe tells a refused key from a provider that cannot be asked, and shows the key to nobody else."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Generator

import pytest

from fermix import __version__
from fermix.agent.providers.catalog import PROVIDERS
from fermix.config.secrets import Secret
from fermix.setup import probe as probing
from fermix.setup.probe import Probe, probe
from fermix.setup.questions import find_spec
from tests.fakes.model_list import GOOD_KEY, ModelList, model_list

OPENAI = find_spec("openai")
GOOD = Secret(GOOD_KEY)
BAD = Secret("sk-bad-0123456789abcdef")


@pytest.fixture
def server() -> Generator[ModelList]:
    with model_list() as said:
        yield said


def tried(server: ModelList, key: Secret | None = GOOD, provider: str = "openai") -> Probe:
    return probe(find_spec(provider), server.base_url, key)


def test_good_key_is_accepted_and_the_models_are_listed(server: ModelList) -> None:
    found = tried(server)

    assert (found.outcome, found.models) == ("accepted", ("gpt-5.5", "gpt-5.4-mini", "house-special"))
    assert found.latency_s > 0
    assert found.detail == f"OpenAI answered in {found.latency_s * 1000:.0f} ms"


@pytest.mark.parametrize("spec", PROVIDERS, ids=lambda spec: spec.id)
def test_every_provider_is_asked_with_its_own_header_and_our_name(server: ModelList, spec: object) -> None:
    provider = next(known for known in PROVIDERS if known is spec)

    assert tried(server, GOOD, provider.id).outcome == "accepted"

    ((path, headers),) = server.asked
    assert path == ("/v1/key" if provider.id == "openrouter" else "/v1/models")
    assert headers["user-agent"] == f"fermix/{__version__}"
    assert ("x-api-key" in headers) == (provider.id == "anthropic")


@pytest.mark.parametrize(
    ("status", "body"), [(401, b"{}"), (403, b"no"), (400, b'{"error": "Incorrect API key provided"}')]
)
def test_refused_key_is_rejected(server: ModelList, status: int, body: bytes) -> None:
    server.refusal_status, server.refusal = status, body

    found = tried(server, BAD)

    assert (found.outcome, found.detail) == ("rejected", f"OpenAI refused the key (HTTP {status})")


@pytest.mark.parametrize(
    ("status", "body", "detail"),
    [
        (500, b"{}", "OpenAI answered HTTP 500"),
        (429, b"{}", "OpenAI answered HTTP 429"),
        (404, b"{}", "OpenAI answered HTTP 404"),
        (400, b"{}", "OpenAI answered HTTP 400"),
        (302, b"", "OpenAI answered HTTP 302"),
        (200, b"<html>log in</html>", "OpenAI answered something that is no model API"),
        (200, b"[" * 100_000, "OpenAI answered something that is no model API"),
        (200, b"[]", "OpenAI answered something that is no model API"),
        (200, b"\xff\xfe", "OpenAI answered something that is no model API"),
    ],
)
def test_answer_that_says_nothing_about_the_key_is_inconclusive(
    server: ModelList, status: int, body: bytes, detail: str
) -> None:
    server.status, server.body = status, body

    found = tried(server)

    assert (found.outcome, found.detail, found.models) == ("inconclusive", detail, ())


@pytest.mark.parametrize(
    ("data", "models"),
    [
        (None, ()),
        ([], ()),
        ({"label": "sk-or-v1"}, ()),
        ([{"id": "a"}, {"id": 3}, {}, None, "x", {"id": "bad\x1b[2J"}], ("a",)),
    ],
)
def test_odd_lists_of_models_are_read_as_far_as_they_go(
    server: ModelList, data: object, models: tuple[str, ...]
) -> None:
    server.body = json.dumps({"data": data}).encode()

    found = tried(server)

    assert (found.outcome, found.models) == ("accepted", models)


def test_keyless_server_is_asked_without_a_key(server: ModelList) -> None:
    server.keyless = True

    assert tried(server, None, "ollama").outcome == "accepted"
    assert "authorization" not in server.asked[0][1]


def test_redirect_is_not_followed_with_the_key(server: ModelList) -> None:
    with model_list() as elsewhere:
        server.status, server.headers = 307, {"Location": elsewhere.base_url}

        assert tried(server).outcome == "inconclusive"
        assert elsewhere.asked == []


def test_proxy_of_the_environment_does_not_see_the_key(server: ModelList, monkeypatch: pytest.MonkeyPatch) -> None:
    with model_list() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.base_url.removesuffix("/v1"))

        assert tried(server).outcome == "accepted"
        assert proxy.asked == []


def test_nobody_at_the_address_is_inconclusive_and_names_the_host() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        found = probe(OPENAI, f"http://127.0.0.1:{port}/v1", GOOD)

    assert found.outcome == "inconclusive"
    assert found.detail == "OpenAI cannot be reached at 127.0.0.1 (ConnectError)"


def test_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "READ_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = probe(OPENAI, f"http://127.0.0.1:{silent.getsockname()[1]}/v1", GOOD)

    assert (found.outcome, found.detail) == ("inconclusive", "OpenAI did not answer in time (127.0.0.1)")


def test_endless_answer_is_cut_off(server: ModelList, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "MAX_ANSWER_BYTES", 1_000)
    server.body = b"x" * 100_000

    assert tried(server).detail == "OpenAI answered without end"


@pytest.mark.parametrize("address", ["http://[::1/v1", "http://\u2028/v1", "http://127.0.0.1:99999/v1"])
def test_address_that_is_none_is_inconclusive(address: str) -> None:
    assert probe(OPENAI, address, GOOD).outcome == "inconclusive"


def test_key_is_in_no_log_and_no_text(server: ModelList, caplog: pytest.LogCaptureFixture) -> None:
    """SEC-01"""
    with caplog.at_level(logging.DEBUG, logger="fermix"):
        found = [tried(server, GOOD), tried(server, BAD), probe(OPENAI, "http://127.0.0.1:1/v1", GOOD)]

    logged = [record for record in caplog.records if record.name.startswith("fermix")]
    assert logged == []
    assert GOOD_KEY not in repr(found)
    assert BAD.reveal() not in repr(found)
