"""A question in the middle of a turn, over the real local socket: asked in one terminal, answered in another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from fermix.agent.approvals import RUNNING
from fermix.agent.capability import ToolContext
from fermix.agent.consent import NO, NOBODY
from fermix.agent.dispatch import Dispatcher, ToolScope
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.clock import SystemClock
from fermix.daemon import answers
from fermix.native.peer import Peer
from fermix.trust import PolicyClass
from tests.daemon.house import House, opened
from tests.fakes.channel import completed
from tests.fakes.turns import make_call, make_capability
from tests.requirements import covers

CODE = re.compile(r"/confirm ([A-Z2-7]{8})")


def exposed_turns(house: House) -> list[str]:
    """Let each turn make a call that asks; returns what has run."""
    ran: list[str] = []

    async def act(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        ran.append(context.turn.message.id)
        return ToolResult(True, "acted")

    async def script(turn: Turn, port: ReplyPort) -> TurnOutcome:
        scope = ToolScope({"act": make_capability("act", act, policy=PolicyClass.EXEC)}, turn, port)
        scope.exposure.read_from("web_fetch")
        dispatcher = Dispatcher(house.events, SystemClock(), house.approvals)
        return completed((await dispatcher.dispatch(make_call("act"), scope)).text)

    house.agent.script = script
    return ran


@covers("approval.text-elsewhere")
@pytest.mark.parametrize(("answer", "told", "reply"), [("confirm", RUNNING, "acted"), ("deny", "Refused", NO)])
async def test_an_answer_from_another_terminal_is_heard_while_the_turn_waits(
    tmp_path: Path, answer: str, told: str, reply: str
) -> None:
    async with opened(tmp_path) as house:
        ran = exposed_turns(house)
        asking, answering = await house.dial(), await house.dial()
        await asking.subscribe(["cli"])
        await asking.ask("look it up", id="m1")
        question = await asking.next("reply")
        assert (question["waits"], ran) == (True, [])
        match = CODE.search(question["text"])
        assert match is not None

        await answering.subscribe(["cli"])
        await answering.ask(f"/{answer} {match.group(1)}", id="m2")
        texts = {(said := await answering.next("reply"))["message_id"]: said["text"] for _ in range(2)}

        assert told in texts["m2"]
        assert reply in texts["m1"]
        assert ran == (["m1"] if answer == "confirm" else [])


async def test_a_program_without_a_person_is_not_asked_and_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-19: what the agent itself has started gets no question, and its own /confirm is refused."""

    def unattended(peer: Peer) -> bool:
        return False

    async with opened(tmp_path) as house:
        ran = exposed_turns(house)
        person = await house.dial()
        await person.subscribe(["cli"])
        await person.ask("look it up", id="m1")
        match = CODE.search((await person.next("reply"))["text"])
        assert match is not None

        monkeypatch.setattr(answers, "_is_attended", unattended)
        program = await house.dial()
        await program.subscribe(["cli", "other"])
        await program.ask(f"/confirm {match.group(1)}", id="m2")
        assert "runs without a person" in (await program.next("reply"))["text"]
        await program.ask("look it up", id="m3", session="other")
        assert NOBODY in (await program.next("reply"))["text"]
        assert ran == []
