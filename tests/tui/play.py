"""Run the terminal UI in this terminal against a fake daemon that answers everything by streaming.

    python -m tests.tui.play [HOME] [WORDS]

Used by the tests under a real terminal, by the bench, and by hand.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fermix.home import Home
from fermix.tui.app import run_tui
from tests.fakes.daemon import FakeConnection, FakeDaemon

WORDS_A_SECOND = 500
PARAGRAPH = "Streaming **Markdown** with `code`, 你好 and a [link](http://localhost) in every paragraph. "
LISTING = "\n\n```python\ndef answer(question: str) -> int:\n    return 42\n```\n\n"


class Talker(FakeDaemon):
    """Streams `words` words for every message."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self._words = words
        self._asks: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[FakeConnection]:
        async with super().connect() as connection, asyncio.TaskGroup() as group:
            talking = group.create_task(self._talk())
            yield connection
            talking.cancel()

    async def take(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        if method == "message.send":
            self._asks.put_nowait(params)
        return await super().take(method, params)

    async def _talk(self) -> None:
        while True:
            ask = await self._asks.get()
            where = {"session": ask["session"], "message_id": ask["id"]}
            self.emit("message.accepted", session=ask["session"], id=ask["id"], text=ask["text"], at="")
            self.emit("queue.changed", session=ask["session"], running=ask["id"], waiting=[])
            self.emit("turn.started", **where, turn_id="t")
            text = await self._stream(where)
            self.emit("reply", **where, text=text, model="fake/streamer")
            self.emit(
                "turn.ended", **where, outcome="completed", error="", duration_s=1.0, input_tokens=9, output_tokens=9
            )

    async def _stream(self, where: Mapping[str, object]) -> str:
        words = ((PARAGRAPH * 4 + LISTING) * (self._words // 40 + 1)).split(" ")[: self._words]
        for word in words:
            self.emit("turn.delta", **where, kind="text", text=f"{word} ")
            await asyncio.sleep(1 / WORDS_A_SECOND)
        return "".join(f"{word} " for word in words)


def main() -> int:
    home = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    words = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    return run_tui(Home(home), connect=Talker(words).connect)


if __name__ == "__main__":
    sys.exit(main())
