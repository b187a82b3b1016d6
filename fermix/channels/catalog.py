"""Every channel, one line each."""

from __future__ import annotations

from collections.abc import Mapping

from fermix.channels import discord, local, signal, slack, telegram, whatsapp
from fermix.config.model import Config
from fermix.gateway.authorize import Access
from fermix.gateway.channel import StreamTier
from fermix.gateway.settings import ChannelSpec

LOCAL: Mapping[str, Access] = {local.NAME: Access(local=True), "daemon": Access(local=True)}

CHANNELS: tuple[ChannelSpec, ...] = (
    telegram.SPEC,
    whatsapp.SPEC,
    discord.SPEC,
    slack.SPEC,
    signal.SPEC,
)


def access_rules(config: Config) -> dict[str, Access]:
    """Return who may use each channel; a name that is not here is no channel."""
    return {**LOCAL, **{spec.name: spec.access(config) for spec in CHANNELS}}


def enabled_channels(config: Config) -> tuple[str, ...]:
    """Return the remote channels that the owner switched on."""
    return tuple(spec.name for spec in CHANNELS if config.section(spec.section, spec.settings).enabled)


def stream_tiers(config: Config) -> dict[str, StreamTier]:
    """Return how each channel streams, as far as the configuration says."""
    found: dict[str, StreamTier] = {}
    for spec in CHANNELS:
        if (tier := spec.streaming(config)) is not None:
            found[spec.name] = tier
    return found


def album_times(config: Config) -> dict[str, float]:
    """Return how many seconds each channel's albums wait for their next part."""
    return {spec.name: spec.album_quiet_s(config) for spec in CHANNELS}
