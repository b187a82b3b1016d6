"""A channel of any kind in front of a platform in miniature, and an agent whose turns the test lets go."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, get_args

from fermix.agent.compaction.compactor import Compacted
from fermix.agent.model import Delta, TextDelta, Usage
from fermix.agent.turn import Cancelled, Completed, Failed, ReplyPort, Turn, TurnOutcome
from fermix.errors import FermixError, Unusable
from fermix.gateway.channel import Abilities, Channel
from fermix.message import (
    ROOT_THREAD,
    ApprovalPrompt,
    Attachment,
    ConversationKey,
    File,
    InboundKind,
    LocalOrigin,
    Message,
    Reaction,
    Reply,
    Sender,
    Text,
)
from tests.fakes.platform import Entry, Platform, Verb


def message(
    text: str,
    *,
    id: str = "m1",
    chat: str = "chat",
    channel: str = "cli",
    sender: str | None = "cli",
    thread: str = ROOT_THREAD,
    kind: InboundKind = "message",
    private: bool = True,
    attachments: tuple[Attachment, ...] = (),
    album: str | None = None,
) -> Message:
    return Message(
        id=id,
        channel=channel,
        chat_id=chat,
        sender=Sender(sender, "Jo"),
        text=text,
        reply_target=chat,
        received_at=datetime(2026, 11, 30, tzinfo=UTC),
        thread=thread,
        attachments=attachments,
        origin=LocalOrigin(None) if channel == "cli" else None,
        kind=kind,
        private=private,
        album=album,
    )


Ability = Literal["typing", "drafts", "reactions", "buttons", "downloads", "lookup", "live", "files"]
EVERY_ABILITY: frozenset[Ability] = frozenset(get_args(Ability))
PIECE_BYTES = 4096
WEBHOOK_TRIES = 5

Ingest = Callable[[Message, Channel], Awaitable[None]]


def utf16_units(text: str) -> int:
    """How Telegram counts."""
    return len(text.encode("utf-16-le")) // 2


class FakeChannel:
    """A `Channel` in front of a `Platform`, with the abilities that a test gives it; each ability is itself.

    `poll` is its polling form, `webhook` the pushed one.
    """

    def __init__(
        self, name: str = "cli", *, platform: Platform | None = None, can: Collection[Ability] = ("live",)
    ) -> None:
        self.name = name
        self.platform = platform or Platform()
        others = dict.fromkeys(set(can) - {"files"}, self)
        self.abilities = Abilities(**others, idempotent=self.platform.idempotent, files="files" in can)
        self.deltas: list[Delta] = []
        self.files: list[bytes] = []
        self.alive_at: float | None = 0.0

    @property
    def text_limit(self) -> int | None:
        return self.platform.text_limit

    @property
    def edit_interval_s(self) -> float:
        return self.platform.edit_interval_s

    @property
    def broken(self) -> bool:
        return self.platform.down

    @broken.setter
    def broken(self, down: bool) -> None:
        self.platform.down = down

    @property
    def sent(self) -> list[tuple[str, str]]:
        """Which message got which text, in the order in which they were sent."""
        return [(entry.answers, entry.text) for entry in self.platform.log("send")]

    async def wait_for(self, count: int) -> list[tuple[str, str]]:
        await self.platform.until(lambda: len(self.sent) >= count)
        return self.sent

    # Channel.

    def measure(self, text: str) -> int:
        return self.platform.unit(text)

    async def send(self, message: Message, reply: Reply, key: str) -> str:
        match reply:
            case Text(text):
                return await self._call("send", message, text=text, key=key)
            case File(data, name, caption=caption):
                self.files.append(data)
                return await self._call("send", message, text=f"[{name}] {caption}".strip(), key=key)
            case Reaction(emoji):
                return await self._call("react", message, text=emoji, key=key)
            case ApprovalPrompt(text=text, token=token):
                return await self._call("send", message, text=f"{text} /confirm {token}", key=key)

    # Abilities.

    async def show_typing(self, message: Message) -> None:
        await self._call("typing", message)

    async def open(self, message: Message, text: str, key: str) -> str:
        return await self._call("open", message, text=text, key=key)

    async def edit(self, message: Message, draft: str, text: str) -> None:
        await self._call("edit", message, id=draft, text=text)

    async def discard(self, message: Message, draft: str) -> None:
        await self._call("discard", message, id=draft)

    emoji = ("👍", "❤️", "🎉")

    async def react(self, message: Message, emoji: str) -> None:
        await self._call("react", message, text=emoji)

    async def ask(self, message: Message, prompt: ApprovalPrompt) -> str:
        return await self._call("ask", message, text=prompt.text, key=prompt.id)

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncGenerator[AsyncIterator[bytes]]:
        await self.platform.call(Entry("download", text=attachment.reference))
        yield self._pieces(attachment)

    async def find(self, message: Message, key: str) -> str | None:
        await self._call("find", message, key=key)
        return self.platform.find(message.chat_id, key)

    def show(self, message: Message, delta: Delta) -> None:
        self.deltas.append(delta)

    # How messages come in.

    def tap(self, prompt_id: str, *, sender: str, id: str = "tap1", chat: str = "chat", yes: bool = True) -> Message:
        """Make what a tap on a prompt's button arrives as: the same that one would type."""
        text = f"/confirm {prompt_id}" if yes else f"/deny {prompt_id}"
        return message(text, id=id, chat=chat, channel=self.name, sender=sender, kind="button")

    async def poll(self, ingest: Ingest) -> None:
        """Hand over whatever the platform holds, for ever; confirm each message once it is taken."""
        while True:
            for update in await self.platform.poll():
                await ingest(update, self)
                self.platform.confirm(update)

    async def webhook(self, update: Message, ingest: Ingest) -> int:
        """Answer one request: 200 once the message is taken, 503 when it could not be."""
        try:
            await ingest(update, self)
        except FermixError:
            return 503
        self.platform.confirm(update)
        return 200

    async def push(self, update: Message, ingest: Ingest) -> list[int]:
        """Be the platform that posts to our webhook again until it hears 200; returns the answers."""
        self.platform.say(update)
        answers: list[int] = []
        while 200 not in answers and len(answers) < WEBHOOK_TRIES:
            answers.append(await self.webhook(update, ingest))
        return answers

    async def _call(self, verb: Verb, message: Message, *, id: str = "", text: str = "", key: str = "") -> str:
        return await self.platform.call(
            Entry(verb, message.chat_id, message.thread, id=id, text=text, key=key, answers=message.id)
        )

    async def _pieces(self, attachment: Attachment) -> AsyncGenerator[bytes]:
        body = self.platform.files[attachment.reference]
        for start in range(0, len(body), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            self.platform.downloaded_bytes += len(piece)
            yield piece


@dataclass
class FakeAgent:
    """Answers each message with its own text in capitals, or as `script` says."""

    script: Callable[[Turn, ReplyPort], Awaitable[TurnOutcome]] | None = None
    started: list[str] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    abandoned: list[tuple[str, str]] = field(default_factory=list)
    restored: list[tuple[str, str]] = field(default_factory=list)
    running: dict[str, int] = field(default_factory=dict)
    compacted: Compacted | FermixError | None = None
    most_at_once: int = 0

    async def run(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        self.started.append(turn.message.id)
        chat = turn.key.chat_id
        self.running[chat] = self.running.get(chat, 0) + 1
        self.most_at_once = max(self.most_at_once, self.running[chat])
        try:
            if self.script is not None:
                return await self.script(turn, port)
            port.stream(TextDelta(turn.message.text.upper()))
            return completed(turn.message.text.upper())
        finally:
            self.running[chat] -= 1

    async def commit(self, turn: Turn, outcome: Completed) -> None:
        self.committed.append(turn.message.id)

    async def abandon(self, turn: Turn, outcome: Cancelled | Failed) -> None:
        self.abandoned.append((turn.message.id, type(outcome).__name__))

    async def compact(self, key: ConversationKey) -> Compacted:
        if self.compacted is None:
            raise Unusable("nothing to sum up", user_text="There is nothing older to sum up in this conversation.")
        if isinstance(self.compacted, FermixError):
            raise self.compacted
        return self.compacted

    async def restore(self, turn: Turn, text: str, model: str) -> None:
        self.restored.append((turn.message.id, text))


def completed(text: str) -> Completed:
    return Completed(text=text, model="fake/model", usage=Usage(10, 2), steps=1)
