"""What comes in and is no request, and what becomes of a right that is taken away while somebody waits."""

from __future__ import annotations

import asyncio

import pytest

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.gateway import Access
from fermix.message import InboundKind
from fermix.trust import Trust
from tests.fakes.channel import FakeAgent, completed, message
from tests.gateway.conftest import Install
from tests.requirements import covers


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
