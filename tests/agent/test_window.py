from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    Image,
    Reasoning,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from fermix.agent.providers.provider import ModelFacts, Route
from fermix.agent.tokens import message_tokens, prompt_tokens
from fermix.agent.window import Fitted, fit
from fermix.errors import LimitReached
from tests.fakes.turns import make_call

ROUTE = Route("fake", "small")
QUESTION = UserMessage("and now?")


def exchange(number: int, calls: int = 0) -> list[ChatMessage]:
    made = tuple(make_call(number=number * 10 + n) for n in range(calls))
    results = [ToolMessage(call.id, call.name, "x" * 40, True) for call in made]
    called = [AssistantMessage("", made)] if made else []
    return [UserMessage(f"question {number}"), *called, *results, AssistantMessage(f"answer {number}")]


def facts(context_tokens: int) -> ModelFacts:
    return ModelFacts(context_tokens=context_tokens, max_output_tokens=context_tokens, vision=None)


def test_history_that_fits_is_kept_whole() -> None:
    earlier = [*exchange(1), *exchange(2, calls=2)]

    assert fit(earlier, QUESTION, fixed_tokens=100, facts=facts(8_000), route=ROUTE) == Fitted((*earlier, QUESTION), 0)


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(30, 1_000))
def test_history_is_cut_between_whole_units_from_the_oldest_end(shape: list[int], context_tokens: int) -> None:
    """CTX-01: no orphan call, no orphan result; what is kept is the newest, begins with a user and fits."""
    earlier = [message for number, calls in enumerate(shape) for message in exchange(number, calls)]

    fitted = fit(earlier, QUESTION, fixed_tokens=0, facts=facts(context_tokens), route=ROUTE)

    kept = fitted.messages[:-1]
    assert kept == tuple(earlier[fitted.dropped :])
    assert not kept or isinstance(kept[0], UserMessage)
    assert sum(map(message_tokens, fitted.messages)) <= context_tokens * 3 // 4 + 1
    if fitted.dropped:
        previous = max(i for i in range(fitted.dropped) if isinstance(earlier[i], UserMessage))
        assert sum(map(message_tokens, (*earlier[previous:], QUESTION))) > context_tokens * 3 // 4


def test_message_larger_than_the_window_is_refused_with_both_sizes() -> None:
    """Issue "Bad input": a prompt of 5 MB ends in one clear sentence."""
    with pytest.raises(LimitReached) as caught:
        fit([], UserMessage("x" * 5_000_000), fixed_tokens=1_000, facts=facts(8_000), route=ROUTE)

    assert caught.value.limit == "prompt"
    assert caught.value.user_text == (
        "Your message is too long for fake/small: about 1,250,008 tokens, and 5,000 fit. "
        "Shorten it, or save it as a file and ask about parts of it."
    )


def test_prompt_that_fills_the_window_leaves_no_room_and_says_so() -> None:
    with pytest.raises(LimitReached, match="room for -1000"):
        fit([], QUESTION, fixed_tokens=7_000, facts=facts(8_000), route=ROUTE)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (UserMessage("x" * 400), 108),
        (UserMessage("ä" * 400), 208),
        (UserMessage("", (Image("image/png", b"1"), Image("image/png", b"2"))), 3_208),
        (AssistantMessage("x" * 40, (make_call(path="y" * 70),)), 38),
        (AssistantMessage("", reasoning=Reasoning("fake", "small", ({"t": "z" * 30},))), 18),
        (ToolMessage("call00001", "look", "x" * 80, True, (Image("image/png", b"1"),)), 1_628),
    ],
)
def test_every_part_of_a_message_is_counted(message: ChatMessage, tokens: int) -> None:
    assert message_tokens(message) == tokens


def test_prompt_is_counted_with_its_tools() -> None:
    schema = ToolSchema("look", "d" * 100, {"type": "object"})

    assert prompt_tokens(("s" * 400,), ()) == 108
    assert prompt_tokens((), (schema,)) == 8 + (100 + len('["look", "", {"type": "object"}]')) // 4
