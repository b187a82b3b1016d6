from __future__ import annotations

import pytest

from fermix.agent.providers.provider import AllRoutesFailed, ErrorKind, NothingListens, ProviderFailed, Route
from fermix.agent.sentences import APOLOGY, LIMITS, OWNER_NEEDED, sentence_for
from fermix.config.secrets import register_secret
from fermix.errors import ConfigError, FermixError, LimitReached, NeedsOperator, Refused
from fermix.trust import Trust


def failed(
    kind: ErrorKind, *, text: str = "", retry_after_s: float | None = None, streamed: bool = False
) -> ProviderFailed:
    return ProviderFailed(
        kind, provider="openai", model="gpt-x", server_text=text, retry_after_s=retry_after_s, streamed=streamed
    )


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_provider_failure_names_the_provider_in_one_clean_sentence(kind: ErrorKind) -> None:
    """Reference 4, 1.4: one mapping from reason to sentence; each says who failed."""
    sentence = sentence_for(failed(kind, text="server\n says   no."))

    assert "openai" in sentence
    assert sentence.endswith(".")
    assert not any(mark in sentence for mark in ("{", "}", "\n", "  ", "..", "None"))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            failed(ErrorKind.RATE_LIMIT, retry_after_s=20.2),
            "openai gets too many requests at the moment. Try again in about 21 s.",
        ),
        (
            failed(ErrorKind.QUOTA, text="You exceeded your quota.", retry_after_s=3_600),
            (
                "The usage limit or credit at openai is used up (“You exceeded your quota”). "
                "Try again in about 60 minutes. Check the account there."
            ),
        ),
        (
            failed(ErrorKind.UNAVAILABLE, text="Overloaded"),
            "openai is not available at the moment (“Overloaded”). The fault is on its side. Try again later.",
        ),
        (
            failed(ErrorKind.AUTH, text="Incorrect API key provided: sk-proj-abc"),
            "openai/gpt-x refused the key. Check the key of openai with `fermix setup`.",
        ),
        (
            failed(ErrorKind.IMAGE_UNSUPPORTED),
            "openai/gpt-x cannot see pictures. Send text only, or choose a model with vision in `fermix setup`.",
        ),
        (
            failed(ErrorKind.TRANSPORT, streamed=True),
            "openai/gpt-x broke off in the middle of its answer. Send your message again.",
        ),
        (
            AllRoutesFailed((failed(ErrorKind.TIMEOUT), failed(ErrorKind.TRANSPORT))),
            (
                "None of the models answered (openai/gpt-x, openai/gpt-x). "
                "The connection to openai failed. Check the network, then try again."
            ),
        ),
        (
            NothingListens("127.0.0.1:11434", Route("ollama", "m")),
            "Nothing listens at 127.0.0.1:11434. Start the server of ollama there, then send your message again.",
        ),
        (
            failed(ErrorKind.EMPTY, text="only thoughts", streamed=True),
            (
                "openai/gpt-x ended its turn without a reply (“only thoughts”). "
                "Send your message again, or put it differently."
            ),
        ),
        (LimitReached("100", limit="steps"), LIMITS["steps"]),
        (LimitReached("?", limit="unheard-of"), APOLOGY),
        (LimitReached("x", limit="prompt", user_text="Too long."), "Too long."),
        (FermixError("inner detail"), APOLOGY),
        (Refused("inner", user_text="Not here."), "Not here."),
        (NeedsOperator("no model", advice="run `fermix setup`"), "no model: run `fermix setup`"),
    ],
    ids=str,
)
def test_reason_becomes_its_sentence(error: FermixError, sentence: str) -> None:
    """Reference 4, 1.4: what failed and what to do next; what servers say beside a refused key is not repeated."""
    assert sentence_for(error) == sentence


def test_known_secret_in_a_servers_words_is_not_repeated() -> None:
    register_secret("hunter2-hunter2-hunter2")

    assert "hunter2" not in sentence_for(failed(ErrorKind.REFUSED_REQUEST, text="bad hunter2-hunter2-hunter2"))


def test_long_words_of_a_server_are_cut() -> None:
    assert len(sentence_for(failed(ErrorKind.REFUSED_REQUEST, text="x" * 10_000))) < 400


@pytest.mark.parametrize(
    "error",
    [NeedsOperator("no model", advice="run it"), ConfigError("wrong", path="/home/owner/.fermix/config.toml")],
    ids=str,
)
def test_guest_reads_nothing_about_the_owners_setup(error: FermixError) -> None:
    """Trust boundaries: paths and advice are the owner's."""
    assert sentence_for(error, Trust.GUEST) == OWNER_NEEDED
