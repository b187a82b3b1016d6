from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.agent import transcript
from fermix.agent.capability import Capability
from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Image,
    ToolMessage,
    Usage,
    UserMessage,
)
from fermix.agent.providers.provider import ModelFacts
from fermix.agent.results import framed, is_framed, unframed
from fermix.agent.tools import recall
from fermix.agent.transcript import DIGEST_CHARS, Transcript, digest
from tests.fakes.router import says
from tests.fakes.turns import make_call

ASK = ChatRequest(system=("be brief",), messages=(UserMessage("hello"),))
FACTS = ModelFacts(context_tokens=100_000, max_output_tokens=10_000, vision=True)
BUDGET = 76_500  # 0.85 of what a request may hold
TOOLS: dict[str, Capability] = {tool.name: tool for tool in recall.tools()}
LONG = "H" * 20_000 + "T" * 20_000  # 10,000 tokens by estimate


def result(number: int, text: str = LONG) -> ToolMessage:
    return ToolMessage(f"call{number:05d}", "look", text, True)


def after(steps: int, text: str = LONG, *, counted: int = 0) -> tuple[Transcript, dict[str, str]]:
    """A turn of so many steps with one result each; the provider counted `counted` tokens before the last one."""
    originals: dict[str, str] = {}
    turn = Transcript(ASK, TOOLS, originals)
    for number in range(1, steps + 1):
        turn.answered(replace(says(""), usage=Usage(counted, 0)))
        turn.add(AssistantMessage("", (make_call(number=number),)))
        turn.add(result(number, text))
    return turn, originals


def shortened(turn: Transcript) -> list[bool]:
    return [message.text.startswith("[Fermix: ") for message in turn.new if isinstance(message, ToolMessage)]


def test_nothing_is_touched_while_it_fits() -> None:
    turn, originals = after(6, counted=BUDGET - 10_010)
    before = turn.request

    turn.make_room(FACTS)

    assert (turn.request, originals) == (before, {})


@pytest.mark.parametrize(
    ("counted", "expected"),
    [(BUDGET - 10_000, 1), (BUDGET, 2), (BUDGET + 10_000, 3), (BUDGET + 500_000, 3)],
)
def test_oldest_results_go_first_and_the_last_three_steps_stay(counted: int, expected: int) -> None:
    """Reference 4, 1.5: beyond the step being answered and the two before it, oldest first, until it fits."""
    turn, originals = after(6, counted=counted)

    turn.make_room(FACTS)

    assert shortened(turn) == [True] * expected + [False] * (6 - expected)
    assert originals == {f"call{number:05d}": LONG for number in range(1, expected + 1)}


def test_turn_that_outgrows_its_digests_keeps_their_notices() -> None:
    """A hundred steps of long results fit into a small window; all of them can still be read back."""
    turn, originals = after(100, counted=1_000_000)
    small = replace(FACTS, context_tokens=40_000)

    turn.make_room(small)

    texts = [message.text for message in turn.new if isinstance(message, ToolMessage)]
    assert ["\n" in text for text in texts[:97]] == [False] * 97
    assert texts[97:] == [LONG] * 3
    assert len(originals) == 97


def test_notice_of_words_from_outside_keeps_an_empty_frame() -> None:
    """R-49: a later turn knows by it that this conversation has read something from outside."""
    turn, _ = after(10, framed(LONG, "web_fetch"), counted=1_000_000)

    turn.make_room(FACTS)

    first = turn.new[1].text.partition("\n")[2]
    assert unframed(first) == ("web_fetch", "(left out)")


def test_server_that_counts_nothing_is_helped_by_our_own_estimate() -> None:
    turn, _ = after(9, counted=0)

    turn.make_room(FACTS)

    assert shortened(turn) == [True, True] + [False] * 7


def test_what_was_shortened_is_not_shortened_again() -> None:
    turn, originals = after(6, counted=BUDGET)
    turn.make_room(FACTS)
    once = turn.request

    turn.make_room(FACTS)

    assert turn.request == once
    assert set(originals.values()) == {LONG}


def test_results_of_earlier_turns_go_before_those_of_this_one() -> None:
    """They are the oldest steps of the request; the history itself is not changed."""
    history = (UserMessage("first"), AssistantMessage("", (make_call(number=90),)), result(90), AssistantMessage("ok"))
    originals: dict[str, str] = {}
    turn = Transcript(replace(ASK, messages=(*history, *ASK.messages)), TOOLS, originals)
    for number in range(1, 4):
        turn.add(AssistantMessage("", (make_call(number=number),)))
        turn.answered(replace(says(""), usage=Usage(BUDGET + 1, 0)))
        turn.add(result(number))

    turn.make_room(FACTS)

    assert set(originals) == {"call00090"}
    assert len(turn.new) == 6


def test_refusals_go_deeper_into_the_turn_three_times() -> None:
    """Reference 4, 1.5: older ones, then the two steps before, then the step being answered; then no more."""
    turn, _ = after(5)
    seen: list[list[bool]] = []
    while turn.make_more_room():
        seen.append(shortened(turn))

    assert seen == [
        [True, True, False, False, False],
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_round_that_gains_nothing_is_not_tried(steps: int) -> None:
    """CTX-05: no progress is a failure, not an attempt."""
    short, _ = after(steps, text="short")
    long, _ = after(steps)

    assert not short.make_more_room()
    assert [long.make_more_room() for _ in range(3)].count(True) == min(steps, 2)


def test_digest_that_would_be_longer_than_its_result_is_not_put_in_its_place() -> None:
    """A notice names the call by its id, which a provider may make as long as it likes."""
    turn, _ = after(0)
    turn.add(AssistantMessage("", (make_call(),)))
    turn.add(replace(result(1, "x" * (2 * DIGEST_CHARS + 1)), call_id="c" * 2_000))
    before = turn.request

    assert not turn.make_more_room()
    assert turn.request == before


def test_next_answer_gives_all_rounds_back() -> None:
    turn, _ = after(1)
    assert turn.make_more_room()
    assert not turn.make_more_room()

    turn.answered(says(""))
    turn.add(AssistantMessage("", (make_call(number=2),)))
    turn.add(result(2))

    assert turn.make_more_room()


def test_digest_says_what_it_was_and_how_to_read_it() -> None:
    """Reference 4, 1.5: the digest names the call id."""
    short = digest(result(1), recalls=True)

    lines = short.text.splitlines()
    assert lines[0] == (
        "[Fermix: a result of look with 40000 characters, shortened; "
        'read it with tool_result_recall, call_id "call00001"]'
    )
    assert lines[1].startswith("H" * 600)
    assert lines[-1] == "T" * 200
    assert (short.call_id, short.name, short.ok) == ("call00001", "look", True)


def test_digest_without_recall_advises_the_tool_itself() -> None:
    """A small model and a guest have no tool to read it back."""
    assert "call the tool again" in digest(result(1), recalls=False).text


@pytest.mark.parametrize(
    "text",
    [framed(LONG, "web_fetch"), framed(LONG, "web_fetch") + "\n\nnote", f"note\n{framed(LONG, 'web_fetch')}"],
    ids=["alone", "note behind", "note before"],
)
def test_words_from_outside_stay_in_a_frame(text: str) -> None:
    """INJ-01: what is kept of them is framed, and nothing of them stands before or behind."""
    short = digest(result(1, text), recalls=True).text

    notice, _, rest = short.partition("\n")
    inside = unframed(rest)
    assert notice.startswith("[Fermix: a result of look")
    assert inside is not None
    assert rest.endswith("\n</fermix-untrusted>")
    assert is_framed(short)


def test_pictures_go_and_are_named() -> None:
    """Reference 4, 1.5: a picture that is gone is said to be gone."""
    shot = replace(result(1, "taken"), images=(Image("image/png", b"\x89PNG"),))

    short = digest(shot, recalls=True)

    assert short.images == ()
    assert "5 characters and 1 pictures, shortened" in short.text


def test_picture_alone_is_worth_a_digest() -> None:
    turn, originals = after(0)
    turn.add(AssistantMessage("", (make_call(),)))
    turn.add(replace(result(1, "taken"), images=(Image("image/png", b"\x89PNG"),)))

    assert turn.make_more_room()
    assert originals == {"call00001": "taken"}


def test_originals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit beside them is shortened all the same, and says so."""
    monkeypatch.setattr(transcript, "MOST_ORIGINALS_BYTES", 90_000)
    turn, originals = after(6, counted=BUDGET + 500_000)

    turn.make_room(FACTS)

    texts = [message.text for message in turn.new if isinstance(message, ToolMessage)]
    assert set(originals) == {"call00001", "call00002"}
    assert ["tool_result_recall" in text for text in texts] == [True, True, False, False, False, False]
    assert shortened(turn)[:3] == [True] * 3


TEXTS = {
    "none": "",
    "short": "x" * 100,
    "at the bound": "x" * (2 * DIGEST_CHARS),
    "long": LONG,
    "wide": "é" * 30_000,
    "framed": framed(LONG, "web"),
}


@given(
    steps=st.lists(st.lists(st.sampled_from(sorted(TEXTS)), max_size=4), max_size=8),
    counted=st.integers(0, 200_000),
    rounds=st.integers(0, 4),
)
def test_whatever_is_shortened_every_call_keeps_its_result(steps: list[list[str]], counted: int, rounds: int) -> None:
    """CTX-01: no message comes or goes, only texts get shorter, and no frame is lost."""
    turn = Transcript(ASK, TOOLS, {})
    number = 0
    for texts in [[TEXTS[kind] for kind in kinds] for kinds in steps]:
        turn.answered(replace(says(""), usage=Usage(counted, 0)))
        calls = tuple(make_call(number=number + place) for place in range(len(texts)))
        turn.add(AssistantMessage("", calls))
        for place, text in enumerate(texts):
            turn.add(result(number + place, text))
        number += len(texts)
    before = turn.request.messages

    turn.make_room(FACTS)
    for _ in range(rounds):
        turn.make_more_room()

    after = turn.request.messages
    assert list(map(without_text, before)) == list(map(without_text, after))
    for whole, short in zip(before, after, strict=True):
        assert len(short.text) <= len(whole.text)
        assert is_framed(whole.text) == is_framed(short.text)


def without_text(message: ChatMessage) -> ChatMessage:
    return replace(message, text="") if isinstance(message, ToolMessage) else message
