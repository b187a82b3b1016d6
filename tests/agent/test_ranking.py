from __future__ import annotations

import pytest

from fermix.agent.model import JsonObject
from fermix.agent.ranking import ranked
from tests.fakes.turns import make_capability


def schema(*names: str) -> JsonObject:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


TOOLS = (
    make_capability("tickets_list_issues", description="List the issues of a project.", parameters=schema("project")),
    make_capability("tickets_close", description="Close one.", parameters=schema("issueNumber")),
    make_capability("mail_send", description="Send a letter on GitHub's behalf.", parameters=schema("to", "subject")),
    make_capability("calendar_add", description="Note a date, a meeting, a date again.", parameters={"type": "object"}),
    make_capability("wörter", description="Schlägt Wörter nach", parameters={"type": "object", "properties": None}),
)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("list issues", "tickets_list_issues"),
        ("LIST", "tickets_list_issues"),
        ("number", "tickets_close"),
        ("subject", "mail_send"),
        ("github", "mail_send"),
        ("Hub", "mail_send"),
        ("meeting", "calendar_add"),
        ("wörter", "wörter"),
    ],
)
def test_words_of_name_description_and_parameters_find_a_tool(query: str, best: str) -> None:
    """Reference 4, 4.4: BM25 over name tokens, description and top-level parameter names."""
    assert ranked(query, TOOLS)[0].name == best


def test_rarer_words_and_shorter_texts_count_more() -> None:
    """What BM25 is: frequency saturates, length is paid for, a word that all share is worth little."""
    tools = (
        make_capability("a", description="ticket ticket ticket ticket ticket and a great many other words to read"),
        make_capability("b", description="ticket invoice"),
        make_capability("c", description="ticket"),
    )

    assert [tool.name for tool in ranked("ticket", tools)] == ["a", "c", "b"]
    assert [tool.name for tool in ranked("ticket invoice", tools)] == ["b", "a", "c"]


def test_a_piece_of_a_name_is_enough_when_no_word_is_known() -> None:
    """Reference 4, 4.4: literal substring of the name if nothing scores."""
    assert [tool.name for tool in ranked("alend", TOOLS)] == ["calendar_add"]
    assert [tool.name for tool in ranked("ICKETS_", TOOLS)] == ["tickets_list_issues", "tickets_close"]


@pytest.mark.parametrize("query", ["zebra", " ", "!?", ""])
def test_what_matches_nothing_finds_nothing(query: str) -> None:
    assert ranked(query, TOOLS) == ()


def test_equal_ones_come_by_name_whatever_the_order() -> None:
    """The same query gives the same answer, after a server has come back too."""
    tools = [make_capability(name, description="the same") for name in ("b", "c", "a")]

    assert [tool.name for tool in ranked("same", tools)] == ["a", "b", "c"]
    assert ranked("same", ()) == ()
