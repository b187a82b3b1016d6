"""What a sender reads when a turn fails: one sentence per reason, naming who failed and what to do next.

Called by the runner. Source of the table: reference 4, section 1.4. A provider's own words are quoted only where
they help and never beside a refused key, which servers like to repeat.
"""

from __future__ import annotations

import math

from fermix.agent.budget import BudgetReached
from fermix.agent.providers.provider import AllRoutesFailed, ErrorKind, NothingListens, ProviderFailed
from fermix.config.secrets import redact
from fermix.errors import ConfigError, FermixError, LimitReached, NeedsOperator
from fermix.trust import Trust

APOLOGY = "Sorry, something went wrong on my side. The log says what; please try again."
OWNER_NEEDED = "I cannot answer until my owner has looked at my setup."
QUOTE_CHARS = 300

LIMITS = {
    "steps": "I stopped after 100 steps without an answer. Ask for a smaller part of it.",
    "repetition": "I stopped because I kept making the same tool call. Say it differently or in smaller steps.",
    "tool_output": "I read more than fits into the model's window, even shortened. Ask for a smaller part of it.",
    "step_seconds": "The model took too long for one step, so I stopped. Try again, or ask for something smaller.",
    "turn_seconds": "This took longer than one turn may, so I stopped. Ask for a smaller part of it.",
}

KINDS = {
    ErrorKind.AUTH: "{route} refused the key. Check the key of {provider} with `fermix setup`.",
    ErrorKind.QUOTA: "The usage limit or credit at {provider} is used up{quote}. {again} Check the account there.",
    ErrorKind.RATE_LIMIT: "{provider} gets too many requests at the moment{quote}. {again}",
    ErrorKind.TIMEOUT: "{route} did not answer in time. Try again, or ask for something smaller.",
    ErrorKind.UNAVAILABLE: "{provider} is not available at the moment{quote}. The fault is on its side. {again}",
    ErrorKind.CONTEXT_LENGTH: (
        "This conversation no longer fits into the window of {route}. Send /new to begin afresh, then send it again."
    ),
    ErrorKind.MODEL_NOT_FOUND: "{provider} has no model named {model}. Choose another one with `fermix setup`.",
    ErrorKind.IMAGE_UNSUPPORTED: (
        "{route} cannot see pictures. Send text only, or choose a model with vision in `fermix setup`."
    ),
    ErrorKind.REFUSED_REQUEST: "{route} refused the request{quote}.",
    ErrorKind.MALFORMED: (
        "What came from {route} is not an answer of a model{quote}. Check the address of {provider} in the settings."
    ),
    ErrorKind.EMPTY: "{route} ended its turn without a reply{quote}. Send your message again, or put it differently.",
    ErrorKind.TRANSPORT: "The connection to {provider} failed. Check the network, then try again.",
}
NOT_STARTED = "Nothing listens at {address}. Start the server of {provider} there, then send your message again."
BROKEN_OFF = "{route} broke off in the middle of its answer. Send your message again."
BREAKS = frozenset({ErrorKind.TRANSPORT, ErrorKind.TIMEOUT, ErrorKind.UNAVAILABLE, ErrorKind.MALFORMED})


def sentence_for(error: FermixError, trust: Trust = Trust.OPERATOR) -> str:
    """Return the sentence for a failure; a guest is told nothing about the owner's setup."""
    if isinstance(error, ProviderFailed):
        return _provider_sentence(error)
    if isinstance(error, AllRoutesFailed):
        tried = ", ".join(f"{failure.provider}/{failure.model}" for failure in error.failures)
        return f"None of the models answered ({tried}). {_provider_sentence(error.failures[-1])}"
    if isinstance(error, NeedsOperator | ConfigError) and trust is not Trust.OPERATOR:
        return OWNER_NEEDED
    if isinstance(error, BudgetReached) and trust is not Trust.OPERATOR:
        return error.guest_text
    if error.user_text is not None:
        return error.user_text
    if isinstance(error, LimitReached):
        return LIMITS.get(error.limit, APOLOGY)
    return APOLOGY


def _provider_sentence(error: ProviderFailed) -> str:
    if isinstance(error, NothingListens):
        return NOT_STARTED.format(address=error.address, provider=error.provider)
    pattern = BROKEN_OFF if error.streamed and error.kind in BREAKS else KINDS[error.kind]
    words = redact(" ".join(error.server_text.split()))[:QUOTE_CHARS].rstrip(".")
    return pattern.format(
        provider=error.provider,
        model=error.model,
        route=f"{error.provider}/{error.model}",
        quote=f" (“{words}”)" if words else "",
        again=_again(error.retry_after_s),
    ).strip()


def _again(retry_after_s: float | None) -> str:
    if retry_after_s is None:
        return "Try again later."
    if retry_after_s < 90:
        return f"Try again in about {math.ceil(retry_after_s)} s."
    return f"Try again in about {math.ceil(retry_after_s / 60)} minutes."
