"""An answer while it arrives. The wire readers fill it in, `remote.py` makes the completion of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fermix.agent.model import (
    Completion,
    Delta,
    FinishReason,
    JsonObject,
    Reasoning,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolSchema,
    Usage,
    valid_text,
)
from fermix.agent.providers.calls import CallDraft, CallDrafts, finished_call
from fermix.agent.providers.failures import BadAnswer
from fermix.agent.providers.provider import ErrorKind, Route

MOST_CHARS = 600_000  # more than any model writes at once; whatever they are, they fit into a line of our socket
NO_ROOM = "the output limit was reached before any visible answer"
NOTHING = "the model ended its answer without a word"


class AnswerDraft:
    """What has arrived so far. `finish` is None until the server said why it stopped; `ended` until it said it did.

    `reasoning` are the server's raw items, to be given back later.
    """

    def __init__(self) -> None:
        self.calls = CallDrafts()
        self.reasoning: list[JsonObject] = []
        self.usage = Usage()
        self.finish: FinishReason | None = None
        self.ended = False
        self._text: list[str] = []
        self._room_chars = MOST_CHARS

    @property
    def complete(self) -> bool:
        return self.ended or self.finish is not None

    @property
    def has_text(self) -> bool:
        return bool(self._text)

    def say(self, text: str) -> list[Delta]:
        kept = self._fitting(text)
        if not kept:
            return []
        self._text.append(kept)
        return [TextDelta(kept)]

    def think(self, text: str) -> list[Delta]:
        kept = self._fitting(text)
        return [ReasoningDelta(kept)] if kept else []

    def name_call(self, draft: CallDraft, piece: str) -> list[Delta]:
        """Give a call its name, or more of it; the first piece is news for whoever watches."""
        first = bool(piece) and not draft.name
        draft.add_name(piece)
        return [ToolCallDelta(draft.name)] if first else []

    def restart(self) -> None:
        """Forget the parts: a server spliced a second message into the stream, and only that one is whole."""
        self.calls.clear()
        self.reasoning.clear()
        self._text.clear()
        self.finish = None

    def completion(self, route: Route, tools: Sequence[ToolSchema]) -> Completion:
        """Return the answer; only a refusal may be without a word. Raises: BadAnswer when it is empty."""
        text = valid_text("".join(self._text))  # some servers cut between the halves of a surrogate pair
        cut = self.finish == "length"
        calls = tuple(finished_call(draft, tools, cut=cut) for draft in self.calls)
        if not calls and not text.strip() and self.finish != "refusal":
            raise BadAnswer(ErrorKind.EMPTY, NO_ROOM if cut else NOTHING, usage=self.usage)
        reasoning = Reasoning(route.provider, route.model, tuple(self.reasoning)) if self.reasoning else None
        return Completion(text, calls, self.usage, self._reason(), route.provider, route.model, reasoning)

    def _fitting(self, text: str) -> str:
        """Return what there is room for; an answer that goes on for ever ends here, as if at the model's own limit."""
        kept = text[: self._room_chars]
        self._room_chars -= len(kept)
        if len(kept) < len(text):
            self.finish, self.ended = "length", True
        return kept

    def _reason(self) -> FinishReason:
        if self.finish in ("length", "refusal"):
            return self.finish
        return "tool_calls" if len(self.calls) else "stop"


class Reader(Protocol):
    """Takes the events of one answer in order. A buffered answer is one event."""

    @property
    def draft(self) -> AnswerDraft: ...

    def read(self, event: JsonObject) -> list[Delta]:
        """Take one event; return what is news. Raises: BadAnswer."""
        ...
