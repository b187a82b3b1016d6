"""Answer what the sandbox, the memory and the books are asked where no daemon runs: the same answers, over the
same files, under the home's lock.

Nothing stays open between two questions, so that a daemon can start while a person thinks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from fermix.clock import SystemClock
from fermix.errors import FermixError
from fermix.home import Home, hold_lock
from fermix.workers import Workers

WAIT_S = 5.0  # another question like this one, from another terminal, is short
NO_LAUNCH_FOLDER = Path("/")  # what a daemon will be started from is not known, and this one never counts


def answer(home: Home, environ: Mapping[str, str], method: str, params: Mapping[str, object]) -> dict[str, object]:
    """Return the answer. Raises: FermixError with a user text."""
    home.prepare()
    with hold_lock(home, wait_s=WAIT_S):
        if home.restoring.exists():
            _finish_restore(home)
        workers = Workers()
        try:
            if method == "usage":
                return dict(asyncio.run(_ask_books(home, environ, params)))
            if method.startswith("memory."):
                return dict(asyncio.run(_ask_memory(home, workers, method, params)))
            return dict(asyncio.run(_ask_sandbox(home, environ, workers, method, params)))
        finally:
            workers.close()


def _finish_restore(home: Home) -> None:
    """Do what a start does first: in the middle of an exchange no database is there, and opening would make one."""
    from fermix.store.exchange import finish

    finish(home)


async def _ask_sandbox(
    home: Home, environ: Mapping[str, str], workers: Workers, method: str, params: Mapping[str, object]
) -> Mapping[str, object]:
    from fermix.agent.sandbox import Policy, Sandbox, SandboxSettings
    from fermix.daemon.sandbox_answers import ANSWERS
    from fermix.setup.sections import SECRET_NAMES, SECTIONS, load_config

    settings = load_config(home, environ)[SandboxSettings]
    sandbox = Sandbox(settings, home, NO_LAUNCH_FOLDER, Path.home(), environ, key_names=SECRET_NAMES)
    return await ANSWERS[method](Policy(sandbox, home, SECTIONS, workers, SystemClock()), params)


async def _ask_memory(home: Home, workers: Workers, method: str, params: Mapping[str, object]) -> Mapping[str, object]:
    from fermix.agent.memory.facts import Facts
    from fermix.agent.memory.search import Search
    from fermix.daemon import search_answers
    from fermix.daemon.memory_answers import ANSWERS
    from fermix.store import Database

    clock = SystemClock()
    async with Database.open(home.database) as database:
        facts = Facts(database, home, workers, clock)
        if method == "memory.search":
            return await search_answers.answer(facts, Search(database, workers, clock), params)
        return await ANSWERS[method](facts, params)


async def _ask_books(home: Home, environ: Mapping[str, str], params: Mapping[str, object]) -> Mapping[str, object]:
    from fermix.agent.budget import Budget, BudgetSettings
    from fermix.daemon.usage_answers import usage
    from fermix.setup.sections import load_config
    from fermix.store import Database

    config = load_config(home, environ)
    zone = config.core.personalization.timezone
    async with Database.open(home.database) as database:
        return await usage(await Budget.open(database, SystemClock(), config[BudgetSettings], zone), params)


def told(error: FermixError) -> str:
    """Return what a person reads of an error."""
    return error.user_text or str(error)
