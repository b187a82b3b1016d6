"""The section `[fermix_channels.<name>]` of a channel: what all have in common, and whom it lets in.

A channel's room declares its settings from the classes below and a `ChannelSpec`. Only the platform's
immutable ids count: a name, a wildcard or any other text in a list means nobody, and the log says so.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from fermix.config.model import Config, Settings
from fermix.gateway.authorize import Access
from fermix.gateway.channel import StreamTier

log = logging.getLogger(__name__)

MOST_DEBOUNCE_MS = 60_000  # a typing error must not hold messages for hours


def _trimmed(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'an id is written in quotes, like "{value}"')
    return value.strip() if isinstance(value, str) else value


Id = Annotated[str, Field(max_length=100), BeforeValidator(_trimmed)]


class ChannelSettings(Settings):
    """What every channel's section holds. Without owner and list nobody gets in."""

    enabled: bool = False
    owner_user_id: Id | None = None
    """The one operator of this channel; needs no entry in the list."""
    command_allowlist: tuple[Id, ...] = ()
    """Who besides the owner may run commands that change something. It gives no other right."""
    streaming: StreamTier | None = None
    """How an answer is shown while it is written; unless stated, in a draft where the platform can edit."""

    @property
    def listed(self) -> tuple[str, ...]:
        """The ids that may chat as guests."""
        return ()

    @property
    def explicit_owner(self) -> str | None:
        """Who is trusted as operator: nobody but a stated owner."""
        return self.owner_user_id or None

    @property
    def command_owner(self) -> str | None:
        """Who may run commands besides the allow list: the stated owner, else the only one on the list."""
        entries = {text for text in self.listed if text}
        return self.explicit_owner or (next(iter(entries)) if len(entries) == 1 else None)

    @property
    def album_quiet_s(self) -> float:
        """How long an album waits for its next part, 0 where the platform sends it as one message."""
        return 0.0


class UserSettings(ChannelSettings):
    """For platforms that call their senders users."""

    allowed_user_ids: tuple[Id, ...] = ()
    """Guests."""

    @property
    def listed(self) -> tuple[str, ...]:
        return self.allowed_user_ids


class SenderSettings(ChannelSettings):
    """For platforms whose senders are phone numbers or accounts."""

    allowed_sender_ids: tuple[Id, ...] = ()
    """Guests."""

    @property
    def listed(self) -> tuple[str, ...]:
        return self.allowed_sender_ids


class AlbumSettings(ChannelSettings):
    """For platforms that send each picture of an album as a message of its own."""

    album_debounce_ms: int = Field(default=3000, le=MOST_DEBOUNCE_MS)
    """How long an album waits for its next part; 0 or less answers each part alone."""

    @property
    def album_quiet_s(self) -> float:
        return max(self.album_debounce_ms, 0) / 1000


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """One remote channel. `id_form` is what its immutable ids look like; `id_example` shows one."""

    name: str
    settings: type[ChannelSettings]
    id_form: re.Pattern[str]
    id_example: str

    @property
    def section(self) -> str:
        return f"fermix_channels.{self.name}"

    def access(self, config: Config) -> Access:
        """Return whom the configuration lets in; nobody while the channel is off."""
        settings = config.section(self.section, self.settings)
        if not settings.enabled:
            return Access(local=False)
        return Access(
            local=False,
            owner=next(iter(self._ids(settings.explicit_owner)), None),
            listed=self._ids(*settings.listed),
            commanders=self._ids(settings.command_owner, *settings.command_allowlist),
        )

    def streaming(self, config: Config) -> StreamTier | None:
        return config.section(self.section, self.settings).streaming

    def album_quiet_s(self, config: Config) -> float:
        return config.section(self.section, self.settings).album_quiet_s

    def no_ids(self, config: Config) -> list[str]:
        """Return what stands where an id belongs and is none, so that it lets nobody in."""
        settings = config.section(self.section, self.settings)
        texts = {text for text in (settings.owner_user_id, *settings.listed, *settings.command_allowlist) if text}
        return sorted(text for text in texts if not self.id_form.fullmatch(text))

    def _ids(self, *stated: str | None) -> frozenset[str]:
        texts = frozenset(text for text in stated if text)
        ids = frozenset(text for text in texts if self.id_form.fullmatch(text))
        for text in sorted(texts - ids):
            log.warning("[%s] %r is no id of this platform and lets nobody in; write one like %r (see "
                        "`fermix channels`)", self.section, text, self.id_example)  # fmt: skip
        return ids
