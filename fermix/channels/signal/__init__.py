"""Signal: its settings, and whom they let in."""

from __future__ import annotations

import re

from fermix.gateway.settings import ChannelSpec, SenderSettings


class SignalSettings(SenderSettings):
    """`[fermix_channels.signal]`. The id is the account's own (ACI); a phone number can change hands."""


SPEC = ChannelSpec(
    "signal",
    SignalSettings,
    re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "0c9f2b1e-8d47-4c5a-9a3e-1f6b7d2e8a90",
)
