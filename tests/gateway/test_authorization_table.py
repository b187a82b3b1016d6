"""The table of `authorization_table.py`, walked from config.toml to the verdict and on to what people would notice."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.config.load import build
from fermix.gateway import Access, Authorizer
from fermix.gateway.authorize import Authorization, Denial
from fermix.gateway.command import why_refused
from fermix.gateway.commands.catalog import COMMANDS as CATALOG
from fermix.home import Home
from fermix.message import Attachment, InboundKind, LocalOrigin, Message, Sender
from fermix.trust import Trust
from fermix.visible import spelled
from tests.fakes.channel import EVERY_ABILITY, FakeAgent, FakeChannel, completed, message
from tests.fakes.platform import Platform
from tests.gateway.authorization_table import (
    COMMANDS,
    IDS,
    LOCAL,
    RULES,
    SPECS,
    UNKNOWN,
    WHO,
    Right,
    Rule,
    Verdict,
    config_of,
    filled,
    rules_for,
)  # fmt: skip
from tests.gateway.conftest import Install, Open
from tests.requirements import covers

KINDS = get_args(InboundKind)
ASKS_NOTHING = {"reaction", "join"}
MEANS: dict[Verdict, Authorization | Denial] = {
    "operator": Authorization(Trust.OPERATOR, commands=True),
    "commander": Authorization(Trust.GUEST, commands=True),
    "guest": Authorization(Trust.GUEST, commands=False),
    "nobody": Denial("unauthorized"),
    "unknown": Denial("unknown_channel"),
}
EVIL = 'jo"\n2026-01-01 WARNING \x1b[31m\u202e\0' + "x" * 10_000


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the table: who writes, under which rules, and what he is then."""

    what: str
    rules: dict[str, Access]
    said: Message
    verdict: Verdict


@cache
def access(rule: Rule, channel: str) -> Access:
    """Read the section as the daemon would."""
    spec = SPECS[channel]
    return spec.access(build(config_of(rule, channel), Home(Path("/nowhere")), {}, {spec.section: spec.settings}))


def cells(channel: str) -> Iterable[Cell]:
    """Every rule that can be stated for a channel, with every inbound kind."""
    local = dict.fromkeys(LOCAL, Access(local=True))
    for kind, rule in product(KINDS, rules_for(channel) if channel in SPECS else RULES):
        ids = channel if channel in SPECS else "telegram"
        sender = None if rule.sender is None else filled(rule.sender, ids)
        said = message("hello", channel=channel, sender=sender, kind=kind)
        said = replace(said, sender=Sender(sender, filled(rule.name, ids)))
        known = {channel: access(rule, channel)} if channel in SPECS else {}
        verdict = "operator" if channel in LOCAL else rule.verdict if channel in SPECS else "unknown"
        yield Cell(f"{kind}: {rule.what}", {**local, **known}, said, verdict)


def test_the_table_knows_every_channel_and_every_rule_of_the_spec() -> None:
    assert set(IDS) == set(SPECS)
    assert {rule.number for rule in RULES} == {3, 4, 5, 6}  # 1 and 2 are the local and the unknown channels
    assert len({(rule.what, rule.only) for rule in RULES}) == len(RULES)


@covers(
    "auth.rule1.local", "auth.rule2.unknown-channel", "auth.rule3.no-sender", "auth.rule4.owner", "auth.rule5.listed",
    "auth.rule6.otherwise", "auth.no-allow-all", "owner.friend-stays-guest", "owner.command-fallback",
    "owner.two-need-explicit", "trust.two-levels", "failclosed.inert",
)  # fmt: skip
@pytest.mark.parametrize("channel", [*LOCAL, *SPECS, *UNKNOWN])
def test_the_six_rules_in_their_order(channel: str) -> None:
    """Ingress and trust, authorization rules; R-14, R-15, R-16: first match wins, whatever kind of event it is."""
    wrong = [cell.what for cell in cells(channel) if Authorizer(cell.rules).resolve(cell.said) != MEANS[cell.verdict]]

    assert wrong == []


@dataclass
class Walk:
    """A gateway in front of one channel that remembers every turn, and the sender's place in the table by its id."""

    life: Open
    authorizer: Authorizer
    turns: list[Turn]

    async def ingest(self, number: int, cell: Cell) -> None:
        self.authorizer.use(cell.rules)
        said = replace(cell.said, id=f"m{number}", chat_id=f"chat {number}")
        await self.life.gateway.ingest(said, self.life.channel)

    async def idle(self) -> None:
        async with asyncio.timeout(30):
            await self.life.gateway.lanes.idle()


@asynccontextmanager
async def walking(install: Install, channel: str) -> AsyncGenerator[Walk]:
    turns: list[Turn] = []

    async def answers(turn: Turn, port: ReplyPort) -> TurnOutcome:
        turns.append(turn)
        return completed("hello to you")

    install.clock._moves_itself = False  # rows that are a day old would go
    fake = FakeChannel(channel, platform=Platform(files={"f1": b"x"}), can=EVERY_ABILITY - {"drafts"})
    async with install.start(FakeAgent(answers), fake) as life:
        authorizer = Authorizer({})
        life.gateway._rooms = replace(life.gateway._rooms, authorizer=authorizer)
        yield Walk(life, authorizer, turns)


@covers("ingress.deny.silent", "ingress.deny.no-agent", "ingress.deny.logged")
@pytest.mark.parametrize("channel", [*LOCAL, *SPECS, UNKNOWN[0]])
async def test_what_the_agent_sees_of_each_sender_and_that_it_sees_nobody_else(
    install: Install, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R-6, R-16: the turn holds the trust of the table; who has none leaves no row, no file, no reply, no typing and no
    event behind, whatever he sends, and one line in the log.
    """
    table = {f"m{number}": cell for number, cell in enumerate(cells(channel))}
    denied = {name for name, cell in table.items() if cell.verdict in ("nobody", "unknown")}
    heard = {name for name, cell in table.items() if cell.said.kind not in ASKS_NOTHING} - denied
    async with walking(install, channel) as walk:
        with caplog.at_level(logging.WARNING, "fermix.gateway"):
            for number, cell in enumerate(table.values()):
                await walk.ingest(number, with_a_file(cell) if f"m{number}" in denied else cell)
        await walk.idle()
        platform, events = walk.life.channel.platform, [item.event for item in walk.life.news.drain()]

    wrong = {table[turn.message.id].what for turn in walk.turns if turn.trust is not trust_of(table[turn.message.id])}
    assert wrong == set()
    assert Counter(turn.message.id for turn in walk.turns) == Counter(heard)
    assert {name for (name,) in install.rows("SELECT message_id FROM inbox")} == heard
    assert {entry.answers for entry in platform.log("send", "typing", "react", "ask")} <= heard
    assert (platform.log("download"), platform.downloaded_bytes) == ([], 0)
    assert {getattr(event, "message_id", None) for event in events} - {None} == heard
    assert len(caplog.records) == len(denied)


def with_a_file(cell: Cell) -> Cell:
    picture = Attachment("image", "f1", "image/png")
    return replace(cell, said=replace(cell.said, text="/whoami", attachments=(picture,)))


def trust_of(cell: Cell) -> Trust:
    return Trust.OPERATOR if cell.verdict == "operator" else Trust.GUEST


@pytest.mark.parametrize("sender", ["66", "*", "@owner", EVIL, "\ud800", "\u3164", None, " "])
async def test_the_line_about_a_denied_sender_is_one_and_short_and_shows_the_id(
    install: Install, sender: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 3, step 2: nothing that a stranger calls himself writes a second line, moves the cursor or fills a disk."""
    said = replace(message("hi", channel="chat", chat=EVIL, id=EVIL), sender=Sender(sender, EVIL))
    async with install.start() as life:
        with caplog.at_level(logging.WARNING):
            await life.gateway.ingest(said, life.channel)

    (line,) = [record.getMessage() for record in caplog.records]
    assert line.isprintable()
    assert len(line) < 1_000
    assert f"sender {repr(sender and spelled(sender))[:20]}" in line


def test_the_table_of_commands_is_whole() -> None:
    assert {command.name for command in CATALOG} == set(COMMANDS)
    assert {len(row) for row in COMMANDS.values()} == {len(WHO)}


def senders() -> dict[str, tuple[dict[str, Access], Message]]:
    """Everybody whom the table of commands names, with the section of config.toml that makes him so."""
    both = next(rule for rule in RULES if rule.what == "a guest")
    sole = next(rule for rule in RULES if rule.what == "the sole entry without an owner")
    listed = next(rule for rule in RULES if rule.what == "a guest on the command list")
    typed = message("x", channel="cli")
    remote: dict[str, tuple[Rule, str]] = {
        "owner": (both, "{owner}"),
        "sole entry": (sole, "{guest}"),
        "command list": (listed, "{guest}"),
        "guest": (both, "{guest}"),
    }
    return {
        "local": ({"cli": Access(local=True)}, typed),
        "local program": ({"cli": Access(local=True)}, replace(typed, origin=LocalOrigin(None, attended=False))),
        **{
            who: (
                {"telegram": access(rule, "telegram")},
                message("x", channel="telegram", sender=filled(sender, "telegram")),
            )
            for who, (rule, sender) in remote.items()
        },
    }


def right_of(text: str) -> Right:
    """Read the right out of what the sender is told."""
    if text.endswith("is for the owner of this agent."):
        return "owner"
    return "person" if "refused to a program that runs without a person" in text else "runs"


@covers("config.command-allowlist", "config.command-allowlist.absent")
@pytest.mark.parametrize("who", WHO)
async def test_who_may_run_which_command(install: Install, who: str) -> None:
    """Issue 3, step 7; R-19: mutating commands by owner, sole entry or command list; the strict set by the operator
    alone; nothing that answers, grants or stops by a program without a person.
    """
    table = {name: row[WHO.index(who)] for name, row in COMMANDS.items()}
    rules, said = senders()[who]
    verdict = Authorizer(rules).resolve(said)
    assert isinstance(verdict, Authorization)
    judged = {command.name: right_of(why_refused(command, verdict, said) or "") for command in CATALOG}
    assert judged == table

    told: dict[str, Right] = {}
    async with walking(install, said.channel) as walk:
        for number, command in enumerate(CATALOG):
            typed = replace(said, text=f"/{command.name}")
            await walk.ingest(number, Cell(command.name, rules, typed, "operator"))
            await walk.idle()
            (text,) = [text for name, text in walk.life.channel.sent if name == f"m{number}"]
            told[command.name] = right_of(text)
        assert walk.turns == []
    assert told == table
