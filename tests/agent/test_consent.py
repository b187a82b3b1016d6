"""The owner's yes to one call, as the dispatcher asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from fermix.agent.approvals import LIFETIME_S, MOST_TEXT_CHARS, Approvals, Origin, Pending, Seam
from fermix.agent.capability import Capability, ToolContext
from fermix.agent.consent import CHANGED, LATE, NO, NO_AGAIN, NO_MORE, NOBODY, TOO_LONG
from fermix.agent.dispatch import Dispatcher, ToolScope
from fermix.agent.model import JsonObject, JsonValue, ToolCall, ToolResult
from fermix.agent.turn import Turn
from fermix.clock import SystemClock
from fermix.errors import ChannelUnavailable
from fermix.events import Events
from fermix.message import ApprovalPrompt, Reply
from fermix.trust import PolicyClass, Trust
from tests.fakes.clock import ManualClock
from tests.fakes.turns import RecordingPort, make_call, make_capability, make_turn

Reaction = Callable[["Desk", ApprovalPrompt], Awaitable[None]]


def asking(turn: Turn) -> Turn:
    return replace(turn, seam=Seam(Origin.of(turn.message), shared=False))


@dataclass
class Desk(RecordingPort):
    """A turn that has read a page, a tool that acts, and an owner who answers each question with `react`."""

    react: Reaction | None = None
    turn: Turn = field(default_factory=lambda: asking(make_turn()))
    ran: list[Mapping[str, JsonValue]] = field(default_factory=list[Mapping[str, JsonValue]])
    place: str = ""
    things: str = ""
    timeout_s: float = 5.0

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.approvals = Approvals(self.clock)
        self.dispatcher = Dispatcher(Events(SystemClock()), SystemClock(), self.approvals)
        self.tool = replace(
            make_capability("act", self.act, policy=PolicyClass.EXEC, timeout_s=self.timeout_s),
            acts_in=self.where,
            acts_on=self.what,
        )
        self.scope = self.scope_of(self.tool)

    def scope_of(self, tool: Capability) -> ToolScope:
        scope = ToolScope({tool.name: tool}, self.turn, self)
        scope.exposure.read_from("web_fetch")
        return scope

    async def act(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        self.ran.append(arguments)
        return ToolResult(True, "acted")

    async def where(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> str:
        return self.place

    async def what(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> str:
        return self.things

    async def send(self, reply: Reply) -> None:
        self.sent.append(reply)
        if self.react is not None and isinstance(reply, ApprovalPrompt):
            await self.react(self, reply)

    @property
    def asked(self) -> list[ApprovalPrompt]:
        return [reply for reply in self.sent if isinstance(reply, ApprovalPrompt)]

    def take(self, prompt: ApprovalPrompt) -> Pending:
        taken = self.approvals.take(prompt.token, self.turn.message, local=True)
        assert isinstance(taken, Pending)
        return taken

    async def call(self, number: int = 1, **arguments: JsonValue) -> ToolResult:
        async with asyncio.timeout(5):
            return await self.dispatcher.dispatch(make_call("act", number, **arguments), self.scope)


async def yes(desk: Desk, prompt: ApprovalPrompt) -> None:
    taken = desk.take(prompt)
    await taken.request.carry_out(taken.request.seal)


async def no(desk: Desk, prompt: ApprovalPrompt) -> None:
    desk.take(prompt).request.refused()


@asynccontextmanager
async def calling(desk: Desk, call: ToolCall) -> AsyncGenerator[asyncio.Task[ToolResult]]:
    """A call that stands at its question."""
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(desk.dispatcher.dispatch(call, desk.scope))
        await desk.clock.until_asleep()
        yield task


async def test_a_yes_lets_the_very_same_call_run_once() -> None:
    desk = Desk(react=yes)

    assert await desk.call(command="ls") == ToolResult(True, "acted")
    assert desk.ran == [{"command": "ls"}]
    assert desk.effects == ["act"]

    await desk.call(2, command="ls")
    assert len(desk.asked) == 2, "a yes is for one call"


async def test_nothing_runs_and_nothing_is_marked_before_the_yes() -> None:
    desk = Desk()
    async with calling(desk, make_call("act", command="ls")) as task:
        await asyncio.sleep(0)
        assert (desk.ran, desk.effects, task.done()) == ([], [], False)
        await yes(desk, desk.asked[0])

    assert task.result().ok


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (make_turn(), NOBODY),
        (replace(asking(make_turn()), attended=False), NOBODY),
        (replace(asking(make_turn()), parent_id="t0"), NOBODY),
        (asking(make_turn(trust=Trust.GUEST)), NOBODY),
    ],
    ids=["no way to ask", "unattended", "a part of another turn", "guest"],
)
async def test_a_turn_that_cannot_ask_is_refused_at_once(turn: Turn, reason: str) -> None:
    """R-19, R-20: no job, no sub-agent and no guest gets a question to the owner."""
    desk = Desk(react=yes, turn=turn)
    result = await desk.call(command="ls")

    assert (result.ok, result.denied) == (False, True)
    assert reason in result.text
    assert (desk.ran, desk.sent, desk.effects) == ([], [], [])


async def test_without_approvals_nobody_is_asked() -> None:
    desk = Desk(react=yes)
    desk.dispatcher = Dispatcher(Events(SystemClock()), SystemClock())

    assert NOBODY in (await desk.call()).text


async def test_a_no_is_a_refusal_that_the_model_can_read() -> None:
    desk = Desk(react=no)
    result = await desk.call(command="ls")

    assert (result.ok, result.denied) == (False, True)
    assert NO in result.text
    assert "through web_fetch" in result.text
    assert desk.ran == []


async def test_the_same_call_is_not_asked_for_again_and_a_third_one_neither() -> None:
    """QUE-03, R-27: a retry keeps its answer, and nobody is worn down by variants."""
    desk = Desk(react=no)
    texts = [(await desk.call(number, command=command)).text for number, command in enumerate(["a", "a", "b", "c"])]

    assert [reason in text for reason, text in zip((NO, NO_AGAIN, NO, NO_MORE), texts, strict=True)] == [True] * 4
    assert len(desk.asked) == 2


async def test_no_answer_within_a_minute_is_a_no() -> None:
    desk = Desk()
    async with calling(desk, make_call("act", command="ls")) as task:
        desk.clock.advance(LIFETIME_S)

    assert LATE in task.result().text
    assert NO_AGAIN in (await desk.call(2, command="ls")).text
    assert desk.ran == []


async def test_the_time_of_a_tool_begins_after_the_yes() -> None:
    async def slowly(desk: Desk, prompt: ApprovalPrompt) -> None:
        await asyncio.sleep(0.02)
        await yes(desk, prompt)

    assert (await Desk(react=slowly, timeout_s=0.01).call()).ok


async def test_a_stop_while_it_waits_leaves_no_question() -> None:
    desk = Desk()
    async with calling(desk, make_call("act", command="ls")) as task:
        task.cancel()

    assert desk.ran == []
    assert desk.approvals.take(desk.asked[0].token, desk.turn.message, local=True) == "unknown"


async def test_a_question_that_does_not_reach_the_owner_is_a_failure() -> None:
    async def away(desk: Desk, prompt: ApprovalPrompt) -> None:
        raise ChannelUnavailable("the platform is away")

    desk = Desk(react=away)
    result = await desk.call()

    assert (result.ok, desk.ran) == (False, [])
    assert "platform is away" in result.text


async def test_what_changed_while_the_owner_was_asked_does_not_run() -> None:
    """R-25: the folder of a command is bound as well, and made out again after the yes."""

    async def swapped(desk: Desk, prompt: ApprovalPrompt) -> None:
        desk.place = "/home/jo/other"
        await yes(desk, prompt)

    desk = Desk(react=swapped, place="/home/jo/project")
    result = await desk.call(command="make")

    assert CHANGED in result.text
    assert desk.ran == []


async def test_every_bound_part_makes_another_seal() -> None:
    """R-25: one changed byte of the tool, an argument, the place, what lies there, the turn or its trust."""
    seals: list[str] = []

    async def keep(desk: Desk, prompt: ApprovalPrompt) -> None:
        seals.append(desk.take(prompt).request.seal)
        await no(desk, prompt)

    async def ask(desk: Desk, name: str = "act", **arguments: JsonValue) -> None:
        desk.react = keep
        before = len(seals)
        desk.scope = desk.scope_of(replace(desk.tool, name=name))
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            task = group.create_task(desk.dispatcher.dispatch(make_call(name, **arguments), desk.scope))
            while len(seals) == before:
                await asyncio.sleep(0)
            task.cancel()

    await ask(Desk(), command="ls")
    await ask(Desk(), command="ls ")
    await ask(Desk(), command="ls", more=True)
    await ask(Desk(), command=["ls"])
    await ask(Desk(), name="act2", command="ls")
    await ask(Desk(place="/x"), command="ls")
    await ask(Desk(things="7:12"), command="ls")
    await ask(Desk(turn=asking(make_turn(turn_id="t2"))), command="ls")
    assert len(set(seals)) == 8

    await ask(Desk(), command="ls")
    assert len(set(seals)) == 8


async def test_the_question_shows_every_character_of_the_call() -> None:
    """INJ-07, R-26: escapes, direction marks, zero-width characters, blanks at the end, and a fence inside."""
    desk = Desk(react=no, place="/home/jo/pro\u202eject")
    command = "echo \x1b[2K ok\u200b \n```\n/confirm AAAAAAAA \t"
    await desk.call(command=command, timeout_ms=5, **{"na\nme": None, "list": ["\u202e", "ä"]})

    text = desk.asked[0].text
    assert "through web_fetch" in text
    assert "tool: act\nin: “/home/jo/pro⟨U+202E⟩ject”\n" in text
    assert "command: “echo ⟨U+001B⟩[2K ok⟨U+200B⟩ ⟨U+000A⟩```⟨U+000A⟩/confirm AAAAAAAA ⟨U+0009⟩”\n" in text
    assert 'list: ["⟨U+202E⟩", "ä"]\nna⟨U+000A⟩me: null\ntimeout_ms: 5\n````' in text
    assert text.count("````") == 2


async def test_a_call_that_is_too_long_to_be_shown_is_refused_and_never_cut() -> None:
    """R-26: a command of 100 KB, and one whose end would not be seen."""
    for command in ("x" * 100_000, "x" * MOST_TEXT_CHARS, "\u200b" * (MOST_TEXT_CHARS // 8)):
        desk = Desk(react=yes)
        result = await desk.call(command=command)

        assert TOO_LONG in result.text
        assert (desk.ran, desk.sent) == ([], [])


async def test_an_address_in_a_complaint_about_arguments_is_not_given_by_it() -> None:
    """R-52: the complaint names an unknown argument; that does not make its name an address that was read."""
    desk, url = Desk(), "https://evil.example/?d=secret"
    schema: JsonObject = {"type": "object", "additionalProperties": False}
    page = make_capability("page", policy=PolicyClass.NETWORK, parameters=schema)
    scope = desk.scope_of(page)
    async with asyncio.timeout(5):
        result = await desk.dispatcher.dispatch(make_call("page", **{url: 1}), scope)

    assert url in result.text
    assert not scope.exposure.given(url)


async def test_wrong_arguments_are_told_without_a_question() -> None:
    desk = Desk(react=yes)
    strict = replace(desk.tool, parameters={"type": "object", "required": ["command"]})
    desk.scope = desk.scope_of(strict)

    assert "arguments do not fit" in (await desk.call()).text
    assert desk.sent == []
