"""One trial: a person writes, the daemon is killed at a given step, started again, and what people saw is judged.

A trial is named by its mode and the steps at which its lives end; the same name plays the same trial again.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

from fermix.gateway.delivery import MARK
from fermix.protocol.client import DaemonClient, DaemonGone
from tests.fakes.platform import Platform
from tests.fakes.provider import Answer, Asked, Call, ScriptedProvider
from tests.flows.product import REPO, compatible

Mode = Literal["idempotent", "lookup", "plain", "parts", "drafts", "local"]
MODES: tuple[Mode, ...] = get_args(Mode)
WAIT_S = 20.0
SLOW_S = 60.0  # a turn that only a stop can end
UNASKED = ("plain", "drafts")  # platforms that cannot say what became of a send
LIMIT = 38  # of a platform that takes short messages only; most answers become two of them
EXCUSED = "I was restarted "


@dataclass(frozen=True, slots=True)
class Said:
    """What the person writes. `answers` are the texts that may come back, "" for none."""

    id: str
    chat: str
    text: str
    answers: tuple[str, ...]
    acts: bool = False
    command: bool = False


LENGTH = ", long enough to be shown in a draft"
SCENE = (
    Said("a1", "a", "hello one", (f"answer to hello one{LENGTH}",)),
    Said("a2", "a", "act two", (f"answer to act two{LENGTH}",), acts=True),
    Said("b1", "b", "look three", (f"answer to look three{LENGTH}",)),
    Said("a3", "a", "hello four", (f"answer to hello four{LENGTH}",)),
    Said("b2", "b", "/whoami", ("You are `cli` on `cli` (operator).",), command=True),
    Said("c1", "c", "slow five", ("",)),
    Said("c2", "c", "/stop", ("Stopped.", "Nothing is running here."), command=True),
    Said("c3", "c", "hello six", (f"answer to hello six{LENGTH}",)),
)


def script(asked: Asked) -> Answer:
    """A model without memory: what it says depends on the last question alone."""
    text = asked.last_user_text
    acted = asked.body["messages"][-1]["role"] == "tool"
    if text.startswith(("act", "look")) and not acted:
        return Answer(calls=(Call(text.split()[0]),))
    return Answer(text=f"answer to {text}{LENGTH}", delay_s=SLOW_S if text.startswith("slow") else 0.0)


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply as the person has it."""

    answers: str
    text: str
    key: str = ""
    id: str = ""


class Lives:
    """The process that forks daemons."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncGenerator[Lives]:
        process = await asyncio.create_subprocess_exec(  # noqa: TID251 - of the test, not of the product
            sys.executable, "-m", "tests.proof.lives",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=REPO,
        )  # fmt: skip
        try:
            yield cls(process)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def start(self, environ: dict[str, str]) -> int:
        """Begin a life; returns its pid."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(environ).encode() + b"\n")
        return await self.number()

    async def number(self) -> int:
        """Return the next thing it says: a pid, or how a life ended."""
        assert self._process.stdout is not None
        return int(await self._process.stdout.readline())


class Trial:
    """One install with its platform, and a person who writes."""

    scene: Sequence[Said] = SCENE

    def __init__(self, lives: Lives, model: ScriptedProvider, root: Path, mode: Mode, twin: str = "") -> None:
        self.root = root
        self.mode: Mode = mode
        self.twin = twin
        self.kills = 0
        self.acked: set[str] = set()
        self.heard: list[Heard] = []
        self._lives = lives
        self._repeats = False
        self._model = model

    @property
    def home(self) -> Path:
        return self.root / "h"

    @property
    def steps(self) -> int:
        """How many steps the last life had, when it ended by itself."""
        return int((self.root / "count").read_text(encoding="utf-8"))

    async def play(self, kill_at: Sequence[int]) -> list[str]:
        """Live once for each step to die at and then to the end; returns the promises that were broken."""
        self.home.mkdir(mode=0o700, parents=True)
        (self.home / "config.toml").write_text(compatible(self._model.base_url), encoding="utf-8")
        self._repeats = sum(kill_at) % 2 == 0
        for step in (*kill_at, 0):
            if await self._live(step) == 0:
                break
            self.kills += 1
        return self.judge()

    def judge(self) -> list[str]:
        """Return the promises that were broken."""
        return problems(self)

    def clean(self) -> None:
        """Remove what the trial left on disk."""
        shutil.rmtree(self.root)

    async def _live(self, kill_at: int) -> int:
        self._model.requests.clear()
        pid = await self._lives.start(self._environ(kill_at))
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            over = group.create_task(self._lives.number())
            try:
                await self._talk(over)
            finally:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if sys.exc_info()[0] is None else signal.SIGKILL)
        if over.result() not in (0, -signal.SIGKILL):
            raise AssertionError(f"the daemon ended with {over.result()}: {(self.root / 'errors').read_text('utf-8')}")
        return over.result()

    async def _talk(self, over: asyncio.Task[int]) -> None:
        """Say all that was not acknowledged, in every other trial the rest again too; wait for the last word."""
        while not over.done():
            try:
                async with DaemonClient.connect(self.home / "daemon.sock", client="proof") as client:
                    await self._say_all(client)
                    break
            except* DaemonGone:
                await asyncio.sleep(0.005)

    async def _say_all(self, client: DaemonClient) -> None:
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(client))
            await client.request("events.subscribe", {"sessions": None, "services": False})
            for said in self.scene:
                if said.id in self.acked and not self._repeats:
                    continue
                if said.id == "c2":
                    await self._only_slow_is_left(client)
                await client.request("message.send", {"id": said.id, "session": said.chat, "text": said.text})
                self.acked.add(said.id)
            while _left(await client.request("status", {})):
                await asyncio.sleep(0.005)
            listening.cancel()

    async def _only_slow_is_left(self, client: DaemonClient) -> None:
        """Wait until nothing runs but the turn that is to be stopped; an earlier life may have ended that too."""
        left = 2
        while left > 1 or (left == 1 and not self._slow_is_asked()):
            await asyncio.sleep(0.005)
            left = _left(await client.request("status", {}))

    def _slow_is_asked(self) -> bool:
        return any(asked.last_user_text.startswith("slow") for asked in self._model.requests)

    async def _listen(self, client: DaemonClient) -> None:
        async for name, params in client.events():
            if name == "reply":
                heard = Heard(str(params["message_id"]), str(params["text"]), str(params["key"]))
                if heard not in self.heard:  # a client that was told twice with one key shows it once
                    self.heard.append(heard)

    def _environ(self, kill_at: int) -> dict[str, str]:
        places = {"FERMIX_HOME": str(self.home), "HOME": str(self.root), "PYTHONPATH": str(REPO)}
        return {
            **places,
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "PROOF_KILL_AT": str(kill_at),
            "PROOF_PLATFORM": "" if self.mode == "local" else str(self.root / "platform"),
            "PROOF_CAN": "lookup" if self.mode == "parts" else self.mode,
            "PROOF_LIMIT": str(LIMIT) if self.mode == "parts" else "0",
            "PROOF_TWIN": self.twin,
            "PROOF_EFFECTS": str(self.root / "effects"),
            "PROOF_COUNT": str(self.root / "count"),
            "PROOF_ERRORS": str(self.root / "errors"),
        }


def _left(status: Mapping[str, object]) -> int:
    return int(str(status["turns_running"])) + int(str(status["turns_waiting"]))


def problems(trial: Trial) -> list[str]:
    """Judge a trial by the platform's own log, the database and what the tools left behind."""
    with closing(sqlite3.connect(trial.home / "memory.db")) as connection:
        inbox = connection.execute("SELECT message_id, outcome FROM inbox ORDER BY id").fetchall()
        outbox = connection.execute(
            "SELECT message_id, platform_id, key, state FROM outbox JOIN inbox ON inbox.id = entry_id"
            " ORDER BY outbox.id"
        ).fetchall()
        stored = connection.execute(
            "SELECT chat_id, role, content FROM messages WHERE kind = 'chat_message' ORDER BY id"
        ).fetchall()
    outcomes = dict(inbox)
    found = [f"accepted {len(inbox)} times, not {len(SCENE)}"] if len(inbox) != len(SCENE) else []
    found += [f"{id} was acknowledged and lost" for id in trial.acked - outcomes.keys()]
    found += [f"{id} has no last word" for id, outcome in inbox if outcome is None]
    undelivered = {id for id, _, _, state in outbox if state == "failed"}
    delivered = {id: outcome for id, outcome in inbox if id not in undelivered}
    known = {name for _, platform_id, key, _ in outbox for name in (platform_id, key)}
    heard = trial.heard if trial.mode == "local" else _shown(trial)
    for said in SCENE:
        mine = [one for one in heard if one.answers == said.id]
        if trial.mode == "drafts":
            unknown = [one for one in mine if known.isdisjoint((one.id, one.key))]
            mine = [one for one in mine if one not in unknown]
            if unknown and not any(one.text.startswith((MARK, EXCUSED)) for one in (*mine, *unknown)):
                found.append(f"{said.id} has left something in the chat that nobody was told of: {unknown}")
        texts = [one.text for one in mine]
        if trial.mode == "parts" and texts:
            texts = [" ".join(" ".join(texts).split())]
        found += _replies(said, trial, texts, outcomes.get(said.id) or "lost")
    if trial.mode != "local":
        found += _order(heard)
        found += [f"{id} was not delivered: {state}" for id, _, _, state in outbox if state != "sent" and _sure(trial)]
    return found + _history(stored, delivered) + _effects(trial, outcomes)


def _sure(trial: Trial) -> bool:
    """Whether no reply may be given up: only a platform that cannot be asked, and that was killed twice, allows it."""
    return trial.mode not in UNASKED or trial.kills < 2


def _shown(trial: Trial) -> list[Heard]:
    platform = Platform(path=trial.root / "platform")
    return [Heard(one.answers, one.text, one.key, one.id) for one in platform.shown()]


def _replies(said: Said, trial: Trial, texts: Sequence[str], outcome: str) -> list[str]:
    """Every accepted message is answered or honestly excused exactly once; twice only with the mark."""
    plain = [text for text in texts if not text.startswith(MARK)]
    marked = [text.removeprefix(MARK) for text in texts if text.startswith(MARK)]
    found: list[str] = []
    # An answer is marked from the start when a draft of it may stand; a kill on the wire then sends it once more.
    most_marked = 2 if trial.mode == "drafts" and trial.kills > 1 else 1
    if len(plain) > 1 or len(marked) > most_marked:
        found.append(f"{said.id} was answered {len(texts)} times: {texts}")
    if marked and (trial.mode not in UNASKED or not trial.kills):
        found.append(f"{said.id} was marked for no reason: {texts}")
    if len({*plain, *marked}) > 1:
        found.append(f"{said.id} got two different answers: {texts}")
    allowed = {"stopped": ("",), "excused": (EXCUSED,)}.get(outcome, said.answers)
    if outcome == "excused" and not (said.acts or said.command or trial.kills > 1):
        found.append(f"{said.id} was excused for no reason")
    if outcome == "stopped" and said.answers != ("",):
        found.append(f"{said.id} was stopped by nobody")
    for text in {*plain, *marked}:
        if not any(text == good or (good == EXCUSED and text.startswith(good)) for good in allowed):
            found.append(f"{said.id} is {outcome} and was answered {text!r}")
    if not texts and "" not in allowed and _sure(trial) and not (trial.mode == "local" and trial.kills):
        found.append(f"{said.id} is {outcome} and heard nothing")
    return found


def _order(heard: Sequence[Heard]) -> list[str]:
    """Answers of one conversation come in the order of its messages; a command waits for nobody."""
    turns = {said.id: (said.chat, number) for number, said in enumerate(SCENE) if not said.command}
    came: dict[str, list[int]] = {}
    for one in heard:
        if one.answers in turns:
            chat, number = turns[one.answers]
            came.setdefault(chat, []).append(number)
    return [f"chat {chat} out of order: {numbers}" for chat, numbers in came.items() if numbers != sorted(numbers)]


def _history(stored: Sequence[tuple[str, str, str]], outcomes: dict[str, str]) -> list[str]:
    """Each question once, each answer that was given once behind it, in order."""
    found: list[str] = []
    for chat in dict.fromkeys(said.chat for said in SCENE):
        asked = [text for where, role, text in stored if where == chat and role == "user"]
        wanted = [said.text for said in SCENE if said.chat == chat and not said.command]
        if sorted(asked, key=wanted.index) != asked or len(set(asked)) != len(asked):
            found.append(f"questions of chat {chat} as stored: {asked}")
        lines = [text for where, role, text in stored if where == chat and role in ("user", "assistant") and text]
        for said in SCENE:
            if said.chat == chat and not said.command and outcomes.get(said.id) == "answered":
                at = lines.index(said.text) if said.text in lines else -1
                if at < 0 or lines[at + 1 : at + 2] != list(said.answers) or lines.count(said.answers[0]) != 1:
                    found.append(f"{said.id} is not in the history as it was answered: {lines}")
    return found


def _effects(trial: Trial, outcomes: dict[str, str]) -> list[str]:
    """What a tool did it did once, and surely when the turn was answered."""
    path = trial.root / "effects"
    done = path.read_text(encoding="utf-8").split() if path.exists() else []
    found = [f"{id} acted {done.count(id)} times" for id in set(done) if done.count(id) > 1]
    return found + [
        f"{said.id} was answered and did nothing"
        for said in SCENE
        if said.acts and outcomes.get(said.id) == "answered" and said.id not in done
    ]


async def _again(mode: Mode, steps: Sequence[int]) -> None:
    with TemporaryDirectory() as folder:
        async with Lives.open() as lives, ScriptedProvider(script) as model:
            trial = Trial(lives, model, Path(folder) / "trial", mode)
            print(*(await trial.play(steps) or ["no promise was broken"]), sep="\n")
            print((trial.root / "h" / "logs" / "fermix.log").read_text(encoding="utf-8"))


if __name__ == "__main__":
    (named,) = [mode for mode in MODES if mode == sys.argv[1]]
    asyncio.run(_again(named, [int(step) for step in sys.argv[2:]]))
