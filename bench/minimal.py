"""The least a daemon can do for a turn, as a process of its own: the yardstick for the real one.

A line on a Unix socket, a FULL commit, twenty messages read, a streamed POST of about 31 kB; then, after the last
byte of the answer, a FULL commit and the reply line. `python -m bench.minimal SOCKET DATABASE URL`.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys

import aiohttp

HISTORY = 20
SYSTEM_CHARS = 2_800
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "A tool that stands for one of the tools of an agent, with a text of usual length. " * 4,
            "parameters": {
                "type": "object",
                "properties": {name: {"type": "string", "description": "An argument of it. " * 4} for name in "abcd"},
                "required": ["a"],
            },
        },
    }
    for number in range(25)
]


_PAST = [("user", "words " * 40), ("assistant", "word " * 20)] * (HISTORY // 2)


def _open(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript("pragma journal_mode=wal; pragma synchronous=full;")
    database.execute("create table if not exists message (id integer primary key, role text, content text)")
    database.executemany("insert into message (role, content) values (?, ?)", _PAST)
    return database


def _store(database: sqlite3.Connection, role: str, content: str) -> None:
    database.execute("begin immediate")
    database.execute("insert into message (role, content) values (?, ?)", (role, content))
    database.execute("commit")


async def _answer(database: sqlite3.Connection, session: aiohttp.ClientSession, url: str, text: str) -> str:
    _store(database, "user", text)
    rows = database.execute("select role, content from message order by id desc limit ?", (HISTORY + 1,)).fetchall()
    messages = [{"role": role, "content": content} for role, content in reversed(rows)]
    body = {
        "model": "bench",
        "stream": True,
        "messages": [{"role": "system", "content": "s" * SYSTEM_CHARS}, *messages],
    }
    parts: list[str] = []
    async with session.post(url + "/chat/completions", json={**body, "tools": TOOLS}) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                choices = json.loads(line[6:])["choices"]
                parts += [choice["delta"].get("content") or "" for choice in choices]
    reply = "".join(parts)
    _store(database, "assistant", reply)
    return reply


async def main(socket_path: str, database_path: str, url: str) -> None:
    database = _open(database_path)
    async with aiohttp.ClientSession() as session:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                reply = await _answer(database, session, url, json.loads(line)["text"])
                writer.write(json.dumps({"reply": reply}).encode() + b"\n")
                await writer.drain()

        server = await asyncio.start_unix_server(serve, socket_path)
        async with server:
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
