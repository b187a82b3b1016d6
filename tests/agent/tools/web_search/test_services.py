"""How each service is asked and read, without a network."""

from __future__ import annotations

import json

import pytest

from fermix.agent.documents.results import to_results
from fermix.agent.tools.keys import TOOL_KEYS
from fermix.agent.tools.web_search.services import SERVICES, Found, duckduckgo_results, find_service
from fermix.agent.tools.web_search.settings import WebSearchSettings
from fermix.errors import Unusable

PAGE = """
<div id="links" class="results">
  <div class="result results_links result--ad"><h2><a class="result__a" href="//duckduckgo.com/y.js?ad_domain=x">Ad</a></h2></div>
  <div class="result results_links web-result">
    <h2 class="result__title"><a rel="nofollow" class="result__a"
      href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.example%2Fx%3Fy%3D1%26z%3D2&amp;rut=abc">A <b>page</b></a></h2>
    <a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">Some <b>words</b> &amp; more\u200b</a>
  </div>
  <div class="result"><h2><a class="result__a" href="https://b.example/">B</a></h2></div>
  <div class="result"><h2><a class="result__a" href="//duckduckgo.com/l/?uddg=http%3A%2F%2F127.0.0.1%2F">C</a></h2></div>
  <div class="result"><h2><a class="result__a" href="//duckduckgo.com/l/?uddg=javascript%3Aalert(1)">D</a></h2></div>
  <div class="result"><h2><a class="result__a" href="//[bad">E</a></h2></div>
</div>
"""  # noqa: E501 - as it comes


def test_the_page_of_duckduckgo_is_read() -> None:
    """Links are unwrapped, advertisements and what may not be fetched are left out."""
    assert duckduckgo_results(to_results(PAGE.encode())) == [
        Found("A page", "https://a.example/x?y=1&z=2", "Some words & more"),
        Found("B", "https://b.example/", ""),
    ]


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (b'<div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div>', "asks for a human"),
        (b'<form id="challenge-form" action="//duckduckgo.com/anomaly.js?sv=html">', "asks for a human"),
        (b"<h1>Something else</h1>", "lists no results"),
        (b"", "lists no results"),
    ],
)
def test_a_page_that_lists_nothing_though_it_should_is_a_problem(page: bytes, problem: str) -> None:
    with pytest.raises(Unusable, match=problem):
        duckduckgo_results(to_results(page))


def test_nothing_found_is_an_answer() -> None:
    page = b'<div id="links"><div class="no-results">No results found for <b>anomaly modal</b></div></div>'

    assert duckduckgo_results(to_results(page)) == []


@pytest.mark.parametrize(
    "answer",
    [b"", b"{", b"[" * 100_000, b"\xff", b"not json"],
)
def test_an_answer_that_is_no_json_is_unusable(answer: bytes) -> None:
    for service in SERVICES:
        with pytest.raises(Unusable):
            service.results(answer)


@pytest.mark.parametrize(
    "value", [None, 1, "x", [], {}, {"results": 1}, {"results": [1, None, {}]}, {"data": {"web": {}}}]
)
def test_an_answer_of_another_shape_holds_no_result(value: object) -> None:
    for service in SERVICES:
        assert service.results(json.dumps(value).encode()) == []


def test_what_is_found_is_bounded_and_seen() -> None:
    service = find_service("tavily")
    assert service is not None
    entry = {"title": "T\u202e\n" + "t" * 999, "url": "https://a.example/", "content": "c " * 9_999}

    found = service.results(json.dumps({"results": [entry] * 50 + [{**entry, "url": 5}]}).encode())

    assert len(found) == 10
    assert found[0].title == "T " + "t" * 198
    assert len(found[0].snippet) == 600


def test_every_service_has_its_setting_and_its_key() -> None:
    fields = set(WebSearchSettings.model_fields)

    assert {f"{service.name}_api_key" for service in SERVICES} | {"backend"} == fields
    assert {f"web_search.{service.name}" for service in SERVICES} <= {key.name for key in TOOL_KEYS}
    assert all(service.url.startswith("https://") for service in SERVICES)
