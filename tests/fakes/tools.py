"""What the built-in tools are built from, with nothing configured and a client that reaches loopback only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fermix.agent.approvals import Approvals
from fermix.agent.memory.facts import Facts
from fermix.agent.memory.search import Search
from fermix.agent.providers.override_changes import OverrideChanges
from fermix.agent.sandbox import Policy
from fermix.agent.tools.catalog import ToolDeps
from fermix.clock import SystemClock
from fermix.errors import Unavailable
from fermix.home import Home
from fermix.native.program import own_program
from fermix.net import Net
from fermix.public import PublicWeb
from fermix.setup.sections import SECTIONS, load_config
from fermix.store import Connection, Database, SqlValue
from fermix.workers import Workers
from tests.fakes.books import FakeBooks

T = TypeVar("T")


def tool_deps(
    home: Home,
    policy: Policy,
    approvals: Approvals,
    workers: Workers,
    *,
    net: Net | None = None,
    facts: Facts | None = None,
    search: Search | None = None,
) -> ToolDeps:
    """The web of a test is that of `internet.py`: put it in with `replace(deps, web=internet.web(net))`."""
    net = net or Net(loopback_only=True)
    config = load_config(home, {})
    overrides = OverrideChanges(home, SECTIONS, workers, _nothing_to_reload)
    return ToolDeps(
        policy.sandbox, workers, policy, approvals, own_program({}), net, config, {}, PublicWeb(net), overrides,
        facts or Facts(NoDatabase(), home, workers, SystemClock()), FakeBooks(),
        search or Search(NoDatabase(), workers, SystemClock()),
    )  # fmt: skip


class NoDatabase(Database):
    """What remembers nothing and says so, for tests that open no file."""

    def __init__(self) -> None:
        """Nothing is opened."""

    async def run(self, fn: Callable[[Connection], T], *, durable: bool = False) -> T:
        raise Unavailable("this test has no database")

    async def read(self, sql: str, parameters: Sequence[SqlValue] = ()) -> list[tuple[SqlValue, ...]]:
        raise Unavailable("this test has no database")


async def _nothing_to_reload() -> None:
    """A test that has a daemon looks there."""
