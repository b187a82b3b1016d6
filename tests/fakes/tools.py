"""What the built-in tools are built from, with nothing configured and a client that reaches loopback only."""

from __future__ import annotations

from fermix.agent.approvals import Approvals
from fermix.agent.providers.override_changes import OverrideChanges
from fermix.agent.sandbox import Policy
from fermix.agent.tools.catalog import ToolDeps
from fermix.home import Home
from fermix.native.program import own_program
from fermix.net import Net
from fermix.public import PublicWeb
from fermix.setup.sections import SECTIONS, load_config
from fermix.workers import Workers


def tool_deps(
    home: Home, policy: Policy, approvals: Approvals, workers: Workers, *, net: Net | None = None
) -> ToolDeps:
    """The web of a test is that of `internet.py`: put it in with `replace(deps, web=internet.web(net))`."""
    net = net or Net(loopback_only=True)
    config = load_config(home, {})
    overrides = OverrideChanges(home, SECTIONS, workers, _nothing_to_reload)
    return ToolDeps(
        policy.sandbox, workers, policy, approvals, own_program({}), net, config, {}, PublicWeb(net), overrides
    )


async def _nothing_to_reload() -> None:
    """A test that has a daemon looks there."""
