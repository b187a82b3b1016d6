"""What a long memory costs: to add to it, to start with it, to list it; over a home with a million messages."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import million
from bench.figures import Figure, medians, p95
from bench.program import (
    KIND,
    PROGRAM,
    connect,
    environment,
    free_port,
    proportional_bytes,
    running,
    until,
    write_config,
)
from bench.startup import ready_s
from fermix.agent.memory import Conversations
from fermix.agent.model import AssistantMessage, UserMessage
from fermix.clock import SystemClock
from fermix.events import Events
from fermix.message import ConversationKey
from fermix.protocol.ask import Connection
from fermix.store import Connection as Sql
from fermix.store import Database

TURNS = 300
HOT = 3  # conversations of a thousand messages each, as many as memory holds
PACED = 100
RUNS = 9
SETTLE_S = 3.0
URL = "http://127.0.0.1:1/v1"  # nobody is asked
QUESTION, ANSWER = UserMessage("words " * 40), AssistantMessage("word " * 60)


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        full, empty = Path(folder) / "full", Path(folder) / "empty"
        ports = {home: free_port() for home in (full, empty)}
        for home, port in ports.items():
            write_config(home, URL, port=port)
        million.fill(full / "memory.db")
        yield from asyncio.run(_appending(full / "memory.db"))
        yield from _starting(full, empty, ports)
        yield from _holding(full, empty)


async def _appending(path: Path) -> list[Figure]:
    """Turns of two messages, as fast as they come, and then one after the other with nothing else on the way."""
    clock = SystemClock()
    async with Database.open(path) as database, Conversations.open(database, clock, Events(clock)) as conversations:
        keys = [ConversationKey("cli", f"c{number}", "root") for number in range(HOT)]
        for key in keys:
            await conversations.history(key)
        used_s = time.thread_time()
        for number in range(TURNS):
            await conversations.append(keys[number % len(keys)], QUESTION, sender="me")
            await conversations.append(keys[number % len(keys)], ANSWER, model="bench/bench")
        await conversations.flush()
        cpu_s = (time.thread_time() - used_s) / (2 * TURNS)
        waits_s = [await _until_synced(database, conversations, keys[0]) for _ in range(PACED)]
        began_at = time.perf_counter()
        await conversations.listing("cli")
        listing_s = time.perf_counter() - began_at
    return [
        Figure("memory.append_cpu", cpu_s * 1000, "ms of the loop's thread", 0.2),
        Figure("memory.append_synced_p95", p95(waits_s) * 1000, "ms", 50.0),
        Figure("memory.list_of_a_million", listing_s * 1000, "ms"),
    ]


async def _until_synced(database: Database, conversations: Conversations, key: ConversationKey) -> float:
    """From the call to the moment at which a power cut could not take the message any more."""
    began_at = time.perf_counter()
    await conversations.append(key, QUESTION, sender="me")
    await conversations.flush()
    await database.run(_touch, durable=True)
    return time.perf_counter() - began_at


def _touch(connection: Sql) -> None:
    """Write something, so that the commit syncs the log with all that was written before."""
    connection.execute("UPDATE sqlite_sequence SET seq = seq WHERE name = 'messages'")


def _starting(full: Path, empty: Path, ports: dict[Path, int]) -> Iterator[Figure]:
    few, many = medians(
        RUNS,
        lambda: ready_s(environment(empty), ports[empty]),
        lambda: ready_s(environment(full), ports[full]),
    )
    yield Figure(f"{KIND}.ready_with_an_empty_home", few * 1000, "ms")
    yield Figure(f"{KIND}.ready_with_a_million_messages", many * 1000, "ms")
    yield Figure(f"{KIND}.ready_ratio_of_a_million", many / few, "times an empty home", 1.3)
    few, many = medians(RUNS, lambda: _ready_after_kill_s(empty, ports), lambda: _ready_after_kill_s(full, ports))
    yield Figure(f"{KIND}.ready_ratio_of_a_million_after_kill", many / few, "times an empty home", 1.3)


def _ready_after_kill_s(home: Path, ports: dict[Path, int]) -> float:
    with running((*PROGRAM, "--daemon"), environment(home)) as process:
        connect(home).close()
        process.kill()
    return ready_s(environment(home), ports[home])


def _holding(full: Path, empty: Path) -> Iterator[Figure]:
    few, many = (_memory_bytes(home) for home in (empty, full))
    yield Figure(f"{KIND}.memory_of_a_million", (many - few) / 1e6, "MB (PSS) above an empty home", 10.0)


def _memory_bytes(home: Path) -> int:
    """What a daemon holds once its check of the whole file is over and a conversation was looked at."""
    with running((*PROGRAM, "--daemon"), environment(home)):
        connection = connect(home)
        until(lambda: _is_checked(connection))
        connection.request("conversation.history", {"session": "c1", "limit": 100})
        time.sleep(SETTLE_S)
        held = proportional_bytes(connection)
        connection.close()
    return held


def _is_checked(connection: Connection) -> bool:
    services = connection.request("status", {})["services"]
    assert isinstance(services, list)
    return any(row["service"] == "database" and row["state"] == "up" for row in services)
