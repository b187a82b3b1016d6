"""Telegram: its settings, and whom they let in."""

from __future__ import annotations

import re

from fermix.gateway.settings import AlbumSettings, ChannelSpec, UserSettings


class TelegramSettings(UserSettings, AlbumSettings):
    """`[fermix_channels.telegram]`. A username can be given up and taken by somebody else; the number stays."""


SPEC = ChannelSpec("telegram", TelegramSettings, re.compile(r"[1-9][0-9]{0,18}"), "123456789")
