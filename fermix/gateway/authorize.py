"""Decide who is speaking. Called once per message, before anything else; unknown is denied.

The six rules, in their order (Ingress and trust, authorization rules):
  1 a local channel               operator
  2 a channel nobody knows        denied: unknown channel
  3 no sender id                  denied
  4 the explicit owner            operator
  5 on the channel's list         guest
  6 anybody else                  denied
An empty list, a missing key and a wildcard all mean nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fermix.message import Message
from fermix.trust import Trust


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use one channel. Ids are the platform's immutable ones, as trimmed text."""

    local: bool
    owner: str | None = None
    listed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a sender is: decided here, changed nowhere."""

    trust: Trust


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a sender gets nothing, for the log."""

    reason: Literal["unknown_channel", "unauthorized"]


class Authorizer:
    """Holds the access rules of every known channel."""

    def __init__(self, channels: Mapping[str, Access]) -> None:
        self._channels = channels

    def resolve(self, message: Message) -> Authorization | Denial:
        access = self._channels.get(message.channel)
        if access is not None and access.local:
            return Authorization(Trust.OPERATOR)
        if access is None:
            return Denial("unknown_channel")
        sender = (message.sender.id or "").strip()
        if not sender:
            return Denial("unauthorized")
        if sender == access.owner:
            return Authorization(Trust.OPERATOR)
        if sender in access.listed:
            return Authorization(Trust.GUEST)
        return Denial("unauthorized")
