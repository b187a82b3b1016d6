"""WhatsApp: its settings, and whom they let in."""

from __future__ import annotations

import re

from fermix.gateway.settings import AlbumSettings, ChannelSpec, SenderSettings


class WhatsAppSettings(SenderSettings, AlbumSettings):
    """`[fermix_channels.whatsapp]`. The id is the platform's `wa_id`: the number with its country, digits only."""


SPEC = ChannelSpec("whatsapp", WhatsAppSettings, re.compile(r"[1-9][0-9]{5,19}"), "4915112345678")
