"""What a sender who may not speak leaves behind: one line in the log and one in `fermix channels`, nothing else."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from fermix.channels.catalog import CHANNELS, access_rules
from fermix.gateway import Authorizer
from fermix.message import Attachment, InboundKind, Sender
from tests.fakes.channel import EVERY_ABILITY, FakeAgent, FakeChannel, message
from tests.fakes.platform import Platform
from tests.gateway.conftest import Install
from tests.gateway.test_section import IDS, LISTS, read
from tests.requirements import covers

CONFIG = "\n".join(
    f'[fermix_channels.{name}]\nenabled = true\nowner_user_id = "{owner}"\n{LISTS[name]} = ["{guest}"]'
    for name, (owner, guest) in IDS.items()
)
NAMES = [spec.name for spec in CHANNELS]
KINDS = get_args(InboundKind)
EVIL = 'jo"\n2026-01-01 WARNING \x1b[31m'


def rules(tmp_path: Path) -> Authorizer:
    (tmp_path / "config").mkdir()
    return Authorizer(access_rules(read(tmp_path / "config", CONFIG)))


@covers("ingress.deny.silent", "ingress.deny.no-agent", "ingress.deny.logged")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_stranger_of_any_kind_leaves_no_row_no_file_and_no_sign(
    install: Install, tmp_path: Path, name: str, kind: InboundKind, caplog: pytest.LogCaptureFixture
) -> None:
    """R-16: every inbound kind is judged before anything is downloaded, stored, answered or shown to the model."""
    platform = Platform(files={"f1": b"x" * 100})
    channel = FakeChannel(name, platform=platform, can=EVERY_ABILITY)
    said = message(
        "/whoami", channel=name, sender="66", kind=kind, attachments=(Attachment("image", "f1", "image/png"),)
    )
    async with install.start(FakeAgent(), channel) as open_:
        authorizer = rules(tmp_path)
        open_.gateway._rooms = replace(open_.gateway._rooms, authorizer=authorizer)
        with caplog.at_level(logging.WARNING):
            for sender in ("66", "*", "@owner", EVIL, None, " "):
                await open_.gateway.ingest(replace(said, sender=Sender(sender, EVIL), id=f"m{sender!r}"), channel)
        await asyncio.sleep(0)

        assert (platform.log(), platform.downloaded_bytes) == ([], 0)
        assert (open_.agent.started, open_.news.drain()) == ([], [])
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 6
        assert all("\n" not in record.getMessage() and "\x1b" not in record.getMessage() for record in caplog.records)
        assert "'66'" in caplog.records[0].getMessage()
        assert {row.sender for row in authorizer.denied()} == {"66", "*", "@owner", EVIL.strip()}
    assert install.rows("SELECT * FROM inbox") == []


@pytest.mark.parametrize("who", ["owner", "guest"])
@pytest.mark.parametrize("kind", ["reaction", "join"])
async def test_what_asks_nothing_gets_no_answer(install: Install, kind: InboundKind, who: str) -> None:
    """A thumb up is no empty message: nothing is said, stored or run."""
    async with install.start() as open_:
        said = message("👍", channel="chat", sender="1" if who == "owner" else "2", kind=kind)
        await open_.gateway.ingest(said, open_.channel)

        assert (open_.channel.sent, open_.agent.started, open_.news.drain()) == ([], [], [])
    assert install.rows("SELECT * FROM inbox") == []
