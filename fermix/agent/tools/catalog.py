"""Every built-in tool, one line each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fermix.agent.approvals import Approvals
from fermix.agent.budget import Books
from fermix.agent.capability import Capability
from fermix.agent.documents.reading import Reading
from fermix.agent.memory.facts import Facts
from fermix.agent.memory.search import Search
from fermix.agent.providers.override_changes import OverrideChanges
from fermix.agent.sandbox import Policy, Sandbox
from fermix.agent.tools import (
    command,
    directory_access,
    edit,
    files,
    git,
    image,
    memory,
    messaging,
    recall,
    routing,
    search,
    session_search,
    shell,
    tool_help,
    tool_search,
    web,
)
from fermix.agent.tools.web_search import tool as web_search
from fermix.agent.tools.web_search.settings import WebSearchSettings
from fermix.config.model import Config
from fermix.config.secrets import Secret
from fermix.net import Net
from fermix.public import PublicWeb
from fermix.workers import Workers


@dataclass(frozen=True, slots=True)
class ToolDeps:
    """What tools are built from; built again with every new configuration. `program` starts Fermix itself, for work
    that needs a process of its own; `keys` are those of `keys.py`, by name. `net` goes to addresses of ours, `web` to
    those that others choose.
    """

    sandbox: Sandbox
    workers: Workers
    policy: Policy
    approvals: Approvals
    program: tuple[str, ...]
    net: Net
    config: Config
    keys: Mapping[str, Secret]
    web: PublicWeb
    overrides: OverrideChanges
    facts: Facts
    books: Books
    search: Search


def build_tools(deps: ToolDeps) -> tuple[Capability, ...]:
    """Build all tools, in the order in which a model sees them."""
    reading = Reading(deps.sandbox, deps.workers, deps.program)
    return (
        *files.tools(deps.sandbox, deps.workers, deps.program),
        *search.tools(deps.sandbox, deps.workers, deps.program),
        *shell.tools(deps.sandbox, deps.workers),
        *edit.tools(deps.sandbox, deps.workers),
        *command.tools(deps.sandbox, deps.workers),
        *git.tools(deps.sandbox, deps.workers),
        *directory_access.tools(deps.sandbox, deps.policy, deps.approvals, deps.workers),
        *web.tools(deps.web, reading),
        *web_search.tools(deps.config[WebSearchSettings], deps.keys, deps.net, deps.web, reading),
        *image.tools(deps.sandbox, deps.workers, deps.net, image.find_backend(deps.config, deps.keys), deps.books),
        *memory.tools(deps.facts, deps.search),
        *session_search.tools(deps.search),
        *routing.tools(deps.overrides, deps.approvals),
        *messaging.tools(deps.sandbox, deps.workers),
        *recall.tools(),
        *tool_help.tools(),
        *tool_search.tools(deps.config[tool_search.ToolSearchSettings]),
    )
