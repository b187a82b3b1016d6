"""Homes with something in them, for tests of backup and restore."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from fermix.home import Home
from fermix.store import Database
from tests.store.test_database import add

NOW = datetime(2026, 12, 1, 3, 45, 12, tzinfo=UTC)
OTHERS = {
    "config.toml": "[fermix_web]\nport = 0\n",
    "bootstrap/main/IDENTITY.md": "I am Fermix.",
    "memory/main/USER.md": "Jo",
    "grants/20261201T034512-00000000.json": "{}",
}


async def make_home(root: Path, *messages: str, others: Mapping[str, str] = OTHERS) -> Home:
    home = Home(root)
    home.prepare()
    await say(home, *messages)
    write(home, others)
    return home


async def say(home: Home, *messages: str) -> None:
    async with Database.open(home.database) as database:
        for message in messages:
            await database.run(add(message))


def write(home: Home, others: Mapping[str, str]) -> None:
    for name, text in others.items():
        path = home.root / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


async def messages_of(home: Home) -> list[str]:
    async with Database.open(home.database) as database:
        await database.check()
        return [str(content) for (content,) in await database.read("SELECT content FROM messages ORDER BY id")]


def others_of(home: Home) -> dict[str, str]:
    """What a backup takes beside the database, by its name."""
    folders = ("bootstrap", "memory", "grants")
    paths = [home.config, *(path for name in folders for path in sorted((home.root / name).rglob("*")))]
    return {
        path.relative_to(home.root).as_posix(): path.read_text(encoding="utf-8") for path in paths if path.is_file()
    }


def quiet(_phase: str, _share: float) -> None:
    """Tell nobody."""
