"""A Hypothesis machine that does to the gateway whatever people, platforms and disks can do to it, in any order.

After every step `model.py` judges what was seen; a failure comes with the steps and with all that was seen.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from fermix.errors import FermixError
from fermix.gateway import queue
from fermix.message import Attachment, LocalOrigin, Message
from tests.fakes.channel import message
from tests.fakes.platform import AWAY, LOST_ANSWER, Fault, slow
from tests.proof.model import Broken, Key, Model, Promise, Question, key_of
from tests.proof.world import Hand, World

SHARED_MEMORY = Path("/dev/shm")  # where there is one, a sync costs nothing
MOST_WAITING = 4  # so that a lane is full now and then
Fate = Literal["away", "lost answer", "slow"]


class Place(NamedTuple):
    chat: str
    thread: str
    private: bool


PLACES = (Place("a", "root", True), Place("a", "t", True), Place("g", "root", False))
SENDERS = (
    ("chat", "1"), ("chat", "2"), ("chat", "3"), ("chat", "9"), ("solo", "5"), ("cli", "me"), ("cli", "program"),
)  # fmt: skip
NOBODIES = (
    ("chat", "7"), ("chat", "*"), ("chat", None), ("chat", " "), ("solo", "1"), ("shut", "1"), ("nowhere", "1"),
)  # fmt: skip

places = st.sampled_from(PLACES)
senders = st.sampled_from(SENDERS)
picks = st.integers(0, 7)


FATES: tuple[Fate, ...] = ("away", "lost answer", "slow")
Trouble = int | str | tuple[str, ...]
troubles: st.SearchStrategy[Trouble] = st.one_of(
    st.integers(0, 25),  # so many turns of the loop into the next step the daemon is killed
    st.just("the ledger fails once"),
    st.tuples(st.sampled_from(["chat", "solo", "cli"]), st.sampled_from(["goes or comes", *FATES])),
    st.tuples(st.just("chat"), st.sampled_from(["download", *FATES]), st.sampled_from(FATES)),
)


class GatewayMachine(RuleBasedStateMachine):
    """One example is one `World`."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(queue, "MOST_WAITING", MOST_WAITING)
        memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(dir=memory)
        self.model = Model()
        self.world = World(Path(self._folder.name))
        self.count = 0
        self.said: list[Message] = []
        self.ticks: int | None = None
        self.broken = False
        self.story: list[str] = []
        self.rows: dict[Key, tuple[int, str | None]] = {}

    def teardown(self) -> None:
        try:
            if not self.broken:
                self.finish()
        finally:
            self.world.close()
            self._folder.cleanup()
            self._patch.undo()
            logging.disable(logging.NOTSET)

    # What people do.

    @rule(who=senders, place=places, kind=st.sampled_from(["message", "message", "message", "edit", "button", "file"]))
    def say(self, who: tuple[str, str], place: Place, kind: str) -> None:
        self.hear(self.made(who, place, "hello", kind=kind))

    @rule(
        who=st.sampled_from([("chat", "1"), ("chat", "1"), ("chat", "2"), ("chat", "3"), ("cli", "me")]),
        place=st.sampled_from(PLACES[:2]),
        times=st.integers(1, 3),
    )
    def say_more(self, who: tuple[str, str], place: Place, times: int) -> None:
        """One after the other, in one of two rooms, so that they wait behind each other."""
        for _ in range(times):
            self.hear(self.made(who, place, "hello"))

    @rule(
        who=senders,
        place=places,
        text=st.sampled_from(["/stop", "/stop", "/stop all", "/new", "/new", "/whoami", "/help", "/nothing"]),
    )
    def command(self, who: tuple[str, str], place: Place, text: str) -> None:
        self.hear(self.made(who, place, text))

    @rule(who=st.sampled_from([("chat", "1"), ("chat", "2"), ("cli", "me")]), ticks=st.integers(1, 10), place=places)
    def command_and_die(self, who: tuple[str, str], ticks: int, place: Place) -> None:
        """The daemon is killed while it runs a command."""
        self.ticks = ticks
        self.hear(self.made(who, place, "/new"))

    @rule(who=senders, place=places)
    def grant(self, who: tuple[str, str], place: Place) -> None:
        self.hear(self.made(who, place, f"/grant path {self.shut_folder()}"))

    @rule(who=st.sampled_from(NOBODIES), place=places, text=st.sampled_from(["hello", "", "/stop", "/whoami", "/new"]))
    def stranger(self, who: tuple[str, str | None], place: Place, text: str) -> None:
        picture = Attachment("image", f"strange{self.count}", "image/png", 3)
        self.hear(replace(self.made(who, place, text), attachments=(picture,)))

    @rule(
        who=senders,
        place=places,
        flaw=st.sampled_from(["reaction", "join", "id", "chat_id", "reply_target", "thread", "blank"]),
    )
    def odd(self, who: tuple[str, str], place: Place, flaw: str) -> None:
        said = self.made(who, place, " " if flaw == "blank" else "hello")
        if flaw in ("reaction", "join"):
            said = replace(said, kind=flaw)  # type: ignore[arg-type]  # two of its values
        elif flaw != "blank":
            said = replace(said, **{flaw: " "})
        self.hear(said)

    @rule(
        who=st.sampled_from([("chat", "1"), ("chat", "3"), ("solo", "5")]),
        place=places,
        text=st.sampled_from(["hello", ""]),
        pictures=st.lists(st.sampled_from(["good", "good", "bad"]), min_size=1, max_size=2),
    )
    def show(self, who: tuple[str, str], place: Place, text: str, pictures: list[str]) -> None:
        files = tuple(Attachment("image", picture, "image/png", 3) for picture in pictures)
        self.hear(replace(self.made(who, place, text), attachments=files))

    @precondition(lambda self: self.said)
    @rule(pick=picks, times=st.integers(1, 3))
    def again(self, pick: int, times: int) -> None:
        """The platform hands over a message that it has handed over before."""
        self.hear(self.said[-1 - pick % len(self.said)], times)

    @rule(who=senders, place=places, times=st.integers(2, 4))
    def burst(self, who: tuple[str, str], place: Place, times: int) -> None:
        """Copies of a new message race."""
        self.hear(self.made(who, place, "hello"), times)

    @precondition(lambda self: self.model.questions)
    @rule(
        pick=st.integers(0, 3),
        yes=st.sampled_from([True, True, False]),
        here=st.booleans(),
        times=st.integers(1, 2),
        after_s=st.sampled_from([0.0, 0.0, 59.0, 60.0]),
    )
    def answer_well(self, pick: int, yes: bool, here: bool, times: int, after_s: float) -> None:
        """The owner answers as he was told to, or at his terminal."""
        if after_s:
            self.step(lambda: self.world.pass_time(after_s))
        self.reply(pick, "asker" if here else "me", None, "token" if here else "id", yes, times)

    @precondition(lambda self: any(question.asked.shared for question in self.model.questions))
    @rule()
    def answer_after_a_change(self) -> None:
        """The owner of a shared chat is replaced while his question waits, and then there is a yes at the terminal."""
        self.reconfigure()
        self.reply_to([question for question in self.model.questions if question.asked.shared][-1], "me", "id")

    @precondition(lambda self: self.model.questions)
    @rule(elsewhere=places)
    def answer_elsewhere_and_here(self, elsewhere: Place) -> None:
        """The owner answers in the wrong chat, notices it, and answers in the right one."""
        question = self.model.questions[-1]
        self.reply_to(question, "asker", "token", elsewhere)
        self.reply_to(question, "asker", "token")

    # What turns do.

    @precondition(lambda self: self.world.life.agent.hands)
    @rule(pick=picks, order=st.sampled_from(["fail", "act", "speak"]))
    def work(self, pick: int, order: str) -> None:
        self.order(pick, order)

    @precondition(lambda self: self.world.life.agent.hands)
    @rule(pick=picks)
    def work_to_the_end(self, pick: int) -> None:
        self.order(pick, "finish")

    @precondition(lambda self: self.world.life.agent.hands)
    @rule(pick=picks)
    def ask(self, pick: int) -> None:
        """A turn asks for a folder, one of the owner's if there is any."""
        self.order(self.able(pick), self.shut_folder())

    @precondition(lambda self: self.world.life.agent.hands)
    @rule(pick=picks)
    def act(self, pick: int) -> None:
        """A turn does what cannot be taken back, one of the owner's if there is any."""
        self.order(self.able(pick), "act")

    @rule()
    def ask_before_others(self) -> None:
        """The owner writes in a shared chat, and his turn asks for a folder there."""
        said = self.made(("chat", "9" if self.model.config else "1"), PLACES[2], "hello")
        self.hear(said)
        for number, hand in enumerate(self.world.life.agent.hands):
            if hand.turn.message.id == said.id:
                self.order(number, self.shut_folder())
                return

    @precondition(lambda self: self.world.life.agent.hands)
    @rule(pick=picks)
    def stop_turn(self, pick: int) -> None:
        """A client stops one message."""
        said = self.hand(pick).turn.message

        async def stop() -> None:
            assert self.world.life.gateway is not None
            self.world.life.gateway.stop(said.key, said.id)

        surely = self.ticks is None and not self.model.unwritten
        self.model.heard[key_of(said)].stoppable = True
        self.step(lambda: self.world.step(stop(), ticks=self.take_ticks()))
        self.model.stop_one(key_of(said), surely=surely)

    # What the world does.

    @rule(seconds=st.sampled_from([0.5, 5.0, 29.0, 31.0, 60.0, 200.0, 90_000.0]))
    def wait(self, seconds: float) -> None:
        self.step(lambda: self.world.pass_time(seconds))

    @precondition(lambda self: self.count > 3)
    @rule(well=st.booleans())
    def restart(self, well: bool) -> None:
        self.step(lambda: self.world.restart(well=well), cut=True)

    @rule(trouble=troubles)
    def trouble(self, trouble: Trouble) -> None:
        """Something goes wrong from now on, or right again."""
        self.trouble_comes(trouble)

    @rule(restarts=st.booleans())
    def configuration_changes(self, restarts: bool) -> None:
        self.reconfigure()
        if restarts:
            self.step(lambda: self.world.restart(well=False), cut=True)

    @precondition(lambda self: self.world.gates)
    @rule()
    def wires_go_on(self) -> None:
        self.step(self.world.open_gates)

    # How it is done.

    def made(self, who: tuple[str, str | None], place: Place, text: str, *, kind: str = "message") -> Message:
        channel, sender = who
        self.count += 1
        name = f"m{self.count}"
        shown = f"{text} {name}" if text == "hello" else text
        said = message(
            shown, id=name, chat=place.chat, channel=channel, sender=sender, thread=place.thread, private=place.private,
            kind=kind,  # type: ignore[arg-type]  # the rules give its values only
        )  # fmt: skip
        return replace(said, origin=LocalOrigin(None, attended=sender != "program")) if channel == "cli" else said

    def reply(self, pick: int, by: str, place: Place | None, how: str, yes: bool, times: int) -> None:
        live = [question for question in self.model.questions if not question.dead and not question.taken]
        questions = live if live and pick < 2 else self.model.questions
        self.reply_to(questions[-1 - pick % len(questions)], by, how, place, yes=yes, times=times)

    def reply_to(self, question: Question, by: str, how: str, place: Place | None = None, *, yes: bool = True,
                 times: int = 1) -> None:  # fmt: skip
        asked, source = question.asked, question.message
        there = place or Place(source.chat_id, source.thread, source.private)
        who = (source.channel, source.sender.id) if by == "asker" else ("chat", by)
        if by in ("me", "program"):
            who = ("cli", by)
        text = f"/{'confirm' if yes else 'deny'} {asked.token if how == 'token' else asked.id}"
        self.hear(self.made(who, there, text, kind="button" if how == "button" else "message"), times)

    def reconfigure(self) -> None:
        self.model.config = 1 - self.model.config
        self.world.reconfigure(self.model.config)

    def trouble_comes(self, trouble: Trouble) -> None:
        match trouble:
            case int(ticks):
                self.ticks = ticks
            case "the ledger fails once":
                self.world.life.writer.failures = 1
                self.model.unwritten = True
            case (channel, "goes or comes"):
                self.world.platforms[channel].down = not self.world.platforms[channel].down
            case (channel, "download", *fates):
                self.world.platforms[channel].fail("download", *map(self.fault, fates))
            case (channel, *fates):
                self.world.platforms[channel].fail("send", *map(self.fault, fates))

    def shut_folder(self) -> str:
        self.count += 1
        folder = self.world.folder / f"shut/f{self.count}"
        folder.mkdir(parents=True)
        return str(folder)

    def fault(self, fate: Fate) -> Fault:
        if fate != "slow":
            return AWAY if fate == "away" else LOST_ANSWER
        gate = asyncio.Event()
        self.world.gates.append(gate)
        return slow(gate)

    def hand(self, pick: int) -> Hand:
        hands = self.world.life.agent.hands
        return hands[pick % len(hands)]

    def able(self, pick: int) -> int:
        hands = self.world.life.agent.hands
        able = [number for number, hand in enumerate(hands) if hand.turn.may_ask] or list(range(len(hands)))
        return able[pick % len(able)]

    def order(self, pick: int, order: str) -> None:
        hand = self.hand(pick)
        self.step(lambda: self.world.order(hand, order, self.take_ticks()))

    def take_ticks(self) -> int | None:
        ticks, self.ticks = self.ticks, None
        return ticks

    def hear(self, said: Message, times: int = 1) -> None:
        cut = self.ticks is not None
        self.said.append(said)
        self.model.at = self.world.clock.monotonic()
        self.model.say(said)
        ended: list[Exception | None] = []
        deeds = [self.world.hear(said) for _ in range(times)]
        self.step(lambda: ended.extend(self.world.step(*deeds, ticks=self.take_ticks())), cut=cut)
        refused = sum(isinstance(error, FermixError) for error in ended)
        if any(error is not None and not isinstance(error, FermixError) for error in ended):
            self.fail(Broken(Promise.ALIVE, ended))
        self.judge(lambda: self.model.heard_back(acknowledged=ended.count(None), refused=refused, cut=cut))

    def step(self, deed: Callable[[], object], *, cut: bool | None = None) -> None:
        cut = self.ticks is not None if cut is None else cut
        self.model.at = self.world.clock.monotonic()
        deed()
        if not self.world.alive:
            self.fail(Broken(Promise.ALIVE, "the gateway's task group has ended"))
        rows, seen, folders = self.world.rows(), self.world.take_seen(), self.world.folders()
        changed = dict(rows.items() - self.rows.items())
        self.story += [f"at {self.model.at:g}: {changed}", *map(str, seen)]
        self.rows = rows
        self.judge(lambda: self.model.look(rows, self.world.body, seen, folders, cut=cut))

    def judge(self, judgement: Callable[[], None]) -> None:
        try:
            judgement()
        except Broken as broken:
            self.fail(broken)

    def fail(self, broken: Broken) -> None:
        self.broken = True
        broken.add_note("\n".join(["What was seen:", *self.story]))
        raise broken

    def finish(self) -> None:
        """Let go of all that is held, and start again for what is then left."""
        self.ticks = None
        for platform in self.world.platforms.values():
            platform.down = False
            platform._faults.clear()
        self.world.life.writer.failures = 0
        self.step(self.world.open_gates)
        for well in (True, False, True):
            self.work_off()
            self.step(lambda well=well: self.world.restart(well=well), cut=True)
        self.work_off()
        self.judge(lambda: self.model.finish(self.world.history()))

    def work_off(self) -> None:
        for _ in range(200):
            if self.world.life.agent.hands:
                self.order(0, "finish")
            elif any(outcome is None for _, outcome in self.world.rows().values()):
                self.step(lambda: self.world.pass_time(400.0))
                if not self.world.life.agent.hands:
                    return
            else:
                return


Theme = Literal["all", "speech", "commands", "stops", "approvals", "restarts"]
_WORK = frozenset({"say_more", "work", "work_to_the_end", "trouble", "wait", "wires_go_on"})
THEMES: dict[Theme, frozenset[str]] = {
    "speech": _WORK | {"say", "stranger", "odd", "again", "burst", "show"},
    "commands": _WORK | {"command", "command_and_die", "again", "restart"},
    "stops": _WORK | {"say", "show", "command", "stop_turn", "restart"},
    "approvals": frozenset(
        {"say_more", "ask", "ask_before_others", "grant", "answer", "answer_well"}
        | {"answer_elsewhere_and_here", "answer_after_a_change"}
        | {"configuration_changes", "wait", "restart", "trouble", "work_to_the_end"}
    ),
    "restarts": _WORK | {"act", "say", "again", "show", "restart", "configuration_changes"},
}
RULES = frozenset(name for name, made in vars(GatewayMachine).items() if hasattr(made, "hypothesis_stateful_rule"))
THEMES["all"] = RULES


def machine(theme: Theme) -> type[GatewayMachine]:
    """Make one that does only a part of it, and so goes deeper."""
    return type(f"Gateway{theme.title()}", (GatewayMachine,), dict.fromkeys(RULES - THEMES[theme]))
