"""The real gateway, ledger, lanes, approvals and policy, alone with a platform and a model that do as they are told.

A `World` is a disk, a few platforms and a configuration; it lives through many lives of the daemon. All that happens
in it is written down, for `model.py` to judge.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from fermix.agent.approvals import ApprovalRequest, Approvals, Seam
from fermix.agent.budget import Budget
from fermix.agent.compaction.compactor import Compacted
from fermix.agent.sandbox import GrantPath, Policy, Sandbox, SandboxSettings
from fermix.agent.turn import Cancelled, Completed, Failed, ReplyPort, RequestSize, Turn, TurnOutcome
from fermix.config.model import Config
from fermix.errors import ChannelUnavailable, FermixError
from fermix.events import Events
from fermix.gateway import Access, Authorizer, Gateway, Ledger, Rooms
from fermix.gateway.commands.catalog import COMMANDS
from fermix.gateway.settings import ChannelSpec, UserSettings
from fermix.home import Home
from fermix.message import ApprovalPrompt, ConversationKey, Message, Text
from fermix.setup.sections import SECTIONS
from fermix.store import Connection, Database, schema
from fermix.trust import Trust
from tests.fakes.channel import Ability, FakeChannel, completed
from tests.fakes.platform import Entry, Platform
from tests.fakes.still import QUIET_S, StillClock, StillLoop, StillWorkers, StillWriter
from tests.fakes.transcriber import media_step
from tests.proof import model
from tests.proof.model import Key, Seen, key_of

CHANNELS: dict[str, tuple[Ability, ...]] = {
    "chat": ("buttons", "downloads", "typing"),
    "solo": (),
    "shut": ("downloads",),
    "nowhere": ("downloads",),  # in no configuration
    "cli": ("live", "lookup"),
}
IDEMPOTENT = frozenset({"solo"})
CONFIGURATIONS = (
    {
        "chat": UserSettings(
            enabled=True, owner_user_id=" 1 ", allowed_user_ids=("2", "3", "*"), command_allowlist=("2",)
        ),
        "solo": UserSettings(enabled=True, allowed_user_ids=("5",)),
        "shut": UserSettings(enabled=True, allowed_user_ids=("*",)),
    },
    {
        "chat": UserSettings(enabled=True, owner_user_id="9", allowed_user_ids=("1", "2")),
        "solo": UserSettings(enabled=True, owner_user_id="5"),
        "shut": UserSettings(enabled=False, owner_user_id="1"),
    },
)
PICTURES = {"good": b"\x89PNG\r\n\x1a\n and so on", "bad": b"<svg/>"}
OPENS = re.compile(r'opens: "([^"]+)"')
_MESSAGE = TypeAdapter(Message)

Tell = Callable[[Seen], None]


@cache
def empty_database() -> bytes:
    """A file as the first start makes it, made once."""
    with TemporaryDirectory() as folder:
        connection, _ = schema.connect(Path(folder) / "memory.db")
        connection.close()
        return (Path(folder) / "memory.db").read_bytes()


def access_under(number: int) -> dict[str, Access]:
    """What a configuration means, by the real reading of its sections."""
    stated = CONFIGURATIONS[number]
    sections = {f"fermix_channels.{name}": settings for name, settings in stated.items()}
    config = Config(sections, frozenset(sections), {}, Path("log"), Path("traces"), ())
    specs = [ChannelSpec(name, UserSettings, re.compile(r"\d+"), "1") for name in stated]
    return {"cli": Access(local=True), **{spec.name: spec.access(config) for spec in specs}}


@dataclass
class Hand:
    """A turn that waits to be told what to do: "finish", "fail", "act", "speak", or a folder to ask for."""

    turn: Turn
    number: int
    orders: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    words: int = 0


class Puppet:
    """An agent that does what it is told, and stores nothing but which message it answered."""

    def __init__(self, database: Database, approvals: Approvals, tell: Tell) -> None:
        self._database = database
        self._approvals = approvals
        self._tell = tell
        self.policy: Policy | None = None
        self.hands: list[Hand] = []
        self.count = 0

    async def run(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        self.count += 1
        hand = Hand(turn, self.count)
        self.hands.append(hand)
        key = key_of(turn.message)
        self._tell(model.Began(key, turn.trust is Trust.OPERATOR, turn.attended, turn.may_ask))
        try:
            while (order := await hand.orders.get()) not in ("finish", "fail"):
                await self._do(order, hand, port)
        except FermixError as error:
            return Failed(f"sorry, {turn.message.id} {hand.number}", str(error))
        finally:
            self.hands.remove(hand)
            self._tell(model.Ended(key))
        if order == "fail":
            return Failed(f"sorry, {turn.message.id} {hand.number}", "told to")
        return completed(f"answer {turn.message.id} {hand.number}")

    async def _do(self, order: str, hand: Hand, port: ReplyPort) -> None:
        turn = hand.turn
        if order == "speak":
            hand.words += 1
            await port.send(Text(f"word {turn.message.id} {hand.number} {hand.words}"))
        elif order == "act":
            if turn.trust is Trust.OPERATOR:  # dispatch refuses it to guests
                await port.effect("shell")
                self._tell(model.Acted(key_of(turn.message)))
        elif turn.seam is not None and turn.may_ask and self.policy is not None:
            request = self.policy.approval_request(await self.policy.propose(GrantPath(order)), "a turn")
            await self._approvals.put(request, turn.seam, port.send)

    async def commit(self, turn: Turn, outcome: Completed) -> None:
        self._store(turn)

    async def compact(self, key: ConversationKey) -> Compacted:
        return Compacted(0, 0, 0, 0, RequestSize())

    async def restore(self, turn: Turn, text: str, model: str) -> None:
        self._store(turn)

    async def abandon(self, turn: Turn, outcome: Cancelled | Failed) -> None: ...

    def _store(self, turn: Turn) -> None:
        row = (turn.message.id, turn.ledger_id)

        def insert(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO messages (agent_id, owner_id, channel, chat_id, sender, role, kind, content, created_at,"
                " ledger_id) VALUES ('a', 'o', 'c', 'c', 's', 'assistant', 'chat_message', ?, '', ?)",
                row,
            )

        self._database.post(insert)


class WatchedApprovals(Approvals):
    """The real ones, with a listener where the question leaves."""

    def __init__(self, clock: StillClock, tell: Tell) -> None:
        super().__init__(clock)
        self._still = clock
        self._tell = tell

    async def put(
        self, request: ApprovalRequest, seam: Seam, send: Callable[[ApprovalPrompt], Awaitable[None]]
    ) -> bool:
        async def watched(prompt: ApprovalPrompt) -> None:
            (folder,) = OPENS.findall(request.text)
            origin, key = seam.origin, key_of(send.__self__._message)  # type: ignore[attr-defined]  # a replier's
            where = (origin.channel, origin.chat_id, origin.thread, origin.user_id)
            now = self._still.monotonic()
            self._tell(model.Asked(prompt.id, prompt.token, where, seam.shared, folder, now, key))
            try:
                await send(prompt)
            except BaseException:
                self._tell(model.Withdrawn(prompt.id))
                raise

        return await super().put(request, seam, watched)


@dataclass
class WatchedPlatform(Platform):
    """Tells what people see."""

    name: str = ""
    tell: Tell = print

    def _do(self, entry: Entry) -> str:
        before = len(self._log.entries())
        done = super()._do(entry)
        for landed in self._log.entries()[before:]:
            if landed.op == "send":
                self.tell(model.Landed((self.name, landed.answers), landed.text))
        if entry.op == "download":
            self.tell(model.Downloaded(entry.text))
        return done


class WatchedChannel(FakeChannel):
    """Tells which calls begin; one of a dead daemon reaches nobody."""

    def __init__(self, name: str, platform: Platform, tell: Tell) -> None:
        super().__init__(name, platform=platform, can=CHANNELS[name])
        self._tell = tell
        self.dead = False

    async def _call(self, verb: Any, message: Message, *, id: str = "", text: str = "", key: str = "") -> str:
        if self.dead:
            await asyncio.get_running_loop().create_future()
        if verb == "send":
            self._tell(model.Sending(key_of(message), text))
        try:
            return await super()._call(verb, message, id=id, text=text, key=key)
        except (ChannelUnavailable, asyncio.CancelledError):
            if verb in ("send", "find"):
                self._tell(model.Vain(key_of(message)))
            raise


class Conversations:
    """Tells what was cleared."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    async def clear(self, key: ConversationKey) -> None:
        self._tell(model.Cleared(key))

    def expect(self, ledger_ids: Iterable[int]) -> None: ...


class Life:
    """One life of the daemon's gateway. `tell` falls silent when it dies."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dead = False
        self._ending = asyncio.Event()
        self.ready = asyncio.Event()
        self.writer = StillWriter(world.folder / "memory.db")
        self.database = Database(world.folder / "memory.db", self.writer, checked=True)
        approvals = WatchedApprovals(world.clock, self.tell)
        self.agent = Puppet(self.database, approvals, self.tell)
        self.authorizer = Authorizer(access_under(world.config))
        self.channels = {name: WatchedChannel(name, world.platforms[name], self.tell) for name in CHANNELS}
        sandbox = Sandbox(world.settings, world.home, world.folder, world.folder / "user", {})
        self.policy = self.agent.policy = Policy(sandbox, world.home, SECTIONS, StillWorkers(), world.clock)
        world.policies.append(self.policy)
        self._rooms = Rooms(
            self.agent, self.authorizer, Ledger(self.database, world.clock), Conversations(self.tell), self.policy,
            approvals, COMMANDS, Events(world.clock), world.clock, media_step(),
            Budget(self.database, world.clock),
        )  # fmt: skip
        self.gateway: Gateway | None = None
        self.task = asyncio.get_running_loop().create_task(self._live())

    def tell(self, seen: Seen) -> None:
        if not self._dead:
            self._world.seen.append(seen)

    async def _live(self) -> None:
        try:
            async with Gateway.open(self._rooms) as self.gateway:
                await self.gateway.recover(self.channels)
                self.ready.set()
                await self._ending.wait()
        finally:
            await self.database._close()
            self.writer.stop()

    async def end(self) -> None:
        """Shut down as the daemon does."""
        self._ending.set()
        await self.task

    async def die(self) -> None:
        """Be killed: nothing of this life reaches disk or platform any more."""
        self._dead = True
        self.writer.die()
        for channel in self.channels.values():
            channel.dead = True
        mine = asyncio.current_task()
        for _ in range(100):
            others = asyncio.all_tasks() - {mine}
            for task in others:
                task.cancel()
            if not others:
                return
            await asyncio.sleep(0)
        raise AssertionError("a killed life does not end")


class World:
    """Drives it from outside the loop, one step after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner = asyncio.Runner(loop_factory=StillLoop)
        loop = self.runner.get_loop()
        loop.set_exception_handler(lambda *_: None)  # what a killed life leaves behind says nothing
        self.clock = StillClock(loop)  # type: ignore[arg-type]  # made two lines above
        self.gates: list[asyncio.Event] = []
        self.seen: list[Seen] = []
        self.policies: list[Policy] = []
        self.platforms = {
            name: WatchedPlatform(
                clock=self.clock, idempotent=name in IDEMPOTENT, name=name, tell=self.seen.append, files=PICTURES
            )
            for name in CHANNELS
        }
        self.config = 0
        self.settings = SandboxSettings()
        self.home = Home(folder / "user/.fermix")
        self.home.prepare()
        (folder / "memory.db").write_bytes(empty_database())
        self.life: Life
        self.runner.run(self._start())

    # Steps.

    def step(self, *deeds: Coroutine[Any, Any, None], ticks: int | None = None) -> list[Exception | None]:
        """Do these at once and wait until all is quiet; with `ticks`, kill the daemon so many turns of the loop later.

        Returns how those ended that did.
        """
        return self.runner.run(self._step(deeds, ticks))

    async def _step(self, deeds: Sequence[Coroutine[Any, Any, None]], ticks: int | None) -> list[Exception | None]:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(deed) for deed in deeds]
        if ticks is None:
            await asyncio.sleep(QUIET_S)
        else:
            for _ in range(ticks):
                await asyncio.sleep(0)
        ended = [task.exception() for task in tasks if task.done()]
        if ticks is not None:
            await self._again(well=False)
        return ended  # type: ignore[return-value]  # no deed ends in a cancellation

    def restart(self, *, well: bool) -> None:
        self.runner.run(self._again(well=well))

    async def _again(self, *, well: bool) -> None:
        if well:
            await self.life.end()
        else:
            self.settings = self.life.policy.sandbox.settings
            await self.life.die()
        self.settings = self.life.policy.sandbox.settings
        self.seen.append(model.Died())
        await self._start()

    async def _start(self) -> None:
        self.life = Life(self)
        await asyncio.sleep(QUIET_S)

    def pass_time(self, seconds: float) -> None:
        self.runner.run(asyncio.sleep(seconds))

    async def hear(self, message: Message) -> None:
        """The platform hands a message over."""
        assert self.life.gateway is not None
        await self.life.gateway.ingest(message, self.life.channels[message.channel])

    def order(self, hand: Hand, order: str, ticks: int | None = None) -> None:
        async def give() -> None:
            hand.orders.put_nowait(order)

        self.step(give(), ticks=ticks)

    def reconfigure(self, number: int) -> None:
        self.config = number
        self.life.authorizer.use(access_under(number))

    def open_gates(self) -> None:
        async def open_all() -> None:
            for gate in self.gates:
                gate.set()
            self.gates.clear()

        self.step(open_all())

    def close(self) -> None:
        self.runner.run(self.life.die())
        self.runner.close()

    # What is there.

    @property
    def alive(self) -> bool:
        return self.life.ready.is_set() and not self.life.task.done()

    def rows(self) -> dict[Key, tuple[int, str | None]]:
        found = self.life.writer.connection.execute("SELECT channel, message_id, id, outcome FROM inbox")
        return {(channel, name): (number, outcome) for channel, name, number, outcome in found}

    def body(self, key: Key) -> Message:
        query = "SELECT message_json FROM inbox WHERE channel = ? AND message_id = ?"
        return _MESSAGE.validate_json(self.life.writer.connection.execute(query, key).fetchone()[0])

    def history(self) -> set[str]:
        return {row[0] for row in self.life.writer.connection.execute("SELECT content FROM messages")}

    def folders(self) -> set[str]:
        """What was opened, by a life that is over too."""
        roots = (root for policy in self.policies for root in policy.sandbox.standing())
        return {str(root.path) for root in roots if root.source == "grant"}

    def take_seen(self) -> list[Seen]:
        seen, self.seen[:] = self.seen[:], []
        return seen
