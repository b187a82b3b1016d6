"""Trials of a person who sends albums: one is left to its wait, one has a text close behind it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from fermix.gateway.delivery import MARK
from tests.fakes.platform import Platform
from tests.fakes.provider import ScriptedProvider
from tests.proof.kills import EXCUSED, LENGTH, Lives, Mode, Said, Trial

MODES: tuple[Mode, ...] = ("idempotent", "lookup", "plain")
CHATS = (
    ("d", (("part one", "part two", "part three"),)),
    ("e", (("part four", "part five"), ("hello six",))),
)
TEXTS = [(chat, text) for chat, turns in CHATS for turn in turns for text in turn]


class AlbumTrial(Trial):
    """`seen` is what was acknowledged when each of its lives ended."""

    scene = tuple(Said(f"m{number}", chat, text, ()) for number, (chat, text) in enumerate(TEXTS))

    def __init__(self, lives: Lives, model: ScriptedProvider, root: Path, mode: Mode, twin: str = "") -> None:
        super().__init__(lives, model, root, mode, twin)
        self.seen: list[set[str]] = []

    def judge(self) -> list[str]:
        with closing(sqlite3.connect(self.home / "memory.db")) as connection:
            inbox = connection.execute("SELECT message_id, outcome FROM inbox ORDER BY id").fetchall()
            asked = connection.execute(
                "SELECT chat_id, content FROM messages WHERE kind = 'chat_message' AND role = 'user' ORDER BY id"
            ).fetchall()
        found = [f"{id} has no last word" for id, outcome in inbox if outcome is None]
        if sorted(id for id, _ in inbox) != [said.id for said in self.scene]:
            found.append(f"accepted: {inbox}")
        for chat, turns in CHATS:
            heard = self._heard(chat, found)
            lines = [line for where, text in asked if where == chat for line in text.splitlines()]
            wanted = [text for turn in turns for text in turn]
            if [text for turn in heard for text in turn] != wanted:
                found.append(f"answers in {chat} were about {heard}")
            if sorted(set(lines), key=wanted.index) != lines:
                found.append(f"questions of {chat} as stored: {lines}")
            found += self._torn(heard, turns)
        return found

    def _heard(self, chat: str, found: list[str]) -> list[list[str]]:
        """What each answer was about, in their order; a second one to a message that is no marked copy is a problem."""
        heard: dict[str, str] = {}
        for one in Platform(path=self.root / "platform").shown(chat):
            text = one.text.removeprefix(MARK)
            again = one.answers in heard
            if (again and not one.text.startswith(MARK)) or heard.setdefault(one.answers, text) != text:
                found.append(f"{one.answers} was answered again: {one.text!r}")
        return [self._subjects(text) for text in heard.values()]

    def _subjects(self, text: str) -> list[str]:
        if text.startswith(EXCUSED):
            return [said.text for said in self.scene if said.text in text]
        return text.removeprefix("answer to ").removesuffix(LENGTH).split("\n")

    def _torn(self, heard: Sequence[Sequence[str]], turns: Sequence[Sequence[str]]) -> list[str]:
        """What had come when a life ended belongs to one turn; what had not may be late for it."""
        came = [{said.text for said in self.scene if said.id in acked} for acked in self.seen[: self.kills]]
        if not self.kills:
            return [] if [list(turn) for turn in turns] == heard else [f"turns were about {heard}"]
        together = [set(turn) & texts for turn in turns for texts in came]
        return [
            f"{sorted(parts)} had come and are in several turns: {heard}"
            for parts in together
            if parts and not any(parts <= set(turn) for turn in heard)
        ]

    async def _live(self, kill_at: int) -> int:
        ended = await super()._live(kill_at)
        self.seen.append(set(self.acked))
        return ended
