"""The page on which DuckDuckGo lists what it found, as JSON. Runs apart (`serve_conversion.py`); pure."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urljoin, urlsplit

from bs4 import BeautifulSoup
from bs4.element import Tag

from fermix.agent.documents.charset import decoded
from fermix.visible import only_seen

HOST = "duckduckgo.com"
BASE = f"https://{HOST}/"
MOST_RESULTS = 10
CHALLENGES = ("anomaly-modal", "challenge-form", "anomaly.js")  # in the page that asks for a human


def to_results(data: bytes) -> str:
    """Return `[{"title", "url", "snippet"}]`, or `{"problem"}` for a page that lists nothing though it should.

    A result: `<div class="result"><a class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fe.com">E</a>
    <a class="result__snippet">…</a></div>`, advertisements bear the class `result--ad`.
    """
    page = BeautifulSoup(decoded(data).replace("\0", ""), "lxml")
    found = [result for entry in page.select("div.result:not(.result--ad)") if (result := _result(entry)) is not None]
    if found:
        return json.dumps(found[:MOST_RESULTS])
    if any(mark.encode() in data for mark in CHALLENGES):
        return json.dumps({"problem": "DuckDuckGo takes this machine for a robot and asks for a human"})
    if page.select_one(".no-results, .result--no-result, #links") is None:
        return json.dumps({"problem": "DuckDuckGo answered with a page that lists no results"})
    return json.dumps([])


def _result(entry: Tag) -> dict[str, str] | None:
    link = entry.select_one("a.result__a[href]")
    url = _unwrapped(str(link["href"])) if link is not None else None
    if link is None or url is None:
        return None
    snippet = entry.select_one(".result__snippet")
    return {"title": _text(link), "url": url, "snippet": _text(snippet) if snippet is not None else ""}


def _unwrapped(href: str) -> str | None:
    """Return where a link leads behind DuckDuckGo's own redirect; None for an advertisement and for what is no link."""
    try:
        parts = urlsplit(urljoin(BASE, href))
        if parts.hostname is None or not (parts.hostname == HOST or parts.hostname.endswith(f".{HOST}")):
            return parts.geturl() if parts.hostname else None
        return next(iter(parse_qs(parts.query).get("uddg", [])), None) if parts.path == "/l/" else None
    except ValueError:
        return None


def _text(tag: Tag) -> str:
    return " ".join(only_seen(tag.get_text()).split())
