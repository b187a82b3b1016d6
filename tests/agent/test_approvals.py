"""The approval service by itself: what waits, who may answer, once and in time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from fermix.agent.approvals import MOST, REMEMBERED_S, RUNNING, ApprovalRequest, Approvals, Origin, Pending, Seam
from fermix.errors import ChannelUnavailable, LimitReached, Refused
from fermix.message import ApprovalPrompt, Message
from tests.fakes.channel import message
from tests.fakes.clock import ManualClock
from tests.requirements import covers

ASKED = message("please", channel="telegram", sender="1", chat="group", thread="7", private=False)


@dataclass
class Desk:
    """The service, its clock and what it has shown."""

    clock: ManualClock = field(default_factory=ManualClock)
    shown: list[ApprovalPrompt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.approvals = Approvals(self.clock)

    async def show(self, prompt: ApprovalPrompt) -> None:
        self.shown.append(prompt)

    async def ask(self, seal: str = "seal", asked: Message = ASKED, *, shared: bool = True) -> ApprovalPrompt:
        await self.approvals.put(ApprovalRequest("May I?", seal, _done), Seam(Origin.of(asked), shared), self.show)
        return self.shown[-1]


async def _done(seal: str) -> str:
    return f"did {seal}"


def _reply(**changes: object) -> Message:
    where: dict[str, object] = {"channel": "telegram", "sender": "1", "chat": "group", "thread": "7", "private": False}
    return message("/confirm", **{**where, **changes})  # type: ignore[arg-type]


@covers("approval.token.once-60s")
async def test_a_token_works_once() -> None:
    desk = Desk()
    prompt = await desk.ask()

    first = desk.approvals.take(prompt.token, _reply(), local=False)
    assert isinstance(first, Pending)
    assert await first.request.carry_out(first.request.seal) == "did seal"
    assert desk.approvals.take(prompt.token, _reply(), local=False) == "unknown"
    assert desk.approvals.take(prompt.id, _reply(kind="button"), local=False) == "unknown"


@covers("approval.token.once-60s", "approval.check-then-take")
@pytest.mark.parametrize(("after_s", "in_time"), [(0.0, True), (59.9, True), (60.0, False), (600.0, False)])
async def test_a_token_lives_for_sixty_seconds(after_s: float, in_time: bool) -> None:
    desk = Desk()
    prompt = await desk.ask()
    desk.clock.advance(after_s)
    taken = desk.approvals.take(prompt.token, _reply(), local=False)

    assert (taken == "late") is not in_time


@covers("approval.token.origin", "approval.check-then-take")
@pytest.mark.parametrize(
    "elsewhere", [{"channel": "slack"}, {"chat": "other"}, {"thread": "8"}, {"sender": "2"}, {"sender": None}]
)
async def test_a_token_counts_where_it_was_given_and_is_not_burnt_elsewhere(elsewhere: dict[str, object]) -> None:
    """Ingress and trust, approvals: bound to channel, chat, thread and user."""
    desk = Desk()
    prompt = await desk.ask()

    assert desk.approvals.take(prompt.token, _reply(**elsewhere), local=False) == "elsewhere"
    assert isinstance(desk.approvals.take(f" {prompt.token.lower()} ", _reply(), local=False), Pending)


@covers("approval.shared.other-ways")
@pytest.mark.parametrize(
    ("shared", "answer", "local", "counts"),
    [
        (True, {"chat": "direct", "thread": "root", "private": True}, False, True),
        (True, {"channel": "cli", "sender": "cli", "chat": "tui", "private": True}, True, True),
        (True, {"kind": "button"}, False, True),
        (True, {}, False, False),
        (True, {"chat": "other group"}, False, False),
        (True, {"chat": "direct", "private": True, "sender": "2"}, False, False),
        (True, {"channel": "slack", "chat": "direct", "private": True}, False, False),
        (True, {"kind": "button", "sender": "2"}, False, False),
        (True, {"kind": "button", "chat": "other group"}, False, False),
        (False, {"chat": "direct", "private": True}, False, False),
        (False, {"channel": "cli", "sender": "cli", "chat": "tui", "private": True}, True, False),
        (False, {"kind": "button"}, False, True),
    ],
)
async def test_the_id_is_for_buttons_and_for_the_owner_elsewhere(
    shared: bool, answer: dict[str, object], local: bool, counts: bool
) -> None:
    """Ingress and trust, approvals: for a shared chat also from a direct message or the CLI; R-21: the id is opaque."""
    desk = Desk()
    prompt = await desk.ask(shared=shared)
    taken = desk.approvals.take(prompt.id, _reply(**answer), local=local)

    assert isinstance(taken, Pending) if counts else taken == "elsewhere"


@covers("approval.token.origin")
async def test_from_elsewhere_only_the_id_counts_and_not_the_code() -> None:
    """Ingress and trust, approvals: a code that was read over a shoulder is of use only where it was given."""
    desk = Desk()
    prompt = await desk.ask()

    own_chat = _reply(chat="direct", private=True, thread="root")
    assert desk.approvals.take(prompt.token, own_chat, local=False) == "elsewhere"
    assert desk.approvals.take(prompt.token, own_chat, local=True) == "elsewhere"
    assert isinstance(desk.approvals.take(prompt.id, own_chat, local=False), Pending)


async def test_a_late_answer_is_told_that_it_is_late_as_often_as_it_comes() -> None:
    desk = Desk()
    prompt = await desk.ask()
    desk.clock.advance(120)
    await desk.ask("another question")

    assert [desk.approvals.take(prompt.token, _reply(), local=False) for _ in range(2)] == ["late", "late"]


async def test_the_same_live_request_is_asked_once() -> None:
    """Reference 3, section 6.2; R-27: asked again only when it is another, elsewhere, or too late."""
    desk = Desk()
    await desk.ask("one")
    await desk.ask("one")
    await desk.ask("two")
    await desk.ask("one", _reply(chat="other"))
    assert len(desk.shown) == 3

    desk.clock.advance(60)
    await desk.ask("one")
    assert len(desk.shown) == 4
    assert len({prompt.token for prompt in desk.shown} | {prompt.id for prompt in desk.shown}) == 8


async def test_a_question_that_cannot_be_shown_waits_for_nothing() -> None:
    desk = Desk()
    seen: list[ApprovalPrompt] = []

    async def broken(prompt: ApprovalPrompt) -> None:
        seen.append(prompt)
        raise ChannelUnavailable("the platform is away")

    with pytest.raises(ChannelUnavailable):
        await desk.approvals.put(ApprovalRequest("May I?", "seal", _done), Seam(Origin.of(ASKED), True), broken)

    assert desk.approvals.take(seen[0].token, _reply(), local=False) == "unknown"
    assert (await desk.ask()).token != seen[0].token


async def test_what_waits_is_bounded_and_forgotten() -> None:
    """R-13: nobody fills the memory with questions; a cap says what happens at it."""
    desk = Desk()
    for number in range(MOST):
        await desk.ask(str(number))
    with pytest.raises(LimitReached, match="too many questions"):
        await desk.ask("one more")

    desk.clock.advance(REMEMBERED_S + 61)
    await desk.ask("later")
    assert desk.approvals.take(desk.shown[0].token, _reply(), local=False) == "unknown"


async def test_a_restart_means_no() -> None:
    """R-27: nothing that waits outlives the process."""
    prompt = await Desk().ask()

    assert Desk().approvals.take(prompt.token, _reply(), local=False) == "unknown"


@pytest.mark.parametrize(
    "change",
    [str.swapcase, lambda code: code[:-1], lambda code: f"{code}A", lambda code: "".join(map(wide, code)),
     lambda code: f"{code[:4]}\u200b{code[4:]}", lambda code: f"{code[:4]} {code[4:]}", lambda code: f"{code}\0",
     lambda code: "\ud800" * 8, lambda code: "A" * 1_000_000, lambda code: ""],
)  # fmt: skip
async def test_only_the_code_itself_is_the_code(change: Callable[[str], str]) -> None:
    """What looks like it, holds it or is made to break the comparison is no code and burns none."""
    desk = Desk()
    prompt = await desk.ask()
    taken = desk.approvals.take(change(prompt.token), _reply(), local=False)

    if change is str.swapcase:
        assert isinstance(taken, Pending)
    else:
        assert taken == "unknown"
        assert isinstance(desk.approvals.take(prompt.token, _reply(), local=False), Pending)


def wide(char: str) -> str:
    return chr(ord(char) + 0xFEE0)


async def test_ten_thousand_wrong_codes_burn_nothing_and_leave_nothing() -> None:
    """Guessing is for the operator alone, and a guess costs the question nothing; 40 bits outlive it by far."""
    desk = Desk()
    prompt = await desk.ask()
    guesses = {desk.approvals.take(f"{number:08}", _reply(), local=False) for number in range(10_000)}

    assert guesses == {"unknown"}
    assert len(desk.approvals._pending) == 1
    assert isinstance(desk.approvals.take(prompt.token, _reply(), local=False), Pending)


async def test_a_code_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-8: how long an answer takes does not tell how much of a guess was right."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(token: bytes, stated: bytes) -> bool:
        compared.append((token, stated))
        return token == stated

    monkeypatch.setattr(secrets, "compare_digest", compare)
    desk = Desk()
    prompt = await desk.ask()
    desk.approvals.take("WRONG", _reply(), local=False)
    desk.approvals.take(prompt.token, _reply(), local=False)

    token = prompt.token.encode()
    assert compared == [(token, b"WRONG"), (token, token)]


async def test_codes_and_ids_cannot_be_foreseen() -> None:
    """R-21: neither of them says anything about what it stands for, or about the next one."""
    desk = Desk()
    prompts = [await desk.ask(f"seal {number}") for number in range(50)]

    assert len({prompt.token for prompt in prompts} | {prompt.id for prompt in prompts}) == 100
    assert {len(prompt.token) for prompt in prompts} == {8}
    assert {len(prompt.id) for prompt in prompts} == {12}


@dataclass
class Waiting:
    """A wait for an answer, and how it ended."""

    desk: Desk
    answer: str = ""

    async def run(self) -> None:
        seam = Seam(Origin.of(ASKED), shared=True)
        self.answer = await self.desk.approvals.wait_for("May I?", "seal", seam, self.desk.show)


@asynccontextmanager
async def waiting() -> AsyncGenerator[tuple[Waiting, asyncio.Task[None]]]:
    wait = Waiting(Desk())
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(wait.run())
        await wait.desk.clock.until_asleep()
        yield wait, task


async def test_a_wait_ends_with_the_yes_and_the_yes_counts_once() -> None:
    async with waiting() as (wait, _):
        token = wait.desk.shown[0].token
        taken = wait.desk.approvals.take(token, _reply(), local=False)
        assert isinstance(taken, Pending)
        assert await taken.request.carry_out(taken.request.seal) == RUNNING

    assert wait.answer == "yes"
    assert wait.desk.approvals.take(token, _reply(), local=False) == "unknown"
    with pytest.raises(Refused, match="nobody waits"):
        await taken.request.carry_out(taken.request.seal)


async def test_a_wait_ends_with_the_no() -> None:
    async with waiting() as (wait, _):
        taken = wait.desk.approvals.take(wait.desk.shown[0].token, _reply(), local=False)
        assert isinstance(taken, Pending)
        taken.request.refused()
        taken.request.refused()

    assert wait.answer == "no"


async def test_a_wait_ends_after_a_minute_and_a_yes_is_too_late() -> None:
    """R-27: time-out means deny."""
    async with waiting() as (wait, _):
        wait.desk.clock.advance(59.9)
        await asyncio.sleep(0)
        assert wait.answer == ""
        wait.desk.clock.advance(0.1)

    assert wait.answer == "late"
    assert wait.desk.approvals.take(wait.desk.shown[0].token, _reply(), local=False) == "late"


async def test_a_wait_that_is_stopped_leaves_nothing_to_answer() -> None:
    async with waiting() as (wait, task):
        task.cancel()

    assert wait.desk.approvals.take(wait.desk.shown[0].token, _reply(), local=False) == "unknown"


async def test_an_answer_elsewhere_leaves_the_wait_as_it_is() -> None:
    async with waiting() as (wait, task):
        token = wait.desk.shown[0].token
        assert wait.desk.approvals.take(token, _reply(chat="other"), local=False) == "elsewhere"
        await asyncio.sleep(0)
        assert not task.done()
        taken = wait.desk.approvals.take(token, _reply(), local=False)
        assert isinstance(taken, Pending)
        await taken.request.carry_out(taken.request.seal)

    assert wait.answer == "yes"


async def test_a_wait_whose_question_cannot_be_shown_does_not_begin() -> None:
    desk = Desk()

    async def broken(prompt: ApprovalPrompt) -> None:
        desk.shown.append(prompt)
        raise ChannelUnavailable("the platform is away")

    with pytest.raises(ChannelUnavailable):
        await desk.approvals.wait_for("May I?", "seal", Seam(Origin.of(ASKED), True), broken)
    assert desk.approvals.take(desk.shown[0].token, _reply(), local=False) == "unknown"
