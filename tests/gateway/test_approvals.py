"""Approvals from end to end: the real tool, gateway, policy and config file; only model and platform are fakes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator
from fermix.gateway import Access, Ledger
from fermix.gateway.commands.confirm import REJECTED
from fermix.gateway.ledger import Entry
from fermix.message import ApprovalPrompt, Message
from tests.fakes.channel import FakeChannel, message
from tests.fakes.platform import Fault
from tests.gateway.asking import CODE, ID, found, scene_in
from tests.requirements import covers


@covers("approval.resume", "approval.seam.operator", "approval.text-elsewhere")
async def test_after_a_yes_the_request_runs_again_by_itself(tmp_path: Path) -> None:
    """Ingress and trust, approvals: on a chat channel the original request auto-resumes, under a random id."""
    async with scene_in(tmp_path) as scene:
        asked = await scene.say("sort my photos")
        assert f'"{scene.shut}"' in asked[0]
        answers = await scene.say(f"/confirm {found(CODE, asked)}", settles=2)

        assert scene.opened
        assert "Your request runs again now." in answers[0]
        assert "open to you already" in answers[1]
        first, again = scene.agent.started
        assert first == "m1"
        assert re.fullmatch(r"resumed-[0-9a-f]{32}", again)


async def test_a_request_that_cannot_run_again_is_told_so_in_the_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the model of the gateway: the owner heard that it runs again, and then that something went wrong."""
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.say("sort my photos"))
        accept = Ledger.accept

        async def full(self: Ledger, message: Message, *rest: object, **more: object) -> Entry | None:
            if message.id.startswith("resumed-"):
                raise NeedsOperator("the disk is full", advice="free some space")
            return await accept(self, message, *rest, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(Ledger, "accept", full)
        (answer,) = await scene.say(f"/confirm {code}")

        assert scene.opened
        assert answer.startswith("Done.")
        assert answer.endswith("Your request could not be started again; please send it once more.")


async def test_a_resumed_request_is_authorized_anew(tmp_path: Path) -> None:
    """R-20: rights never grow along the way; an owner who was replaced meanwhile gets nothing."""
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.say("sort my photos"))
        pending = scene.gateway._rooms.approvals.take(code, message("", channel="chat", sender="1"), local=False)
        scene.authorizer.use({"chat": Access(local=False, owner="9")})
        await pending.seam.resume()  # type: ignore[union-attr, misc]

        assert scene.agent.started == ["m1"]
        assert [row.sender for row in scene.authorizer.denied()] == ["1"]


async def test_at_the_terminal_the_owner_asks_again(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.type("sort my photos"))
        answers = await scene.type(f"/confirm {code}")

        assert scene.opened
        assert answers[-1].endswith("Now send your request again.")
        assert len(scene.agent.started) == 1


async def test_deny_takes_the_question_away(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.say("sort my photos"))

        assert await scene.say(f"/deny {code}") == ["Refused. Nothing was changed."]
        assert "I know no such question" in (await scene.say(f"/confirm {code}"))[0]
        assert not scene.opened


@covers("approval.token.origin", "approval.check-then-take", "approval.confirm.strict")
async def test_wrong_answers_burn_nothing(tmp_path: Path) -> None:
    """Ingress and trust, approvals: from the wrong place or person it is rejected, and the owner's token lives on."""
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.say("sort my photos"))

        assert "for the owner" in (await scene.say(f"/confirm {code}", sender="2"))[0]
        assert "for the owner" in (await scene.say(f"/deny {code}", sender="3"))[0]
        assert await scene.say(f"/confirm {code}", sender="4", settles=0) == []
        assert "another conversation" in (await scene.say(f"/confirm {code}", chat="other"))[0]
        assert "another conversation" in (await scene.say(f"/deny {code}", thread="t2"))[0]
        assert "another conversation" in (await scene.type(f"/confirm {code}"))[-1]
        assert "no such question" in (await scene.say("/confirm AAAAAAAA"))[0]
        assert "Put the code" in (await scene.say("/confirm  "))[0]
        assert not scene.opened
        await scene.say(f"/confirm {code}", settles=2)
        assert scene.opened


@covers("approval.token.once-60s")
async def test_a_late_answer_changes_nothing_and_says_so(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.say("sort my photos"))
        scene.clock.advance(60)

        assert "more than a minute ago" in (await scene.say(f"/confirm {code}"))[0]
        assert not scene.opened


async def test_a_double_press_does_it_once(tmp_path: Path) -> None:
    """R-27: claimed atomically; the one that loses is told that there is no such question."""
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.say("sort my photos"))
        for name in ("a", "b", "c"):
            await scene.gateway.ingest(message(f"/confirm {code}", id=name, channel="chat", sender="1"), scene.chat)
        await scene.say("/whoami", settles=5)
        texts = [entry.text for entry in scene.chat.platform.log("send")]

        assert sum("Done." in text for text in texts) == 1
        assert sum("no such question" in text for text in texts) == 2
        assert len(list((tmp_path / "user/.fermix/grants").iterdir())) == 1


async def test_what_changed_since_the_question_is_not_done(tmp_path: Path) -> None:
    """R-25: the sealed folder was exchanged for a link to another one."""
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.say("sort my photos"))
        scene.shut.rmdir()
        (tmp_path / "secret").mkdir()
        scene.shut.symlink_to(tmp_path / "secret")

        assert "changed since you were asked" in (await scene.say(f"/confirm {code}"))[0]
        assert len(scene.policy.sandbox.standing()) == 1
        assert len(scene.agent.started) == 1


@covers("approval.button.same-path", "approval.shared.withheld", "approval.shared.other-ways")
@pytest.mark.parametrize("way", ["button", "direct", "terminal"])
async def test_in_a_shared_chat_the_code_is_withheld_and_three_ways_remain(tmp_path: Path, way: str) -> None:
    """Ingress and trust, approvals: approve from the button, a direct message, or the CLI."""
    async with scene_in(tmp_path, buttons=True) as scene:
        asked = await scene.say("sort my photos", chat="group", private=False)
        prompt_id = found(ID, asked)
        assert CODE.search(asked[0]) is None
        assert [entry.key for entry in scene.chat.platform.log("ask")] == [prompt_id]

        assert "another conversation" in (await scene.say(f"/confirm {prompt_id}", chat="group", private=False))[0]
        assert "another conversation" in (await scene.say(f"/confirm {prompt_id}", chat="group 2", private=False))[0]
        if way == "button":
            await scene.tap(prompt_id, settles=2)
        elif way == "direct":
            await scene.say(f"/confirm {prompt_id}", chat="direct", settles=2)
        else:
            await scene.type(f"/confirm {prompt_id}")
            async with asyncio.timeout(5):
                while len(scene.agent.started) < 2:
                    await asyncio.sleep(0)
        assert scene.opened
        assert len(scene.agent.started) == 2


@covers("approval.shared.withheld")
async def test_in_a_shared_chat_not_even_the_adapter_is_given_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-21: what it does not have it cannot put on a button."""
    tokens: list[str] = []

    async def ask(channel: FakeChannel, message: Message, prompt: ApprovalPrompt) -> str:
        tokens.append(prompt.token)
        return prompt.id

    monkeypatch.setattr(FakeChannel, "ask", ask)
    async with scene_in(tmp_path, buttons=True) as scene:
        await scene.say("sort my photos", chat="group", private=False)

    assert tokens == [""]


async def test_in_a_private_chat_the_buttons_stand_beside_the_code(tmp_path: Path) -> None:
    async with scene_in(tmp_path, buttons=True) as scene:
        asked = await scene.say("sort my photos")

        assert found(CODE, asked)
        assert len(scene.chat.platform.log("ask")) == 1


@covers("approval.tap.before-token")
async def test_a_tap_of_anybody_else_is_refused_before_the_token_is_read(tmp_path: Path) -> None:
    """Ingress and trust, approvals; R-16, R-21: a stranger's tap is silent, a guest's is refused; neither burns it."""
    async with scene_in(tmp_path, buttons=True) as scene:
        prompt_id = found(ID, await scene.say("sort my photos", chat="group", private=False))

        assert await scene.tap(prompt_id, sender="4", settles=0) == []
        assert "for the owner" in (await scene.tap(prompt_id, sender="2"))[0]
        assert await scene.tap(prompt_id, yes=False) == ["Refused. Nothing was changed."]
        assert "no such question" in (await scene.tap(prompt_id))[0]


async def test_the_same_request_is_asked_once(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        await scene.say("sort my photos")
        texts = await scene.say("sort my photos, please")

        assert [text for text in texts if "/confirm" in text] == []


@covers("approval.seam.operator", "approval.tool.advertised")
async def test_guests_and_programs_have_no_way_to_ask(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        guest = await scene.say("sort my photos", sender="2")
        program = await scene.type("sort my photos", attended=False)

        assert "cannot be asked in this turn" in guest[0]
        assert "cannot be asked in this turn" in program[-1]
        assert [turn.seam for turn in scene.turns] == [None, None]


async def test_a_program_without_a_person_answers_nothing(tmp_path: Path) -> None:
    """Issue 3, approvals: refused before the token is read, so the owner's own answer still counts."""
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.type("sort my photos"))
        for text in (f"/confirm {code}", f"/deny {code}", f"/grant path {scene.shut}", "/sandbox mode open", "/stop"):
            assert "runs without a person" in (await scene.type(text, attended=False))[-1]
        assert not scene.opened
        await scene.type(f"/confirm {code}")
        assert scene.opened


async def test_a_question_that_cannot_be_sent_is_none(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        scene.chat.platform.fail("send", Fault())

        assert (await scene.say("sort my photos"))[-1].startswith("no: ")
        assert found(CODE, await scene.say("sort my photos"))


async def test_a_question_too_long_for_the_channel_is_refused_not_cut(tmp_path: Path) -> None:
    """R-26."""
    async with scene_in(tmp_path, text_limit=120) as scene:
        texts = await scene.say("sort my photos")

        assert "too long to show whole" in texts[0]
        assert CODE.search(texts[0]) is None


@covers("approval.confirm.strict", "sandbox.grants.roots")
async def test_a_typed_grant_is_confirmed_and_a_revoke_is_not(tmp_path: Path) -> None:
    """Reference 3, section 5.3: what opens anything asks first, what closes is done."""
    async with scene_in(tmp_path) as scene:
        (tmp_path / "two words").mkdir()
        asked = await scene.say(f"/grant path {tmp_path}/two words")
        assert not any(root.source == "grant" for root in scene.policy.sandbox.standing())
        assert await scene.say(f"/grant path {tmp_path}/two words") == [
            "I have asked you that already; answer the question above."
        ]
        confirmed = await scene.say(f"/confirm {found(CODE, asked)}")
        explained = await scene.say("/sandbox explain")
        revoked = await scene.say(f"/revoke path {tmp_path}/two words")

        assert confirmed[0].startswith("Done.")
        assert f"grant: {tmp_path}/two words" in explained[0]
        assert f'- allowed_roots: "{tmp_path}/two words"' in revoked[0]
        assert scene.agent.started == []
        assert "1 granted folder" not in (await scene.say("/sandbox"))[0]


async def test_a_variable_and_a_program_are_granted_like_a_folder(tmp_path: Path) -> None:
    """Reference 3, section 5.2; issue 4: the same words, question and record in a chat."""
    async with scene_in(tmp_path) as scene:
        asked = await scene.say("/grant env TICKETS")
        await scene.say(f"/confirm {found(CODE, asked)}")
        asked = await scene.say("/grant command say -- /usr/bin/date '+two words'")
        assert 'commands.say.args = ["+two words"]' in asked[0]
        await scene.say(f"/confirm {found(CODE, asked)}")
        listed = (await scene.say("/sandbox env"))[0], (await scene.say("/sandbox commands"))[0]
        revoked = await scene.say("/revoke command say")

        assert "TICKETS: has no value: the daemon has none" in listed[0]
        assert "run_say: /usr/bin/date" in listed[1]
        assert revoked[0].startswith("Done.")
        assert len(list((tmp_path / "user/.fermix/grants").iterdir())) == 3


async def test_a_path_is_explained_to_the_owner_alone(tmp_path: Path) -> None:
    """Where a link leads is nobody else's business."""
    async with scene_in(tmp_path) as scene:
        assert "closed: protected" in (await scene.say("/sandbox explain ~/.ssh/a b"))[0]
        assert "open: it lies in the workspace" in (await scene.say("/sandbox explain ~/.fermix/workspace"))[0]
        assert "Only the owner" in (await scene.say("/sandbox explain /etc", sender="2"))[0]


@pytest.mark.parametrize(
    "text",
    ["/grant", "/grant /x", "/grant path", "/revoke x", "/sandbox mode", "/sandbox what", "/grant env",
     "/grant env A B", "/grant command x --", "/sandbox env set X date", "/sandbox env 'open",
     "/sandbox commands enable x"],
)  # fmt: skip
async def test_any_other_form_gets_the_usage(tmp_path: Path, text: str) -> None:
    async with scene_in(tmp_path) as scene:
        assert (await scene.say(text))[0].startswith("Write `/grant path FOLDER`")


@pytest.mark.parametrize(
    ("text", "sender", "answer"),
    [
        ("/grant path /tmp", "2", "for the owner"),
        ("/revoke path /tmp", "2", "for the owner"),
        ("/sandbox mode open", "2", "only the owner"),
        ("/sandbox env allow TICKETS", "2", "only the owner"),
        ("/sandbox env set TICKETS -- date", "2", "only the owner"),
        ("/sandbox commands enable dev_tools", "2", "only the owner"),
        ("/sandbox env deny TICKETS", "2", "Done."),
        ("/grant env TICKETS", "2", "for the owner"),
        ("/grant command x -- /usr/bin/date", "2", "for the owner"),
        ("/grant env LD_PRELOAD", "1", "never passed"),
        ("/grant command x -- /bin/sh", "1", "runs whatever it is given"),
        ("/sandbox mode standard", "3", "for the owner"),
        ("/sandbox mode strict", "2", "Done."),
        ("/sandbox mode standard", "1", "is standard already"),
        ("/revoke path /tmp", "1", "There is no grant"),
        ("/grant path ~", "1", "holds, a home"),
    ],
)
async def test_who_may_change_what(tmp_path: Path, text: str, sender: str, answer: str) -> None:
    """Issue 3, step 7: the strict set is never by the allow list; who may run commands may only narrow."""
    async with scene_in(tmp_path) as scene:
        assert answer in (await scene.say(text, sender=sender))[0]


async def test_a_refusal_starts_nothing_that_could_ask_again(tmp_path: Path) -> None:
    """QUE-03: no turn waits for the answer, so none can try a variant of what was refused."""
    async with scene_in(tmp_path) as scene:
        code = found(CODE, await scene.say("sort my photos"))
        assert await scene.say(f"/deny {code}") == ["Refused. Nothing was changed."]
        await scene.idle()

        assert scene.agent.started == ["m1"]
        assert await scene.say(f"/confirm {code}") == [REJECTED["unknown"]]
        assert not scene.opened
