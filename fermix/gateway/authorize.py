"""Decide who is speaking. Called once per message of any kind, before anything else; unknown is denied.

The six rules, in their order (Ingress and trust, authorization rules):
  1 a local channel               operator
  2 a channel nobody knows        denied: unknown channel
  3 no sender id                  denied
  4 the explicit owner            operator
  5 on the channel's list         guest
  6 anybody else                  denied
An empty list, a missing key and a wildcard all mean nobody. Who may run commands is decided here as well, by a
lookup of its own: it never raises trust.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fermix.message import Message
from fermix.trust import Trust
from fermix.visible import spelled

REMEMBERED = 10  # denied senders of one channel; a busy stranger cannot push out those of another channel
SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use one channel. Ids are the platform's immutable ones, as trimmed text. `commanders` are the guests
    who may run commands that change something.
    """

    local: bool
    owner: str | None = None
    listed: frozenset[str] = frozenset()
    commanders: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a sender is: decided here, changed nowhere. `commands` says whether mutating commands may be run; they
    run with this same trust.
    """

    trust: Trust
    commands: bool


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a sender gets nothing, for the log."""

    reason: Literal["unknown_channel", "unauthorized"]


@dataclass(frozen=True, slots=True)
class Denied:
    """Somebody who wrote and may not, for the owner to look at. Held in memory only; `sender` is the platform's id."""

    channel: str
    sender: str
    name: str
    at: datetime
    times: int


class Authorizer:
    """Holds the access rules of every known channel, and the last few who were denied."""

    def __init__(self, channels: Mapping[str, Access]) -> None:
        self._channels = channels
        self._denied: dict[str, OrderedDict[str, Denied]] = {}

    def use(self, channels: Mapping[str, Access]) -> None:
        """Take the rules of a new configuration; the next message is judged by them."""
        self._channels = channels

    def access(self, channel: str) -> Access | None:
        """Return the rules of a channel, None when it is unknown."""
        return self._channels.get(channel)

    def resolve(self, message: Message) -> Authorization | Denial:
        """Judge the sender of a message, an edit, a reaction, a button, a file or a join."""
        access = self._channels.get(message.channel)
        if access is None:
            return Denial("unknown_channel")
        verdict = _judge(access, message)
        if isinstance(verdict, Denial):
            self._remember(message)
        return verdict

    def denied(self) -> list[Denied]:
        """Return who was denied on known channels, the latest first."""
        return sorted((row for rows in self._denied.values() for row in rows.values()), key=_when, reverse=True)

    def _remember(self, message: Message) -> None:
        sender = (message.sender.id or "").strip()[:SHOWN_CHARS]
        if not sender:
            return
        rows = self._denied.setdefault(message.channel, OrderedDict())
        earlier = rows.pop(sender, None)
        times = earlier.times + 1 if earlier else 1
        rows[sender] = Denied(message.channel, sender, message.sender.name[:SHOWN_CHARS], message.received_at, times)
        if len(rows) > REMEMBERED:
            rows.popitem(last=False)


def lesser(first: Authorization, *others: Authorization) -> Authorization:
    """Return what every one of them was allowed: a right that one of them lacks is gone."""
    every = (first, *others)
    operator = all(one.trust is Trust.OPERATOR for one in every)
    return Authorization(Trust.OPERATOR if operator else Trust.GUEST, all(one.commands for one in every))


def described(message: Message) -> str:
    """Name a sender in one line of the log. What strangers call themselves is spelled out and cut."""
    sender = message.sender
    return (
        f"sender {_quoted(sender.id)} named {_quoted(sender.name)} in chat {_quoted(message.chat_id)} "
        f"on channel {_quoted(message.channel)}"
    )


def _quoted(text: str | None) -> str:
    return repr(text if text is None else spelled(text[:SHOWN_CHARS]))


def _judge(access: Access, message: Message) -> Authorization | Denial:
    if access.local:
        return Authorization(Trust.OPERATOR, commands=True)
    sender = (message.sender.id or "").strip()
    if not sender or message.origin is not None:  # only what comes from this machine may say so
        return Denial("unauthorized")
    if sender == access.owner:
        return Authorization(Trust.OPERATOR, commands=True)
    if sender in access.listed:
        return Authorization(Trust.GUEST, commands=sender in access.commanders)
    return Denial("unauthorized")


def _when(row: Denied) -> datetime:
    return row.at
