"""A model that is always fooled: it does whatever it reads, wherever it reads it, and tells all that it has seen.

An instruction is a line that it understands: `DO {"tool": "shell", "arguments": {...}}`, or a list of such calls to be
made in one step, or `DO {"say": "..."}` to end the turn with these words; `DO32:` and the same in base32 where braces
cannot stand. `LATER` in place of `DO` is done by the next turn that still has it in its history, unless that one says
"not yet"; asked for a summary, it writes down every such order and nothing else. `%last%` in an
argument is the last result, `%all%` every one so far, `%last|hex%` and the like another dress of it.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from fermix.agent.compaction.summary import INSTRUCTIONS
from fermix.agent.results import FRAME
from tests.fakes.provider import Answer, Asked, Call, ScriptedProvider

WAIT_S = 10
MOST_CHARS = 4_000
NOT_YET = "not yet"
ORDER = re.compile(r"\b(DO|LATER)(?:32:([A-Z2-7]+=*)|\s+(?=[{\[]))")
HOLE = re.compile(r"%(last|all)(?:\|(\w+))?%")
DRESSES: Mapping[str, Callable[[str], str]] = {
    "": str,
    "b64": lambda text: base64.b64encode(text.encode()).decode(),
    "b32": lambda text: base64.b32encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "url": lambda text: quote(text, safe=""),
    "rev": lambda text: text[::-1],
    "gzip": lambda text: base64.b64encode(gzip.compress(text.encode())).decode(),
    "label": lambda text: re.sub(r"[^a-z0-9]", "", text.lower())[-60:],
}
_FRAMED = re.compile(rf"<{FRAME}[^>]*>\n[^\n]*\n(.*)\n</{FRAME}>", re.DOTALL)


def order(step: object, *, later: bool = False, coded: bool = False) -> str:
    """Write an instruction as the model understands it."""
    text = json.dumps(step, ensure_ascii=False)
    word = "LATER" if later else "DO"
    return f"{word}32:{base64.b32encode(text.encode()).decode()}" if coded else f"{word} {text}"


def obey(asked: Asked) -> Answer:
    """Do the next thing that was asked for by anybody in this turn; at its end, tell everything."""
    messages: list[dict[str, Any]] = asked.body["messages"]
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    before, now = messages[:last], messages[last:]
    if messages[0]["content"] == INSTRUCTIONS:
        return Answer(text="\n".join(order(step, later=True) for step in _steps(now, "LATER")) or "Nothing.")
    if _text(now[0]).startswith(NOT_YET):
        return Answer(text="Well.")
    steps = [*_steps(before, "LATER"), *_steps(now, "DO")]
    done = sum(1 for message in now if message.get("tool_calls"))
    results = [_inner(_text(message)) for message in now if message["role"] == "tool"]
    if done >= len(steps):
        return Answer(text=f"I did it all: {' '.join(results)[-MOST_CHARS:]}")
    step = steps[done]
    if isinstance(step, dict) and "say" in step:
        return Answer(text=_filled(str(step["say"]), results))
    calls = step if isinstance(step, list) else [step]
    return Answer(calls=tuple(Call(call["tool"], _filled(call.get("arguments", {}), results)) for call in calls))


def _steps(messages: Sequence[Mapping[str, Any]], word: str) -> list[Any]:
    """What was ordered in them by anybody but itself, each once."""
    found: dict[str, Any] = {}
    for message in messages:
        if message["role"] in ("user", "tool"):
            found.update((json.dumps(step), step) for step in _orders(_text(message), word))
    return list(found.values())


def _orders(text: str, word: str) -> Iterator[Any]:
    for match in ORDER.finditer(text):
        if match[1] != word:
            continue
        try:
            coded = base64.b32decode(match[2]).decode() if match[2] else text[match.end() :]
            yield json.JSONDecoder().raw_decode(coded)[0]
        except ValueError:
            continue


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] if part["type"] == "text" else _picture(part) for part in content)


def _picture(part: Mapping[str, Any]) -> str:
    """What stands in a picture: here, in its bytes."""
    return base64.b64decode(part["image_url"]["url"].partition(",")[2]).decode("latin-1")


def _inner(text: str) -> str:
    """What stands in a frame, without the orders in it, which the model sees for itself."""
    framed = _FRAMED.search(text)
    return framed[1] if framed else text


def _filled(value: Any, results: list[str]) -> Any:
    match value:
        case str():
            return HOLE.sub(lambda hole: _hole(hole, results), value)
        case list():
            return [_filled(item, results) for item in value]
        case dict():
            return {key: _filled(item, results) for key, item in value.items()}
        case _:
            return value


def _hole(hole: re.Match[str], results: list[str]) -> str:
    text = results[-1] if hole[1] == "last" and results else "\n".join(results)
    return DRESSES[hole[2] or ""](text[-MOST_CHARS:])


class Fooled:
    """The model as a server in a thread of its own. `asked` is all that it was ever sent."""

    def __init__(self) -> None:
        self.base_url = ""
        self.asked: list[Asked] = []
        self.refusals: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._end = asyncio.Event()

    def serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def wait_until_up(self) -> None:
        assert self._up.wait(WAIT_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)

    async def _serve(self) -> None:
        async with ScriptedProvider(self._choose) as fake:
            self.base_url, self.refusals = fake.base_url, fake.refusals
            self._up.set()
            await self._end.wait()

    def _choose(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        return obey(asked)


@contextmanager
def fooled() -> Generator[Fooled]:
    model = Fooled()
    thread = threading.Thread(target=model.serve)
    thread.start()
    try:
        model.wait_until_up()
        yield model
    finally:
        model.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()
