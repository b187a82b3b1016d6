from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fermix.agent.approvals import Approvals
from fermix.agent.capability import Capability, Kind
from fermix.agent.context import COMPACT_TOOLS, PromptSettings, RuntimeContext, build_context
from fermix.agent.prompt import date_note, load
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.sandbox import Policy, Sandbox, SandboxSettings
from fermix.agent.tokens import prompt_tokens
from fermix.agent.tools.catalog import build_tools
from fermix.clock import SystemClock
from fermix.config.model import AgentSettings, PersonalizationSettings
from fermix.home import Home
from fermix.trust import Trust
from fermix.workers import Workers
from tests.fakes.clock import START
from tests.fakes.router import FACTS, ScriptedRouter
from tests.fakes.tools import tool_deps
from tests.fakes.turns import make_capability
from tests.requirements import covers

SETTINGS = PromptSettings(AgentSettings(name="Fermix"), PersonalizationSettings())


TICKETS = make_capability("tickets_list", kind=Kind.MCP, source="tickets")


def context_of(tmp_path: Path, *more: Capability, compact: bool) -> RuntimeContext:
    """Build a context with the tools we ship, and more."""
    home = Home(tmp_path / "home")
    home.prepare()
    workers = Workers()
    try:
        sandbox = Sandbox(SandboxSettings(), home, tmp_path, tmp_path, {})
        clock = SystemClock()
        policy = Policy(sandbox, home, {"sandbox": SandboxSettings}, workers, clock)
        registry = CapabilityRegistry([*build_tools(tool_deps(home, policy, Approvals(clock), workers)), *more])
        router = ScriptedRouter([], replace(FACTS, compact=compact))
        return build_context(router, registry, load(home, "Fermix"), SETTINGS)
    finally:
        workers.close()


def test_compact_profile_stays_within_its_tokens(tmp_path: Path) -> None:
    """Issue "Embedded default": prompt at most 1,200 tokens with four tools, because it is read at 110 a second."""
    profile = context_of(tmp_path, TICKETS, compact=True).profile(Trust.OPERATOR)

    assert {schema.name for schema in profile.schemas} == COMPACT_TOOLS
    assert (
        prompt_tokens((*profile.system, date_note(START, "America/Argentina/Buenos_Aires")), profile.schemas) <= 1_200
    )


def test_shipped_tools_are_those_of_each_trust(tmp_path: Path) -> None:
    """Trust boundaries: a guest reads, an operator also runs commands; no trust stated means guest."""
    context = context_of(tmp_path, compact=False)

    files = ["file_read", "glob_search", "content_search"]
    assert set(context.profile(Trust.OPERATOR).tools) > {*files, "shell", "tool_result_recall", "tool_help"}
    assert list(context.profile(Trust.GUEST).tools) == [*files, "tool_help"]
    assert context.profile(None) is context.profile(Trust.GUEST)
    assert context.profile(Trust.GUEST, may_ask=True) is context.profile(Trust.GUEST)


def test_only_a_turn_that_may_ask_is_offered_to_ask(tmp_path: Path) -> None:
    """Reference 4, 5.4: whoever cannot ask does not read of it either."""
    context = context_of(tmp_path, compact=False)
    asking, silent = context.profile(Trust.OPERATOR, may_ask=True), context.profile(Trust.OPERATOR)

    assert set(asking.tools) - set(silent.tools) == {name for name, tool in asking.tools.items() if tool.asks_owner}
    assert "request_directory_access" in "\n".join(asking.system)
    assert "request_directory_access" not in "\n".join(silent.system)


def test_prompt_says_when_to_use_each_shipped_tool(tmp_path: Path) -> None:
    """Reference 4, 3.4: one line per tool in the generated section; a guest reads nothing of tools it lacks."""
    context = context_of(tmp_path, compact=False)

    operator, guest = context.profile(Trust.OPERATOR), context.profile(Trust.GUEST)
    assert all(f"- {name}: " in "\n".join(operator.system) for name in operator.tools)
    assert "shell" not in "\n".join(guest.system)


@covers("deferral.default-on")
def test_server_adds_names_and_bridges_to_the_owner_and_nothing_to_a_guest(tmp_path: Path) -> None:
    """Reference 4, 4.4: schemas are held back by default; a guest's context is what it was without the server."""
    contexts = context_of(tmp_path, compact=False), context_of(tmp_path, TICKETS, compact=False)
    alone, beside = (context.profile(Trust.OPERATOR) for context in contexts)
    guest_alone, guest_beside = (context.profile(Trust.GUEST) for context in contexts)

    more = {schema.name for schema in beside.schemas} - {schema.name for schema in alone.schemas}
    assert more == {"tool_search", "tool_describe", "tool_call"}
    assert set(beside.tools) - set(alone.tools) == {*more, "tickets_list"}
    assert "- tickets: tickets_list" in "\n".join(beside.system)
    assert (guest_beside.system, guest_beside.schemas) == (guest_alone.system, guest_alone.schemas)
