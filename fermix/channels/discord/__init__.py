"""Discord: its settings, and whom they let in."""

from __future__ import annotations

import re

from fermix.gateway.settings import ChannelSpec, UserSettings


class DiscordSettings(UserSettings):
    """`[fermix_channels.discord]`. The id is the account's snowflake; display names collide."""


SPEC = ChannelSpec("discord", DiscordSettings, re.compile(r"[1-9][0-9]{14,19}"), "175928847299117063")
