"""What travels between channels, gateway and agent. Every type here is frozen and knows no platform."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

MediaKind = Literal["image", "audio", "file"]
FileKind = Literal["image", "document", "audio", "video", "voice"]
InboundKind = Literal["message", "edit", "reaction", "button", "file", "join"]
PICTURE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What a model can look at; any other type that calls itself an image is a file, SVG for one is text."""
ROOT_THREAD = "root"


class ConversationKey(NamedTuple):
    """One FIFO line: `thread` is "root" or the platform's own thread id."""

    channel: str
    chat_id: str
    thread: str

    @classmethod
    def of(cls, message: Message) -> ConversationKey:
        return cls(message.channel, message.chat_id, message.thread)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who wrote. `id` is the platform's immutable id as text, None when the platform gave none."""

    id: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file as the platform names it; nothing is downloaded yet. `size_bytes` is None when undeclared."""

    kind: MediaKind
    reference: str
    mime: str
    size_bytes: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """A file that is here. Lives for one turn and is never stored. `data` are the whole bytes."""

    kind: MediaKind
    mime: str
    data: bytes
    name: str | None = None


@dataclass(frozen=True, slots=True)
class LocalOrigin:
    """Where a local client stands. Made by `channels/local.py` only; None for every remote channel.

    `cwd` is the client's working directory. `attended` is False when the peer is a process that the
    daemon itself started, or a confined one.
    """

    cwd: Path | None
    attended: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """One inbound message. `received_at` is UTC; `reply_target` is opaque to all but its channel."""

    id: str
    channel: str
    chat_id: str
    sender: Sender
    text: str
    reply_target: str
    received_at: datetime
    thread: str = ROOT_THREAD
    attachments: tuple[Attachment, ...] = ()
    media: tuple[Media, ...] = ()
    origin: LocalOrigin | None = None
    kind: InboundKind = "message"
    private: bool = False
    """Whether only the sender and the agent read this chat; unknown counts as shared."""
    album: str | None = None
    """The platform's id of the album this message is a part of."""

    @property
    def key(self) -> ConversationKey:
        return ConversationKey.of(self)


@dataclass(frozen=True, slots=True)
class Text:
    """Markdown text. `model` names who spoke ("openai/gpt-5.5"), None when Fermix itself did. `waits`: a turn stands
    still until it is answered, so it must be seen at once.
    """

    text: str
    model: str | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A file to send. `data` are the whole bytes: what was judged is what is sent, whatever becomes of its path."""

    data: bytes
    name: str
    kind: FileKind
    mime: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Reaction:
    """An emoji on the message that is being answered."""

    emoji: str


@dataclass(frozen=True, slots=True)
class ApprovalPrompt:
    """A question that only the owner may answer; `token` is what `/confirm` takes. `waits`: a turn stands still for an
    answer.
    """

    id: str
    text: str
    token: str
    waits: bool = False


Reply = Text | File | Reaction | ApprovalPrompt
