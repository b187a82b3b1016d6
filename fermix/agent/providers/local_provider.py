"""The provider of the embedded model: an ordinary one, wrapped in what a model this small needs.

Measured with the real model: it fills in every optional argument it is shown with nonsense, calls tools for "hi"
until it has seen how it is done, forgets that behind a long history, repeats the marker of a turn that failed, and
writes some calls as bare JSON. So it is shown required arguments only, a short example conversation and the last turns
that were answered, and a text that is nothing but a call of an offered tool becomes that call. What must stay
true: nothing of this is stored in the history, and text of others cannot open a turn of its own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain, pairwise

from fermix.agent.markers import UNANSWERED
from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Completion,
    Delta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from fermix.agent.providers.calls import new_call_id
from fermix.agent.providers.catalog import local_provider
from fermix.agent.providers.embedded import EmbeddedModel
from fermix.agent.providers.fields import a_list, a_text, an_object, load_json
from fermix.agent.providers.provider import ModelFacts, OnDelta, Provider, Route
from fermix.net import Net

RECENT_TURNS = 3  # of 17 questions in one conversation 17 went well with three turns in view, 12 with all

_CONTROL = re.compile(r"<\|(?=\w+\|>)")  # <|im_end|> in a file would end the turn: llama.cpp reads it as control


def _example(number: int, question: str, tool: str, argument: str, result: str, answer: str) -> tuple[ChatMessage, ...]:
    name = {"shell": "command", "glob_search": "pattern", "file_read": "path"}[tool]
    call = ToolCall(f"example{number:02}", tool, {name: argument})
    return (
        UserMessage(question),
        AssistantMessage("", (call,)),
        ToolMessage(call.id, tool, result, ok=True),
        AssistantMessage(answer),
    )


# The order counts: what stands last is imitated most, and those are the questions people begin with.
EXAMPLES: tuple[ChatMessage, ...] = (
    *(UserMessage("hello"), AssistantMessage("Hello! How can I help?")),
    *_example(1, "read list.txt", "file_read", "list.txt", "eggs\nbread", "Eggs and bread."),
    *(UserMessage("what is 3*4?"), AssistantMessage("12.")),
    *_example(2, "how much memory is free?", "shell", "free -h", "Mem: 16Gi total, 9Gi free", "9 GiB of 16."),
    *_example(
        3, "what is in this folder?", "glob_search", "*", "plan.md\nphotos/", "plan.md and a folder named photos."
    ),
    *_example(4, "what does plan.md say?", "file_read", "plan.md", "Paint the fence.", "It says: Paint the fence."),
)
EXAMPLE_TOOLS = frozenset({"file_read", "glob_search", "shell"})


class LocalProvider:
    """Speaks to the engine and keeps it loaded for the length of each call."""

    def __init__(self, model: EmbeddedModel, inner: Provider) -> None:
        self._model = model
        self._inner = inner

    @classmethod
    def of(cls, model: EmbeddedModel, net: Net) -> LocalProvider:
        """Make the provider that the router takes as its embedded default."""
        return cls(model, local_provider(model.endpoint, net))

    @property
    def route(self) -> Route:
        return self._inner.route

    @property
    def facts(self) -> ModelFacts:
        return self._inner.facts

    async def complete(self, request: ChatRequest, on_delta: OnDelta) -> Completion:
        """Raises: ProviderFailed; NeedsOperator or Unavailable when the engine cannot be had."""
        held = _Held(on_delta)
        with self._model.in_use():
            completion = await self._inner.complete(for_small_model(request), held.take)
        call = written_call(completion, request.tools)
        if call is None:
            held.release()
            return completion
        on_delta(ToolCallDelta(call.name))
        return replace(completion, text="", tool_calls=(call,), finish="tool_calls")


def for_small_model(request: ChatRequest) -> ChatRequest:
    """Show required arguments only, the examples and the last answered turns; take control words out of all text."""
    offered = {tool.name for tool in request.tools}
    examples = EXAMPLES if offered >= EXAMPLE_TOOLS else ()
    return replace(
        request,
        system=tuple(_harmless(part) for part in request.system),
        messages=(*examples, *(_without_control(message) for message in _recent(request.messages))),
        tools=tuple(_required_only(tool) for tool in request.tools),
    )


def written_call(completion: Completion, tools: tuple[ToolSchema, ...]) -> ToolCall | None:
    """Read a text that is a call, e.g. {"name": "shell", "arguments": {"command": "date"}}; None for any other."""
    if completion.tool_calls or not completion.text.lstrip().startswith("{"):
        return None
    try:
        written = an_object(load_json(completion.text))
    except ValueError:
        return None
    name, arguments = a_text(written.get("name")), written.get("arguments")
    if not isinstance(arguments, dict) or name not in {tool.name for tool in tools}:
        return None
    return ToolCall(new_call_id(), name, arguments)


class _Held:
    """Keeps back an answer that begins like JSON until it is known what it is; lets all else through."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._kept: list[Delta] = []
        self._begun = False

    def take(self, delta: Delta) -> None:
        if self._begun or not isinstance(delta, TextDelta):
            self._on_delta(delta)
            return
        self._kept.append(delta)
        text = "".join(part.text for part in self._kept if isinstance(part, TextDelta)).lstrip()
        if text and not text.startswith("{"):
            self.release()

    def release(self) -> None:
        self._begun = True
        for delta in self._kept:
            self._on_delta(delta)
        self._kept.clear()


def _recent(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """Return the last turns, this one included, without those that ended in a marker: it would be said again."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    turns = [messages[start:end] for start, end in pairwise((*starts, len(messages)))]
    answered = [turn for turn in turns if not (isinstance(turn[-1], AssistantMessage) and turn[-1].text in UNANSWERED)]
    return tuple(chain.from_iterable(answered[-RECENT_TURNS:]))


def _required_only(tool: ToolSchema) -> ToolSchema:
    required = {a_text(name) for name in a_list(tool.parameters.get("required"))}
    shown = {name: kind for name, kind in an_object(tool.parameters.get("properties")).items() if name in required}
    return replace(tool, parameters={**tool.parameters, "properties": shown})


def _without_control(message: ChatMessage) -> ChatMessage:
    return replace(message, text=_harmless(message.text))


def _harmless(text: str) -> str:
    return _CONTROL.sub("< |", text)
