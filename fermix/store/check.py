"""The check of the whole file, as a service of the daemon. It runs beside everything else and disturbs nothing.

After an unclean stop `Database.open` has checked a small file already, before anybody read; then nothing is to do.
A damaged file, found here or by whoever reads or writes, parks the service, and the reason is what `fermix status`
shows.
"""

from __future__ import annotations

from collections.abc import Callable

from fermix.store.database import Database


class ContentCheck:
    """A service: one check, then quiet until somebody finds damage."""

    name = "database"

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, started: Callable[[], None]) -> None:
        await self._database.check()
        started()
        raise await self._database.damage()
