"""Slack: its settings, and whom they let in."""

from __future__ import annotations

import re

from fermix.gateway.settings import ChannelSpec, UserSettings


class SlackSettings(UserSettings):
    """`[fermix_channels.slack]`. The id is team and user, since a shared channel brings users of other teams."""


SPEC = ChannelSpec("slack", SlackSettings, re.compile(r"[TE][A-Z0-9]{2,20}\+[UW][A-Z0-9]{2,20}"), "T0AB12CD3+U0EF45GH6")
