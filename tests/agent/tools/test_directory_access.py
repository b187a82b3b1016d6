"""request_directory_access through the dispatcher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fermix.agent.approvals import Origin, Pending, Seam
from fermix.agent.turn import Turn
from fermix.message import ApprovalPrompt
from fermix.trust import Trust
from tests.agent.tools.conftest import Toolbox
from tests.fakes.turns import RecordingPort, make_turn
from tests.requirements import covers

NAME = "request_directory_access"


def asking(trust: Trust = Trust.OPERATOR) -> Turn:
    turn = make_turn(trust=trust)
    return replace(turn, seam=Seam(Origin.of(turn.message), shared=False))


async def test_the_owner_is_asked_and_the_turn_goes_on(toolbox: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    port, turn = RecordingPort(), asking()
    result = await toolbox.call(NAME, turn, port, path=str(tmp_path / "photos"), reason="to sort them")
    again = await toolbox.call(NAME, turn, port, path=f"{tmp_path}/./photos", reason="once more")

    assert (result.ok, again.ok) == (True, True)
    assert "End your turn now" in result.text
    (prompt,) = port.sent
    assert isinstance(prompt, ApprovalPrompt)
    assert f'"{tmp_path}/photos"' in prompt.text
    assert 'reason: "to sort them"' in prompt.text
    assert prompt.token not in prompt.text + result.text
    taken = toolbox.approvals.take(prompt.token, turn.message, local=True)
    assert isinstance(taken, Pending)
    assert "Done." in await taken.request.carry_out(taken.request.seal)
    assert (await toolbox.call("glob_search", turn, pattern="*", path=str(tmp_path / "photos"))).ok


@covers("approval.tool.advertised")
@pytest.mark.parametrize(
    "turn",
    [
        make_turn(),
        asking(Trust.GUEST),
        replace(asking(), attended=False),
        replace(asking(), parent_id="t0"),
    ],
    ids=["no seam", "guest", "unattended", "delegated"],
)
async def test_who_may_not_ask_is_refused_where_it_happens(toolbox: Toolbox, tmp_path: Path, turn: Turn) -> None:
    """R-19: even if a turn had got hold of the tool, it asks nobody."""
    port, photos = RecordingPort(), tmp_path / "photos"
    photos.mkdir()
    result = await toolbox.call(NAME, turn, port, path=str(photos), reason="please")

    assert not turn.may_ask
    assert (result.ok, result.denied, port.sent) == (False, True, [])


async def test_an_open_folder_is_answered_at_once(toolbox: Toolbox) -> None:
    port = RecordingPort()
    result = await toolbox.call(NAME, asking(), port, path=str(toolbox.workspace), reason="please")

    assert (result.ok, port.sent) == (True, [])
    assert "open to you already" in result.text


@pytest.mark.parametrize("path", ["/", "~", "~/.ssh", "/etc", "photos", "/nowhere"])
async def test_what_would_be_refused_is_never_asked(toolbox: Toolbox, path: str) -> None:
    port = RecordingPort()
    result = await toolbox.call(NAME, asking(), port, path=path, reason="please")

    assert (result.ok, result.denied, port.sent) == (False, True, [])
