"""The channel of local clients: `fermix ask` and the terminal UI, over the daemon's socket.

They speak as `cli`; the daemon sets the name, no client can. The person at the keyboard is the owner.
"""

from __future__ import annotations

import getpass
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol

from fermix.agent.model import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from fermix.errors import Unusable
from fermix.gateway.channel import Abilities
from fermix.message import LocalOrigin, Media, Message, Reply, Sender, Text

log = logging.getLogger(__name__)

NAME = "cli"
SENDER_ID = "cli"
REMEMBERED_KEYS = 1_000  # a reply is sent again within minutes or not at all; clients of a former daemon are gone
MAX_TEXT_ATTACHMENT_BYTES = 256 * 1024  # past that a text file would fill a model's window by itself


class Audience(Protocol):
    """The connected clients. `tell` never blocks; what is droppable may be lost for a slow client."""

    def tell(self, session: str, event: str, params: Mapping[str, object], *, droppable: bool = False) -> None: ...


class LocalChannel:
    """A `Channel` whose platform is the socket."""

    name = NAME
    text_limit = None

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self.abilities = Abilities(live=self, idempotent=True)
        self._told: deque[str] = deque(maxlen=REMEMBERED_KEYS)

    @property
    def alive_at(self) -> float:
        """The socket is in this process: while we run, it works."""
        return time.monotonic()

    def measure(self, text: str) -> int:
        return len(text)

    async def send(self, message: Message, reply: Reply, key: str) -> str:
        if not isinstance(reply, Text):
            raise TypeError(f"a local client cannot be sent a {type(reply).__name__}")
        if key in self._told:
            return message.id
        self._told.append(key)
        self._audience.tell(
            message.chat_id,
            "reply",
            {
                "session": message.chat_id,
                "message_id": message.id,
                "text": reply.text,
                "model": reply.model,
                "key": key,
                "waits": reply.waits,
            },
        )
        return message.id

    def show(self, message: Message, delta: Delta) -> None:
        kind, text = _wire(delta)
        params = {"session": message.chat_id, "message_id": message.id, "kind": kind, "text": text}
        self._audience.tell(message.chat_id, "turn.delta", params, droppable=True)


def to_message(
    *, message_id: str, session: str, text: str, origin: LocalOrigin, media: tuple[Media, ...], received_at: datetime
) -> Message:
    """Make the message of a local client. Text files become part of the text, pictures ride along.

    Raises: Unusable when a file is neither.
    """
    parts = [text, *(_as_text(item) for item in media if item.kind != "image")]
    return Message(
        id=message_id,
        channel=NAME,
        chat_id=session,
        sender=Sender(SENDER_ID, _user_name()),
        text="\n\n".join(part for part in parts if part),
        reply_target=session,
        received_at=received_at,
        media=tuple(item for item in media if item.kind == "image"),
        origin=origin,
        private=True,
    )


def request_directory(cwd: str | None, is_directory: Callable[[Path], bool]) -> Path | None:
    """The client's working directory, when it is an absolute path to a directory."""
    path = Path(cwd) if cwd else None
    return path if path is not None and path.is_absolute() and is_directory(path) else None


def _as_text(item: Media) -> str:
    name = item.name or "file"
    if len(item.data) > MAX_TEXT_ATTACHMENT_BYTES:
        raise Unusable(
            f"{name} is longer than {MAX_TEXT_ATTACHMENT_BYTES // 1024} KiB; ask me to read it from its path"
        )
    try:
        text = item.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unusable(f"{name} is neither a picture nor UTF-8 text ({item.mime})") from error
    if "\0" in text:
        raise Unusable(f"{name} is neither a picture nor UTF-8 text ({item.mime})")
    return f"[attached file {name}]\n{text}"


def _wire(delta: Delta) -> tuple[str, str]:
    match delta:
        case TextDelta(text):
            return "text", text
        case ReasoningDelta(text):
            return "reasoning", text
        case ToolCallDelta(name):
            return "tool", name


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
