"""What the app owns and every screen uses: the link, the conversations, what the daemon said of itself.

No Textual here. It calls `changed` after every change; whoever draws decides when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol
from uuid import uuid4

from fermix.clock import Clock
from fermix.errors import FermixError
from fermix.protocol.methods import DEFAULT_SESSION
from fermix.tui import wire
from fermix.tui.link import Connect, Link, Outgoing, StartDaemon
from fermix.tui.session import Conversation
from fermix.tui.wire import Fields

HISTORY_ENTRIES = 500  # what one conversation.history may ask for
MODEL_NEWS = ("running", "verifying")


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """One provider that may be set up; `base_url` is where it answers unless the owner says otherwise."""

    id: str
    label: str
    key: Literal["required", "optional", "none"]
    base_url: str


class SetupDesk(Protocol):
    """The wizard's functions, handed in by the composition root."""

    async def choices(self) -> Sequence[ProviderChoice]:
        """List what may be set up. Raises: FermixError when the configuration cannot be read."""
        ...

    async def save(self, provider: str, *, key: str, base_url: str) -> str:
        """Try the key, store it, and say what was done. Raises: FermixError with a sentence for the owner."""
        ...


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The embedded default as the daemon tells of it."""

    name: str = ""
    state: str = "absent"
    done_bytes: int = 0
    total_bytes: int = 0
    error: str = ""

    @property
    def fetching(self) -> bool:
        return self.state in ("fetching", *MODEL_NEWS)

    @property
    def here(self) -> bool:
        return self.state in ("ready", "loaded")


def new_session() -> str:
    """Name a conversation that nobody has begun."""
    return f"chat-{uuid4().hex[:8]}"


class Desk:
    """Made by the app, one for its life."""

    def __init__(
        self, connect: Connect, start_daemon: StartDaemon | None, setup: SetupDesk | None, clock: Clock, cwd: Path
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.setup = setup
        self.link = Link(connect, start_daemon, self, clock)
        self.conversation = Conversation(DEFAULT_SESSION)
        self.model: str | None = None
        self.local_model = LocalModel()
        self.setup_required = False
        self.trouble = ""
        self.degraded: dict[str, str] = {}  # services that are not up, and why
        self._cwd = cwd
        self._conversations = {DEFAULT_SESSION: self.conversation}
        self._news: list[str] = []
        self._stale = asyncio.Event()

    async def run(self) -> None:
        """Stay connected and current until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.link.run())
            group.create_task(self._refresh_when_stale())

    async def submit(self, text: str) -> None:
        """Send what was typed in the open conversation; `/stop` acts at once instead of standing in line."""
        if text.strip() == "/stop":
            await self._stop_all()
            return
        message = Outgoing(str(uuid4()), self.conversation.session, text, self._cwd)
        if self.link.send(message):
            self.conversation.submit(message.id, text, connected=self.link.connected)
        else:
            self.conversation.note("Too many messages wait for the daemon; this one was not kept.", error=True)
        self.changed()

    async def stop_running(self) -> None:
        """End what runs now; what waits behind it is next."""
        conversation = self.conversation
        await self._ask("turn.stop", {"session": conversation.session, "message_id": conversation.running})

    async def _stop_all(self) -> None:
        await self._ask("turn.stop", {"session": self.conversation.session})

    async def list_conversations(self) -> list[Fields]:
        """The rows of `conversation.list`; empty when the daemon cannot be asked."""
        return wire.rows(await self._ask("conversation.list", {}), "conversations")

    async def open(self, session: str) -> None:
        """Show another conversation with its stored history."""
        self.conversation = self._conversations.setdefault(session, Conversation(session))
        self.changed()
        await self._load_history()

    async def open_new(self) -> None:
        await self.open(new_session())

    async def fetch_model(self) -> None:
        """Ask for the local model; its progress comes as events."""
        self.local_model = replace(self.local_model, state="fetching", error="")
        self.changed()
        await self._ask("model.fetch", {})
        await self._load_status()  # nothing is told of a download that is not needed

    async def save_provider(self, provider: str, *, key: str, base_url: str) -> None:
        """Store a provider, have the daemon use it, and say what was done. Raises: FermixError."""
        assert self.setup is not None  # the screen offers this only then
        said = await self.setup.save(provider, key=key, base_url=base_url)
        await self._ask("config.reload", {})
        await self._load_status()
        self.conversation.note(said)
        self.changed()

    # Told by the link.

    async def on_up(self) -> None:
        self.trouble = ""
        self._conversations = {self.conversation.session: self.conversation}
        await self._refresh()

    def on_event(self, name: str, fields: Fields) -> None:
        if name == "download":
            self._take_download(fields)
        elif name == "service":
            self._take_service(fields)
        elif name == "conversation.changed":
            if wire.text(fields, "session") == self.conversation.session:
                self.conversation.forget()
                self._stale.set()
        elif conversation := self._conversations.get(wire.text(fields, "session")):
            conversation.apply(name, fields)
            if name == "reply" and conversation is self.conversation:
                self.model = wire.text(fields, "model") or self.model
        self.changed()

    def on_down(self, reason: str) -> None:
        self.trouble = reason
        for conversation in self._conversations.values():
            conversation.lost()
        self.changed()

    def on_news(self, sentence: str) -> None:
        self.conversation.note(sentence)
        self._news.append(sentence)  # the history, once it is loaded, takes the place of what is shown now
        self.changed()

    def on_refused(self, message_id: str, session: str, sentence: str) -> None:
        ended = {"session": session, "message_id": message_id, "outcome": "failed", "error": sentence}
        self.on_event("turn.ended", ended)

    # Asking.

    async def _ask(self, method: str, params: dict[str, object]) -> Fields:
        """Ask, and say in the conversation when that failed; the answer is then empty."""
        try:
            return await self.link.request(method, params)
        except FermixError as error:
            self.conversation.note(error.user_text or f"{error}.", error=True)
            self.changed()
            return {}

    async def _refresh(self) -> None:
        await self._load_history()
        for sentence in self._news:
            self.conversation.note(sentence)
        self._news.clear()
        await self._load_status()

    async def _load_history(self) -> None:
        conversation = self.conversation
        if not self.link.connected:
            return
        answer = await self._ask("conversation.history", {"session": conversation.session, "limit": HISTORY_ENTRIES})
        if answer:
            conversation.load(wire.rows(answer, "entries"))
            self.changed()

    async def _load_status(self) -> None:
        status = await self._ask("status", {})
        local = wire.inner(status, "local_model")
        self.model = wire.text(status, "model") or None
        self.local_model = LocalModel(
            name=wire.text(local, "name"),
            state=wire.text(local, "state") or "absent",
            done_bytes=int(wire.number(local, "done_bytes")),
            total_bytes=int(wire.number(local, "total_bytes")),
            error=wire.text(local, "detail") if wire.text(local, "state") == "failed" else "",
        )
        self.degraded.clear()
        for row in wire.rows(status, "services"):
            self._take_service(row)
        self.setup_required = wire.text(status, "overall") == "setup_required"
        usable = any(wire.flag(row, "usable") for row in wire.rows(status, "providers"))
        if status and not usable and not self.setup_required:
            self.conversation.note("No provider is set up, so the local model answers. Ctrl+P sets one up.")
        self.changed()

    async def _refresh_when_stale(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            await self._refresh()

    def _take_service(self, fields: Fields) -> None:
        service = wire.text(fields, "service")
        self.degraded.pop(service, None)
        if wire.text(fields, "state") != "up":
            self.degraded[service] = wire.text(fields, "reason")

    def _take_download(self, fields: Fields) -> None:
        state = wire.text(fields, "state")
        self.local_model = replace(
            self.local_model,
            state={"done": "ready"}.get(state, state),
            done_bytes=int(wire.number(fields, "done_bytes")),
            total_bytes=int(wire.number(fields, "total_bytes")) or self.local_model.total_bytes,
            error=wire.text(fields, "error"),
        )
        if state == "done":
            self.on_news("The local model is ready.")
            self._stale.set()  # somebody can answer now: the status says who
