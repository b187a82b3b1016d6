"""The messages of one turn's requests, kept within the model's window while results pile up.

Called by the loop. Results of earlier steps are replaced, the oldest first, by their beginnings and ends, when the next
request would grow too large and when a provider has refused one. No model is asked for that: a digest is made of
the result's own words, so it costs nothing, cannot fail, and is the same each time. What must stay true: no message
comes or goes, only texts of results get shorter; words from outside stay in their frame; the whole text is kept for
`tool_result_recall` until the turn ends.

What goes into the history at the end is what the model saw last, digests included. The history is read back in whole
turns, and a turn that does not fit the window is left out whole: with the originals, the longest turns would be
the ones that the next message knows nothing of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fermix.agent.capability import Capability
from fermix.agent.model import AssistantMessage, ChatMessage, ChatRequest, Completion, ToolMessage
from fermix.agent.providers.provider import ModelFacts
from fermix.agent.results import RECALL, bounded, framed, is_framed, unframed
from fermix.agent.tokens import message_tokens, prompt_tokens, text_bytes
from fermix.agent.turn import RequestSize
from fermix.agent.window import request_tokens

BUDGET_SHARE = 0.85  # of what a request may hold; an estimate of four bytes a token is that far off for code
DIGEST_CHARS = 800
LEFT_OUT = "(left out)"
WHOLE_STEPS = 2  # before the one being answered; a model works with what it has just read
RECOVERY_ROUNDS = 3
MOST_ORIGINALS_BYTES = 67_108_864  # of one turn; what comes after that is shortened all the same


class Transcript:
    """Grows by what the model says and what tools give back. `originals` takes the texts that digests replace."""

    def __init__(self, opening: ChatRequest, tools: Mapping[str, Capability], originals: dict[str, str]) -> None:
        self._opening = opening
        self._recalls = RECALL in tools
        self._originals = originals
        self._originals_bytes = 0
        self._messages = list(opening.messages)
        self._shortened: set[str] = set()
        self._asked_tokens = 0  # by the provider's count of the last request
        self._used_tokens = 0  # by the provider's count of the last request and its answer, less what was saved
        self._counted = 0  # how many messages are in that count
        self._rounds = 0  # after refusals since the last answer

    @property
    def request(self) -> ChatRequest:
        return replace(self._opening, messages=tuple(self._messages))

    @property
    def new(self) -> tuple[ChatMessage, ...]:
        """What the turn has added."""
        return tuple(self._messages[len(self._opening.messages) :])

    def add(self, message: ChatMessage) -> None:
        self._messages.append(message)

    def answered(self, completion: Completion) -> None:
        """Note what the provider counted; called before the answer itself is added."""
        usage = completion.usage
        self._asked_tokens = usage.input_tokens
        self._used_tokens = usage.input_tokens + usage.output_tokens if usage.input_tokens else 0
        self._counted = len(self._messages) + 1
        self._rounds = 0

    @property
    def size(self) -> RequestSize:
        """How large the last request was."""
        measured = self._asked_tokens > 0
        return RequestSize(self._asked_tokens if measured else self._estimate(), measured)

    @property
    def has_earlier(self) -> bool:
        """Whether anything stands before the turn's own message."""
        return len(self._opening.messages) > 1

    def exchange_earlier(self, earlier: Sequence[ChatMessage]) -> None:
        """Take a shorter history in place of the one that the turn began with."""
        question = self._opening.messages[-1]
        new = self.new
        self._opening = replace(self._opening, messages=(*earlier, question))
        self._messages = [*self._opening.messages, *new]
        self._used_tokens = self._rounds = 0

    def make_room(self, facts: ModelFacts) -> None:
        """Shorten results of older steps, the oldest first, until the next request fits by estimate; when all are
        shortened and it does not, leave only the notices.
        """
        over = self._estimate() - int(BUDGET_SHARE * request_tokens(facts))
        for shorten in (self._shorten, self._empty):
            for place in self._places(1):
                if over <= 0:
                    return
                over -= shorten(place)

    def make_more_room(self) -> bool:
        """Shorten more after a refusal, a round at a time: older steps, those just before, the one being answered.

        False when there is nothing left that would get shorter.
        """
        while self._rounds < RECOVERY_ROUNDS:
            self._rounds += 1
            if sum(map(self._shorten, self._places(self._rounds))):
                return True
        return False

    def _estimate(self) -> int:
        if not self._used_tokens:  # some servers do not count
            fixed = prompt_tokens(self._opening.system, self._opening.tools)
            return fixed + sum(map(message_tokens, self._messages))
        return self._used_tokens + sum(map(message_tokens, self._messages[self._counted :]))

    def _places(self, stage: int) -> list[int]:
        """Return where the results of a stage stand, the oldest first."""
        steps = _steps(self._messages)
        ends = (0, max(0, len(steps) - WHOLE_STEPS - 1), max(0, len(steps) - 1), len(steps))
        return [place for step in steps[ends[stage - 1] : ends[stage]] for place in step]

    def _shorten(self, place: int) -> int:
        """Replace a result by its digest; return about how many tokens that saves."""
        whole = self._messages[place]
        if not isinstance(whole, ToolMessage) or whole.call_id in self._shortened or _is_small(whole):
            return 0
        kept = self._recalls and self._originals_bytes + text_bytes(whole.text) <= MOST_ORIGINALS_BYTES
        self._shortened.add(whole.call_id)
        if kept:
            self._originals[whole.call_id] = whole.text
            self._originals_bytes += text_bytes(whole.text)
        return self._replace(place, digest(whole, recalls=kept))

    def _empty(self, place: int) -> int:
        """Leave only the notice of a digest, with an empty frame where there was one: later turns go by it."""
        short = self._messages[place]
        if not isinstance(short, ToolMessage) or short.call_id not in self._shortened:
            return 0
        notice, _, ends = short.text.partition("\n")
        foreign = unframed(ends)
        text = notice if foreign is None else f"{notice}\n{framed(LEFT_OUT, foreign[0])}"
        return self._replace(place, replace(short, text=text))

    def _replace(self, place: int, short: ToolMessage) -> int:
        saved = message_tokens(self._messages[place]) - message_tokens(short)
        if saved <= 0:
            return 0
        self._messages[place] = short
        self._used_tokens -= min(saved, self._used_tokens)
        return saved


def digest(result: ToolMessage, *, recalls: bool) -> ToolMessage:
    """Return a result with only the beginning and the end of its text, and no pictures; a frame is kept whole."""
    source, text = unframed(result.text) or (result.name if is_framed(result.text) else "", result.text)
    ends = bounded(text, DIGEST_CHARS)
    again = f'read it with {RECALL}, call_id "{result.call_id}"' if recalls else "call the tool again if you need it"
    pictures = f" and {len(result.images)} pictures" if result.images else ""
    notice = f"[Fermix: a result of {result.name} with {len(text)} characters{pictures}, shortened; {again}]"
    return replace(result, text=f"{notice}\n{framed(ends, source) if source else ends}", images=())


def _is_small(result: ToolMessage) -> bool:
    """Tell whether a digest might not be shorter; one that an earlier turn made is small too."""
    return len(result.text) <= 2 * DIGEST_CHARS and not result.images


def _steps(messages: Iterable[ChatMessage]) -> list[list[int]]:
    """Return the places of the results, by the message that called for them."""
    steps: list[list[int]] = []
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            steps.append([])
        elif isinstance(message, ToolMessage) and steps:
            steps[-1].append(place)
    return steps
