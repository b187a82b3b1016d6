"""What clients may search for. The same function answers the verb where no daemon runs: cli/offline.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fermix.agent.memory.facts import Facts, by_words
from fermix.agent.memory.rows import stamp
from fermix.agent.memory.search import Hit, Search
from fermix.daemon.memory_answers import memory_row
from fermix.daemon.params import Params, Result, checked
from fermix.daemon.socket import Call
from fermix.protocol.memory import SaidRow, SearchMemory, SearchResult

DEFAULT_HITS = 10
MOST_MEMORIES = 10
MOST_QUERY_CHARS = 1_000


def search_methods(facts: Facts, search: Search) -> Mapping[str, Callable[[Call], Awaitable[Result]]]:
    """Return the methods by name."""
    return {"memory.search": lambda call: answer(facts, search, call.params)}


async def answer(facts: Facts, search: Search, params: Params) -> Result:
    """Search what is remembered and what was said."""
    wish = checked(SearchMemory, params)
    query = wish["query"][:MOST_QUERY_CHARS]
    remembered = by_words(await facts.active(), query)[:MOST_MEMORIES]
    found = await search.find(query, wish.get("limit", DEFAULT_HITS))
    result: SearchResult = {
        "memories": [memory_row(fact) for fact in remembered],
        "messages": [_said(hit) for hit in found.hits],
        "whole": found.whole,
    }
    return dict(result)


def _said(hit: Hit) -> SaidRow:
    channel, chat_id, thread = hit.key
    return {
        "id": hit.number,
        "channel": channel,
        "chat_id": chat_id,
        "thread": thread,
        "sender": hit.sender,
        "role": hit.role,
        "at": stamp(hit.at),
        "snippet": hit.snippet,
        "guest": hit.guest,
        "outside": hit.outside,
    }
