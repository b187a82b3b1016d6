"""The scripted provider in a thread of its own, for tests that drive the product from outside: each test says what
the model answers next."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from tests.fakes.provider import Answer, Asked, ScriptedProvider, failure

WAIT_S = 10


class Stage:
    """`play` sets the answers; the last one is repeated. `asked` are the requests since then."""

    def __init__(self) -> None:
        self.base_url = ""
        self.asked: list[Asked] = []
        self._answers: deque[Answer] = deque()
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._end = asyncio.Event()

    def play(self, *answers: Answer) -> None:
        self.asked = []
        self._answers = deque(answers)

    def serve(self) -> None:
        """The thread's whole life."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def wait_until_up(self) -> None:
        assert self._up.wait(WAIT_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)

    async def _serve(self) -> None:
        async with ScriptedProvider(self._choose) as fake:
            self.base_url = fake.base_url
            self._up.set()
            await self._end.wait()

    def _choose(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if not self._answers:
            return failure(500, "nothing is played")
        return self._answers.popleft() if len(self._answers) > 1 else self._answers[0]


@contextmanager
def staged() -> Generator[Stage]:
    stage = Stage()
    thread = threading.Thread(target=stage.serve)
    thread.start()
    try:
        stage.wait_until_up()
        yield stage
    finally:
        stage.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()
