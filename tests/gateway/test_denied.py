"""What comes in and is no request, and what becomes of a right that is taken away while somebody waits."""

from __future__ import annotations

import ast
import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import fermix
from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.gateway import Access
from fermix.message import InboundKind, LocalOrigin
from fermix.trust import Trust
from tests.fakes.channel import FakeAgent, completed, message
from tests.gateway.conftest import Install
from tests.requirements import covers

PACKAGE = Path(fermix.__file__).parent


@pytest.mark.parametrize("who", ["owner", "guest"])
@pytest.mark.parametrize("kind", ["reaction", "join"])
async def test_what_asks_nothing_gets_no_answer(install: Install, kind: InboundKind, who: str) -> None:
    """A thumb up is no empty message: nothing is said, stored or run."""
    async with install.start() as open_:
        said = message("👍", channel="chat", sender="1" if who == "owner" else "2", kind=kind)
        await open_.gateway.ingest(said, open_.channel)

        assert (open_.channel.sent, open_.agent.started, open_.news.drain()) == ([], [], [])
    assert install.rows("SELECT * FROM inbox") == []


@covers("failclosed.inert")
@pytest.mark.parametrize("sender", ["1", "2"])
async def test_who_is_taken_off_is_denied_from_his_next_message_on(install: Install, sender: str) -> None:
    """Ingress and trust, authorization: judged once, when it comes. What waits already was allowed and is answered."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def waits(turn: Turn, port: ReplyPort) -> TurnOutcome:
        begun.set()
        await gate.wait()
        return completed(f"{turn.message.id} {turn.trust}")

    async with install.start(FakeAgent(waits)) as life:
        await life.say("runs", "m1", sender=sender)
        await life.say("waits", "m2", sender=sender)
        async with asyncio.timeout(5):
            await begun.wait()
        life.gateway._rooms.authorizer.use({"chat": Access(local=False, owner="9")})
        for number, text in enumerate(("comes late", "/stop", "/whoami", "/new")):
            await life.say(text, f"late {number}", sender=sender)
        gate.set()
        await life.settled(2)

    trust = Trust.OPERATOR if sender == "1" else Trust.GUEST
    assert install.platform.texts() == [f"m1 {trust}", f"m2 {trust}"]
    assert install.outcomes() == {"m1": "answered", "m2": "answered"}


async def test_a_stranger_gets_no_answer_even_to_whoami_and_the_owner_sees_his_id_until_a_restart(
    install: Install,
) -> None:
    """Issue 3, step 2: `fermix channels` shows the last few denied ids, held in memory only."""
    async with install.start() as life:
        await life.say("/whoami", sender="stranger-7")
        denied = life.gateway._rooms.authorizer.denied()
    async with install.start() as later:
        forgotten = later.gateway._rooms.authorizer.denied()

    assert [(row.channel, row.sender, row.times) for row in denied] == [("chat", "stranger-7", 1)]
    assert (install.platform.log(), install.rows("SELECT * FROM inbox"), forgotten) == ([], [], [])


@pytest.mark.parametrize("sender", ["1", "2"])
async def test_who_is_taken_off_while_he_waits_is_refused_by_the_next_start(install: Install, sender: str) -> None:
    """A start judges anew what an earlier one has accepted: the row ends and nothing runs."""
    async with install.ledger() as ledger:
        said = message("hi", id="m1", channel="chat", sender=sender)
        await ledger.accept(said, Trust.OPERATOR if sender == "1" else Trust.GUEST)
    install.access = {"chat": Access(local=False, owner="9")}
    async with install.start() as life:
        await life.gateway.lanes.idle()

    assert (life.agent.started, install.platform.log()) == ([], [])
    assert install.outcomes() == {"m1": "refused"}


async def test_a_channel_speaks_for_itself_alone(install: Install) -> None:
    """R-6: whatever a platform sends, it cannot pass for the terminal or for another platform."""
    async with install.start() as life:
        for name in ("cli", "daemon", "telegram", "Chat"):
            await life.gateway.ingest(message("hi", channel=name, sender="1"), life.channel)

        assert (life.channel.sent, life.agent.started, life.news.drain()) == ([], [], [])
    assert install.rows("SELECT * FROM inbox") == []


async def test_nobody_far_away_stands_at_this_machine(install: Install) -> None:
    """R-6: an origin is what the socket makes for its peer; on a remote channel it is a forgery."""
    async with install.start() as life:
        said = replace(message("hi", channel="chat", sender="1"), origin=LocalOrigin(Path("/")))
        await life.gateway.ingest(said, life.channel)

        assert (life.channel.sent, life.agent.started, life.news.drain()) == ([], [], [])


def test_trust_is_made_in_one_place() -> None:
    """R-6: nothing else in the product makes a verdict, and only the socket says where somebody stands."""
    makers: dict[str, set[str]] = {"Authorization": set(), "LocalOrigin": set()}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
                makers[node.func.id].add(path.relative_to(PACKAGE).as_posix())

    assert makers == {
        "Authorization": {"gateway/authorize.py", "gateway/recovery.py"},  # the latter as a row of the ledger holds it
        "LocalOrigin": {"daemon/answers.py"},
    }
