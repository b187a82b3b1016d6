"""Rights never grow: random chains over message, command, approval, grant and resumed request."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermix.agent import approvals
from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.gateway import Access, Authorizer, authorize, command
from fermix.gateway.authorize import Authorization, lesser
from fermix.trust import Trust
from tests.fakes.channel import FakeAgent, completed, message
from tests.gateway.asking import CODE, ID, Scene, scene_in
from tests.gateway.conftest import Install

EXAMPLES = int(os.environ.get("FERMIX_PROOF_EXAMPLES", "40"))
TRUST = {"1": Trust.OPERATOR, "2": Trust.GUEST, "3": Trust.GUEST}  # what ACCESS gives; anybody else has nothing
TEXTS = (
    "look for me",
    "/grant path {shut}",
    "/grant path {shut}/..",
    "/revoke path {shut}",
    "/sandbox mode open",
    "/sandbox mode strict",
    "/sandbox mode standard",
    "/confirm {code}",
    "/confirm {id}",
    "/deny {code}",
    "/new",
    "/stop",
)


class Link(NamedTuple):
    """One thing that somebody does. `pick` chooses among the codes that were ever shown, whoever saw them."""

    who: str
    where: str
    text: str
    pick: int


LINKS = st.builds(
    Link,
    who=st.sampled_from(["1", "2", "3", "4", "terminal", "program"]),
    where=st.sampled_from(["direct", "group", "group button"]),
    text=st.sampled_from(TEXTS),
    pick=st.integers(0, 3),
)


async def follow(folder: Path, links: list[Link]) -> None:
    """Do one thing after the other; after each, nobody may hold what its doer lacked."""
    async with scene_in(folder, buttons=True) as scene:
        texts: list[str] = []
        for link in links:
            before = open_paths(scene)
            texts += await do(scene, link, texts)
            gained = {path for path in open_paths(scene) if not any(path.is_relative_to(held) for held in before)}
            owner = link.who in ("1", "terminal")
            assert not gained or (owner and link.text.startswith("/confirm")), (link, gained)
            assert all(asked_for(path, texts) for path in gained), (link, gained)
        for turn in scene.turns:
            assert_no_more_than(turn)


async def do(scene: Scene, link: Link, texts: list[str]) -> list[str]:
    codes = [code for text in texts for code in CODE.findall(text)] or ["AAAAAAAA"]
    ids = [prompt_id for text in texts for prompt_id in ID.findall(text)] or ["0" * 12]
    text = link.text.format(shut=scene.shut, code=codes[link.pick % len(codes)], id=ids[link.pick % len(ids)])
    if link.who in ("terminal", "program"):
        said = await scene.type(text, attended=link.who == "terminal")
    else:
        kind = "button" if link.where == "group button" else "message"
        chat, private = ("direct", True) if link.where == "direct" else ("group", False)
        settles = 0 if link.who == "4" else 1
        said = await scene.say(text, sender=link.who, chat=chat, private=private, kind=kind, settles=settles)
    await scene.idle()
    return said


def open_paths(scene: Scene) -> set[Path]:
    return {root.path for root in scene.policy.sandbox.standing()}


def asked_for(path: Path, texts: list[str]) -> bool:
    """Whether some question has shown that this folder would open."""
    return any(f'opens: "{path}"' in text and "/confirm" in text for text in texts)


def assert_no_more_than(turn: Turn) -> None:
    sender, local = turn.message.sender.id, turn.message.origin is not None
    attended = turn.message.origin is None or turn.message.origin.attended
    assert turn.trust is (Trust.OPERATOR if local else TRUST[sender or ""])
    assert turn.attended is attended
    assert turn.may_ask is (turn.trust is Trust.OPERATOR and attended)


def run(links: list[Link]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(follow(Path(folder), links))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(LINKS, max_size=12))
def test_no_link_of_a_chain_holds_a_right_that_its_creator_lacked(links: list[Link]) -> None:
    """Issue 3, tests; R-7, R-20."""
    run(links)


def _anybody(self: command.Command, sender: authorize.Authorization) -> bool:
    return True


def _anywhere(pending: approvals.Pending, code: str, answer: object, *, local: bool) -> bool:
    return True


def _always(message: object) -> bool:
    return True


LADDER = {
    "operator": Access(local=False, owner="1"),
    "commander": Access(local=False, owner="9", listed=frozenset({"1"}), commanders=frozenset({"1"})),
    "guest": Access(local=False, owner="9", listed=frozenset({"1"})),
    "nobody": Access(local=False, owner="9"),
}


@pytest.mark.parametrize("now", LADDER)
@pytest.mark.parametrize("then", ["operator", "commander", "guest"])
async def test_what_a_start_takes_up_has_the_lesser_right_of_then_and_now(
    install: Install, then: str, now: str
) -> None:
    """R-20: neither a right that was given meanwhile nor one that was taken away comes back with an old message."""
    said = message("look for me", channel="chat", sender="1")
    accepted = Authorizer({"chat": LADDER[then]}).resolve(said)
    assert isinstance(accepted, Authorization)
    async with install.ledger() as ledger:
        await ledger.accept(said, accepted.trust, commands=accepted.commands)
    turns: list[Turn] = []

    async def remembers(turn: Turn, port: ReplyPort) -> TurnOutcome:
        turns.append(turn)
        return completed("done")

    install.access = {"chat": LADDER[now]}
    async with install.start(FakeAgent(remembers)) as life:
        await life.gateway.lanes.idle()

    operator = then == now == "operator"
    trust = Trust.OPERATOR if operator else Trust.GUEST
    assert [(turn.trust, turn.may_ask) for turn in turns] == ([] if now == "nobody" else [(trust, operator)])
    assert install.outcomes() == {"m1": "refused" if now == "nobody" else "answered"}


AUTHORIZATIONS = st.builds(Authorization, st.sampled_from(Trust), st.booleans())


@given(st.lists(AUTHORIZATIONS, min_size=1, max_size=10))
def test_what_is_joined_has_no_right_that_a_part_of_it_lacks(parts: list[Authorization]) -> None:
    """R-7, R-20: one check for all: an album, a message of an earlier start."""
    joined = lesser(*parts)

    assert joined.commands is all(part.commands for part in parts)
    assert (joined.trust is Trust.OPERATOR) is all(part.trust is Trust.OPERATOR for part in parts)
    assert lesser(joined, *parts) == joined


ASK = Link("1", "direct", "/grant path {shut}", 0)


@pytest.mark.parametrize(
    ("owner", "name", "broken", "links"),
    [
        (command.Command, "allows", _anybody, [ASK, Link("2", "direct", "/confirm {code}", 0)]),
        (command, "is_attended", _always, [Link("terminal", "direct", "/grant path {shut}", 0),
                                           Link("program", "direct", "/confirm {code}", 0)]),
    ],
    ids=["commands of anybody", "programs as persons"],
)  # fmt: skip
def test_the_property_sees_a_broken_gateway(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, broken: Callable[..., bool], links: list[Link]
) -> None:
    """A check that cannot fail shows nothing: with this guard gone the chain must be caught."""
    monkeypatch.setattr(owner, name, broken)
    if owner is command.Command:
        monkeypatch.setattr(approvals, "_may_answer", _anywhere)

    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run(links)
