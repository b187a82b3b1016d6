"""Codes and buttons of questions in the hands of people who should not have them, and at the wrong time."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.agent.approvals import Approvals
from fermix.gateway import Access
from tests.gateway.asking import CODE, ID, found, scene_in
from tests.gateway.conftest import Install


async def test_who_quotes_a_code_answers_nothing(tmp_path: Path) -> None:
    """R-20: a code in somebody's mouth is text. Only a command of the operator takes it, and only as its whole rest."""
    async with scene_in(tmp_path) as scene:
        asked = await scene.say("sort my photos")
        code = found(CODE, asked)
        for sender in ("2", "3", "1"):
            for text in (f"> {asked[0]}", f"look: /confirm {code}", f"`/confirm {code}`", f".\n/confirm {code}"):
                await scene.say(text, sender=sender)
        await scene.say(f"/confirm {code} and {code}")
        assert not scene.opened
        await scene.say(f"/confirm {code}", settles=2)
        assert scene.opened


async def test_a_guess_of_anybody_else_is_not_even_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-19: refused before the code is read, so that there is nothing to measure and nothing to burn."""
    async with scene_in(tmp_path, buttons=True) as scene:
        prompt_id = found(ID, await scene.say("sort my photos", chat="group", private=False))
        monkeypatch.setattr(Approvals, "take", lambda *_args, **_named: pytest.fail("a code was looked up"))
        for sender in ("2", "3"):
            for text in ("/confirm AAAAAAAA", f"/confirm {prompt_id}", f"/deny {prompt_id}"):
                assert "for the owner" in (await scene.say(text, sender=sender, chat="group", private=False))[0]
            assert "for the owner" in (await scene.tap(prompt_id, sender=sender))[0]
        assert await scene.tap(prompt_id, sender="4", settles=0) == []
        assert "without a person" in (await scene.type(f"/confirm {prompt_id}", attended=False))[-1]


async def test_a_tap_that_comes_again_does_nothing(tmp_path: Path) -> None:
    """R-27: the same button, pressed again or delivered again, finds no question."""
    async with scene_in(tmp_path, buttons=True) as scene:
        prompt_id = found(ID, await scene.say("sort my photos", chat="group", private=False))
        await scene.tap(prompt_id, settles=2)
        await scene.say(f"/revoke path {scene.shut}", chat="group", private=False)

        assert "no such question" in (await scene.tap(prompt_id))[0]
        assert "no such question" in (await scene.tap(prompt_id, yes=False))[0]
        assert not scene.opened


async def test_no_question_outlives_the_process_that_asked_it(install: Install) -> None:
    """R-27: a restart means no, also for who still sees the question and its code."""
    shut = install.path.parent / "shut"
    shut.mkdir()
    async with install.start() as life:
        await life.say(f"/grant path {shut}", "m1")
        await life.settled(1)
    code = found(CODE, install.platform.texts())
    async with install.start() as life:
        await life.say(f"/confirm {code}", "m2")
        await life.settled(1)

    assert "I know no such question" in install.platform.texts()[-1]
    assert list(install.path.parent.glob("user/.fermix/grants/*")) == []


async def test_the_one_who_replaced_the_owner_cannot_answer_what_the_old_one_was_asked(tmp_path: Path) -> None:
    """R-27: bound to who was asked, in the chat where it was asked."""
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.say("sort my photos"))
        scene.authorizer.use({"chat": Access(local=False, owner="9")})

        assert await scene.say(f"/confirm {code}", sender="1", settles=0) == []
        assert "another conversation" in (await scene.say(f"/confirm {code}", sender="9"))[0]
        assert not scene.opened
