"""An HTTP server in front of the gateway, as the webhook adapters have it: 200 once `ingest` has returned.

`python -m bench.webhook FOLDER` writes its port to FOLDER/port; at the end FOLDER/commits holds how many were made.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from bench.house import House, message, opened
from fermix.store.writer import Job, Writer

HOST = "127.0.0.1"


class Commits:
    """Counts them: stands in front of the writer's own method."""

    def __init__(self) -> None:
        self.count = 0
        self._commit = Writer._commit

    def __call__(self, writer: Writer, connection: sqlite3.Connection, batch: Sequence[Job]) -> None:
        self.count += 1
        self._commit(writer, connection, batch)


def _app(house: House) -> web.Application:
    async def receive(request: web.Request) -> web.Response:
        body = await request.json()
        await house.gateway.ingest(message(body["number"], body["chat"], body["text"]), house.channel)
        return web.Response()

    app = web.Application()
    app.add_routes([web.post("/", receive)])
    return app


async def main(folder: Path) -> None:
    commits, stop = Commits(), asyncio.Event()
    Writer._commit = lambda writer, connection, batch: commits(writer, connection, batch)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with opened(folder) as house:
        commits.count = 0
        runner = web.AppRunner(_app(house), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, HOST, 0, backlog=1_024)
        await site.start()
        (folder / "port").write_text(f"{runner.addresses[0][1]}\n", encoding="ascii")
        await stop.wait()
        await runner.cleanup()
        await house.settled()
        (folder / "commits").write_text(str(commits.count), encoding="ascii")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
