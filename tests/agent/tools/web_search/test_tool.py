"""web_search against servers on loopback that speak as the services do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

import pytest

from fermix.agent.capability import ToolContext
from fermix.agent.documents.reading import Reading
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.tools.web_search.services import SERVICES, find_service
from fermix.agent.tools.web_search.tool import Searcher
from fermix.config.secrets import Secret
from fermix.errors import FermixError
from fermix.net import Net
from tests.agent.tools.conftest import Toolbox
from tests.agent.tools.web_search.test_services import PAGE
from tests.fakes.internet import Internet, Site
from tests.fakes.turns import RecordingPort, make_turn

KEY = "canary-key"
ENTRY = {"title": "T", "url": "https://a.example/"}
ANSWERS: Mapping[str, JsonValue] = {
    "brave": {"web": {"results": [{**ENTRY, "description": "words"}]}},
    "exa": {"results": [{**ENTRY, "text": "words"}]},
    "tavily": {"results": [{**ENTRY, "content": "words"}]},
    "parallel": {"results": [{**ENTRY, "excerpts": ["words"]}]},
    "perplexity": {"results": [{**ENTRY, "snippet": "words"}]},
    "firecrawl": {"success": True, "data": {"web": [{**ENTRY, "description": "words"}]}},
}
ASKED: Mapping[str, JsonValue] = {
    "exa": {"query": "what is it", "numResults": 10, "contents": {"text": {"maxCharacters": 600}}},
    "tavily": {"query": "what is it", "max_results": 10},
    "parallel": {"search_queries": ["what is it"], "mode": "basic", "advanced_settings": {"max_results": 10}},
    "perplexity": {"query": "what is it", "max_results": 10},
    "firecrawl": {"query": "what is it", "limit": 10},
}


@dataclass
class Desk:
    internet: Internet
    net: Net
    box: Toolbox

    def searcher(self, name: str, key: str | None = KEY) -> Searcher:
        service = find_service(name)
        if service is not None:
            host = "brave.example" if service.body is None else "127.0.0.1"
            service = replace(service, url=self.internet.url(f"{host}/{name}"))
        reading = Reading(self.box.deps.sandbox, self.box.deps.workers, self.box.deps.program)
        secret = None if key is None else Secret(key)
        return Searcher(
            self.net, self.internet.web(self.net), reading, service, secret,
            duckduckgo=self.internet.url("duck.example/html/"),
        )  # fmt: skip

    def put(self, name: str, site: Site) -> None:
        host = "brave.example" if name == "brave" else "127.0.0.1"
        self.internet.sites[f"{host}/{name}"] = site

    async def search(self, name: str, query: str = "what is it", key: str | None = KEY) -> ToolResult:
        async with asyncio.timeout(20):
            return await self.searcher(name, key).run({"query": query}, ToolContext(make_turn(), RecordingPort(), "1"))


@pytest.fixture
async def desk(toolbox: Toolbox) -> AsyncIterator[Desk]:
    async with Internet.open() as internet, Net.open(loopback_only=True) as net:
        internet.sites["duck.example/html/"] = Site(PAGE.encode())
        yield Desk(internet, net, toolbox)


async def test_without_a_key_duckduckgo_is_asked(desk: Desk) -> None:
    result = await desk.search("duckduckgo")

    told = json.loads(result.text)
    assert result.ok
    assert list(told) == ["backend", "results"]
    assert told["backend"] == "duckduckgo"
    assert [found["url"] for found in told["results"]] == ["https://a.example/x?y=1&z=2", "https://b.example/"]
    assert [request.query["q"] for request in desk.internet.asked] == ["what is it"]


@pytest.mark.parametrize("name", [service.name for service in SERVICES])
async def test_each_service_is_asked_in_its_own_way(desk: Desk, name: str) -> None:
    """Reference 4, section 4.3; R-46: the key is in the one header of the service and nowhere else."""
    desk.put(name, Site(json.dumps(ANSWERS[name]).encode(), "application/json"))

    result = await desk.search(name)

    found = [{"title": "T", "url": "https://a.example/", "snippet": "words"}]
    assert json.loads(result.text) == {"backend": name, "results": found}
    [request], [body] = desk.internet.asked, desk.internet.posted
    service = find_service(name)
    assert service is not None
    assert request.headers[service.key_header] == service.key_prefix + KEY
    assert KEY not in request.path_qs + body.decode() + result.text
    if name == "brave":
        assert dict(request.query) == {"q": "what is it", "count": "10", "text_decorations": "false"}
    else:
        assert json.loads(body) == ASKED[name]


@pytest.mark.parametrize("name", ["brave", "tavily"])
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "the key is not accepted"),
        (402, "the plan is used up"),
        (403, "the key is not accepted"),
        (429, "too many requests"),
        (500, "answered with status 500"),
        (503, "answered with status 503"),
        (200, "not JSON"),
    ],
)
async def test_a_service_that_fails_hard_is_replaced_once_and_told(
    desk: Desk, name: str, status: int, reason: str
) -> None:
    desk.put(name, Site(b"<h1>canary words", status=status))

    result = await desk.search(name)

    told = json.loads(result.text)
    assert result.ok
    assert (told["degraded"], told["backend"], told["primary_backend"]) == (True, "duckduckgo", name)
    assert reason in told["fallback_reason"]
    assert len(told["results"]) == 2
    assert KEY not in result.text
    assert len(desk.internet.asked) == 2


async def test_a_service_that_cannot_be_reached_or_has_no_key_is_replaced(desk: Desk) -> None:
    desk.internet.names["brave.example"] = ()

    unreachable = json.loads((await desk.search("brave")).text)
    keyless = json.loads((await desk.search("exa", key=None)).text)

    assert (unreachable["primary_backend"], keyless["primary_backend"]) == ("brave", "exa")
    assert keyless["fallback_reason"] == "the key for Exa is missing"


@pytest.mark.parametrize("name", ["brave", "tavily"])
async def test_nothing_found_and_a_bad_query_are_no_reason_to_ask_another(desk: Desk, name: str) -> None:
    desk.put(name, Site(b"{}", "application/json"))
    empty = await desk.search(name)
    desk.put(name, Site(b"{}", "application/json", status=422))
    with pytest.raises(FermixError, match="422") as caught:
        await desk.search(name)

    assert json.loads(empty.text) == {"backend": name, "results": []}
    assert caught.value.user_text == f"{name.title()} does not accept this query: write it differently."
    assert "duck.example" not in {request.host.partition(":")[0] for request in desk.internet.asked}


@pytest.mark.parametrize("name", ["duckduckgo", "tavily"])
async def test_when_nobody_can_search_one_sentence_says_why_and_what_to_do(desk: Desk, name: str) -> None:
    """The page that asks for a human is a failure, not an empty answer."""
    desk.internet.sites["duck.example/html/"] = Site(b'<div class="anomaly-modal__title">bots</div>', status=202)

    result = await desk.search(name)

    assert not result.ok
    assert "DuckDuckGo takes this machine for a robot" in result.text
    assert "[fermix_core.tools.web_search]" in result.text


async def test_an_empty_query_is_told(desk: Desk) -> None:
    result = await desk.search("duckduckgo", query="  ")

    assert result == ToolResult(False, "the query is empty")
    assert desk.internet.asked == []


@pytest.mark.parametrize("name", ["duckduckgo", "brave", "exa"])
async def test_half_a_character_in_a_query_is_searched_for_as_a_mark(desk: Desk, name: str) -> None:
    result = await desk.search(name, query="caf\ud83d")

    assert "the tool failed" not in result.text
    assert desk.internet.asked


async def test_a_redirect_takes_no_key_along(desk: Desk) -> None:
    """NET-07: neither the guarded way nor the other carries it to another host."""
    to = {"Location": desk.internet.url("evil.example/")}
    for name in ("brave", "tavily"):
        desk.put(name, Site(status=307, headers=to))
        await desk.search(name)

    evil = [request for request in desk.internet.asked if request.host.startswith("evil.example")]
    assert len(evil) == 1
    assert KEY not in str(evil[0].headers)
