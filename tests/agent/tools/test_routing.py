"""model_routing_config through the dispatcher: what a model can bring about in config.toml, and by whose yes."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from fermix.agent.approvals import ApprovalRequest, Origin, Pending, Seam
from fermix.agent.model import ToolResult
from fermix.agent.providers.override_changes import OverrideChanges
from fermix.agent.providers.overrides import NAMES, SECTION
from fermix.agent.turn import Turn
from fermix.config.model import CLOSED
from fermix.errors import Refused, Unavailable
from fermix.message import ApprovalPrompt
from fermix.setup.sections import SECTIONS
from fermix.trust import Trust
from tests.agent.tools.conftest import Toolbox
from tests.fakes.turns import RecordingPort, make_turn

NAME = "model_routing_config"
MINI = {"cron_model": "gpt-5.4-mini"}
HELD = '[fermix_core.providers.openai]\nprimary = true\n\n[fermix_core.routing]\nsubagent_model = "gpt-5.5" # mine\n'


def asking(trust: Trust = Trust.OPERATOR) -> Turn:
    turn = make_turn(trust=trust)
    return replace(turn, seam=Seam(Origin.of(turn.message), shared=False))


async def propose(toolbox: Toolbox, changes: dict[str, str | None], port: RecordingPort | None = None) -> ToolResult:
    return await toolbox.call(NAME, asking(), port, action="propose", changes=dict(changes), reason="jobs are simple")


def question(toolbox: Toolbox, port: RecordingPort) -> tuple[str, ApprovalRequest]:
    (prompt,) = port.sent
    assert isinstance(prompt, ApprovalPrompt)
    taken = toolbox.approvals.take(prompt.token, asking().message, local=True)
    assert isinstance(taken, Pending)
    assert taken.seam.resume is None
    return prompt.text, taken.request


@pytest.fixture
def box(toolbox: Toolbox) -> Toolbox:
    toolbox.home.config.write_text(HELD, encoding="utf-8")
    return toolbox


async def test_the_owner_sees_what_would_change_and_then_it_does(
    box: Toolbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reloads: list[bool] = []

    async def reload() -> None:
        reloads.append("gpt-5.4-mini" in box.home.config.read_text(encoding="utf-8"))

    box = replace(box, deps=replace(box.deps, overrides=OverrideChanges(box.home, SECTIONS, box.deps.workers, reload)))
    port = RecordingPort()
    result = await propose(box, {**MINI, "subagent_model": None}, port)
    text, request = question(box, port)
    before = box.home.config.read_text(encoding="utf-8")
    told = await request.carry_out(request.seal)

    assert result.ok
    assert "Nothing is changed yet" in result.text
    assert 'reason: "jobs are simple"' in text
    assert '- subagent_model = "gpt-5.5"\n+ cron_model = "gpt-5.4-mini"' in text
    assert before == HELD
    assert 'cron_model = "gpt-5.4-mini"' in box.home.config.read_text(encoding="utf-8")
    assert "subagent_model" not in box.home.config.read_text(encoding="utf-8")
    assert told.startswith("Done.")
    assert reloads == [True]
    assert 'changed by u1 on cli: [fermix_core.routing]; - subagent_model = "gpt-5.5"' in caplog.text


async def test_the_model_asks_for_every_setting_there_is(box: Toolbox) -> None:
    """R-44: only proposals appear, and only for one section; nothing is written."""
    every = {**CLOSED, **SECTIONS}
    fields = [(section, name) for section, kind in every.items() for name in kind.model_fields]
    asked: set[str] = set()
    for section, name in fields:
        for spelling in (name, f"{section}.{name}", f"{section}/{name}"):
            port = RecordingPort()
            result = await propose(box, {spelling: "openai" if name.endswith("provider") else "low"}, port)
            if port.sent:
                asked.add(spelling)
            assert result.ok == bool(port.sent)

    assert len(fields) > 60
    assert asked == set(NAMES)
    assert asked == {name for section, name in fields if section == SECTION}
    assert box.home.config.read_text(encoding="utf-8") == HELD


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"cron_model": "grok-4.3"}, "'grok-4.3' is a model of xai, not of openai"),
        ({"cron_provider": "nobody"}, "cron_provider: is not one of openai"),
        ({"cron_reasoning_effort": "max"}, "openai takes none or low"),
        ({"subagent_model": "gpt-5.5"}, "this is set already"),
        ({"cron_model": "a\nb"}, "one line of printable text"),
        ({"cron_model": ""}, "one line of printable text"),
    ],
)
async def test_what_could_not_work_is_never_asked(box: Toolbox, changes: dict[str, str | None], sentence: str) -> None:
    port = RecordingPort()
    result = await propose(box, changes, port)

    assert (result.ok, port.sent) == (False, [])
    assert sentence in result.text


async def test_a_yes_counts_for_exactly_what_was_shown(box: Toolbox) -> None:
    """R-26: another hand changes the section between the question and the answer."""
    port = RecordingPort()
    await propose(box, MINI, port)
    _, request = question(box, port)
    changed = HELD.replace("gpt-5.5", "gpt-5.4")
    box.home.config.write_text(changed, encoding="utf-8")

    with pytest.raises(Refused, match="something has changed"):
        await request.carry_out(request.seal)
    assert box.home.config.read_text(encoding="utf-8") == changed


async def test_what_is_written_but_not_in_use_is_said(box: Toolbox) -> None:
    async def reload() -> None:
        raise Unavailable("the keyring is locked")

    box = replace(box, deps=replace(box.deps, overrides=OverrideChanges(box.home, SECTIONS, box.deps.workers, reload)))
    port = RecordingPort()
    await propose(box, MINI, port)
    _, request = question(box, port)

    assert "It is written but not in use yet: the keyring is locked" in await request.carry_out(request.seal)


async def test_what_is_set_is_shown(box: Toolbox) -> None:
    result = await box.call(NAME, asking(), action="get")

    assert (result.ok, result.outside) == (True, False)
    assert "subagent_model = gpt-5.5\nsubagent_provider is not set" in result.text
    assert "xai: grok-4.3" in result.text


async def test_every_letter_of_a_name_is_shown_to_the_owner(box: Toolbox) -> None:
    port = RecordingPort()
    result = await box.call(
        NAME, asking(), port, action="propose", changes={"cron_model": "gpt-5.4\u2800mini"}, reason="a\u202eb"
    )

    assert result.ok
    text, _ = question(box, port)
    assert '+ cron_model = "gpt-5.4⟨U+2800⟩mini"' in text
    assert 'reason: "a⟨U+202E⟩b"' in text


async def test_a_question_that_cannot_be_shown_whole_is_not_asked(box: Toolbox) -> None:
    port, reason = RecordingPort(), "\u2800" * 300
    changes = {"cron_model": "\u2800" * 150}
    result = await box.call(NAME, asking(), port, action="propose", changes=changes, reason=reason)

    assert (result.ok, port.sent) == (False, [])
    assert "too long to show" in result.text


@pytest.mark.parametrize("arguments", [{"action": "propose"}, {"action": "propose", "changes": {"cron_model": "x"}}])
async def test_a_proposal_says_what_and_why(box: Toolbox, arguments: dict[str, str]) -> None:
    result = await box.call(NAME, asking(), **arguments)

    assert (result.ok, result.text) == (False, "a proposal needs changes and a reason; action get shows what is set")


@pytest.mark.parametrize(
    "turn",
    [make_turn(), asking(Trust.GUEST), replace(asking(), attended=False), replace(asking(), parent_id="t0")],
    ids=["no seam", "guest", "unattended", "delegated"],
)
async def test_who_may_not_ask_is_refused_where_it_happens(box: Toolbox, turn: Turn) -> None:
    """R-19."""
    port = RecordingPort()
    result = await box.call(NAME, turn, port, action="propose", changes=dict(MINI), reason="please")

    assert (result.ok, result.denied, port.sent) == (False, True, [])
