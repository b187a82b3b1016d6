"""The companies that search with a key, one entry each: how they are asked and where their answer holds what. Pure.

What must stay true: a key goes into one header and nowhere else; an answer in another shape gives no result, never
an error of Python's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fermix.addresses import parse
from fermix.agent.model import JsonObject, JsonValue
from fermix.errors import Refused, Unusable
from fermix.visible import only_seen

MOST_RESULTS = 10
TITLE_CHARS = 200
SNIPPET_CHARS = 600

DUCKDUCKGO = "https://html.duckduckgo.com/html/"


@dataclass(frozen=True, slots=True)
class Found:
    """One result."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Service:
    """One company. `body` makes the JSON that is posted; without one the query stands in the address. `list_at` leads
    to the results, `snippet_at` names their text or texts.
    """

    name: str
    label: str
    url: str
    key_header: str
    key_prefix: str
    body: Callable[[str], JsonObject] | None
    list_at: tuple[str, ...]
    snippet_at: str

    def headers(self, key: str) -> dict[str, str]:
        """Return what is sent besides the query."""
        kind = {"Content-Type": "application/json"} if self.body is not None else {}
        return {self.key_header: self.key_prefix + key, "Accept": "application/json", **kind}

    def address(self, query: str) -> str:
        """Return the address with the query in it, for one that is asked so."""
        return f"{self.url}?{urlencode({'q': query, 'count': MOST_RESULTS, 'text_decorations': 'false'})}"

    def results(self, answer: bytes) -> list[Found]:
        """Read an answer. Raises: Unusable when it is no JSON."""
        try:
            value: JsonValue = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise Unusable("the answer is not JSON") from error
        for name in self.list_at:
            value = value.get(name) if isinstance(value, Mapping) else None
        entries = [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
        return usable(
            [(_text(entry, "title"), _text(entry, "url"), _text(entry, self.snippet_at)) for entry in entries]
        )


SERVICES = (
    # api-dashboard.search.brave.com: {"web": {"results": [{"title", "url", "description"}]}}
    Service(
        "brave", "Brave", "https://api.search.brave.com/res/v1/web/search", "X-Subscription-Token", "", None,
        ("web", "results"), "description",
    ),
    # exa.ai/docs/reference/search: {"results": [{"title", "url", "text"}]}
    Service(
        "exa", "Exa", "https://api.exa.ai/search", "x-api-key", "",
        lambda query: {
            "query": query, "numResults": MOST_RESULTS, "contents": {"text": {"maxCharacters": SNIPPET_CHARS}},
        },
        ("results",), "text",
    ),
    # docs.tavily.com: {"results": [{"title", "url", "content"}]}
    Service(
        "tavily", "Tavily", "https://api.tavily.com/search", "Authorization", "Bearer ",
        lambda query: {"query": query, "max_results": MOST_RESULTS},
        ("results",), "content",
    ),
    # docs.parallel.ai, version 1: {"results": [{"title", "url", "excerpts": ["…"]}]}
    Service(
        "parallel", "Parallel", "https://api.parallel.ai/v1/search", "x-api-key", "",
        lambda query: {
            "search_queries": [query], "mode": "basic", "advanced_settings": {"max_results": MOST_RESULTS},
        },
        ("results",), "excerpts",
    ),
    # docs.perplexity.ai, Search API: {"results": [{"title", "url", "snippet"}]}
    Service(
        "perplexity", "Perplexity", "https://api.perplexity.ai/search", "Authorization", "Bearer ",
        lambda query: {"query": query, "max_results": MOST_RESULTS},
        ("results",), "snippet",
    ),
    # docs.firecrawl.dev, version 2: {"success": true, "data": {"web": [{"title", "url", "description"}]}}
    Service(
        "firecrawl", "Firecrawl", "https://api.firecrawl.dev/v2/search", "Authorization", "Bearer ",
        lambda query: {"query": query, "limit": MOST_RESULTS},
        ("data", "web"), "description",
    ),
)  # fmt: skip


def find_service(name: str) -> Service | None:
    """Return a company by its name, None for the one that needs no key."""
    return next((service for service in SERVICES if service.name == name), None)


def duckduckgo_address(query: str, url: str = DUCKDUCKGO) -> str:
    """Return where DuckDuckGo lists its results as a plain page."""
    return f"{url}?{urlencode({'q': query})}"


def duckduckgo_results(listed: str) -> list[Found]:
    """Read what `documents/results.py` made of that page. Raises: Unusable with its problem."""
    value: JsonValue = json.loads(listed)
    if isinstance(value, Mapping):
        raise Unusable(_text(value, "problem"))
    entries = [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
    return usable([(_text(entry, "title"), _text(entry, "url"), _text(entry, "snippet")) for entry in entries])


def usable(results: Sequence[tuple[str, str, str]]) -> list[Found]:
    """Keep the results whose address could be fetched, each within its bounds."""
    return [
        Found(_line(title)[:TITLE_CHARS], url, _line(snippet)[:SNIPPET_CHARS])
        for title, url, snippet in results
        if _is_address(url)
    ][:MOST_RESULTS]


def _is_address(url: str) -> bool:
    try:
        parse(url)
    except Refused:
        return False
    return True


def _text(entry: Mapping[str, JsonValue], name: str) -> str:
    value = entry.get(name)
    texts = value if isinstance(value, list) else [value]
    return " ".join(text for text in texts if isinstance(text, str))


def _line(text: str) -> str:
    return " ".join(only_seen(text).split())
