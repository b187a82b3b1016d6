"""Who could answer now, from real configuration and files."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from fermix.agent.providers.chain import Candidate
from fermix.agent.providers.embedded import EmbeddedModel
from fermix.agent.providers.local_files import LocalFiles
from fermix.channels import telegram
from fermix.config.model import LocalModelSettings
from fermix.daemon.control import Routes, channel_row, read_candidates
from fermix.events import Events
from fermix.fetch import Artifact
from fermix.home import Home
from fermix.net import Net
from fermix.setup.sections import load_config
from tests.fakes.books import FakeBooks
from tests.fakes.clock import ManualClock

KEYLESS = "[fermix_core.providers.openai]\nprimary = true\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "fermix")
    home.prepare()
    return home


@pytest.fixture
async def routes(home: Home) -> AsyncGenerator[Routes]:
    clock = ManualClock()
    events = Events(clock)
    files = LocalFiles(home.models, Artifact("tiny.gguf", 4, "", "http://localhost/tiny.gguf"), None, ())
    async with Net.open(loopback_only=True) as net:
        yield Routes(
            net, EmbeddedModel(LocalModelSettings(), files, ("fermix",), {}, events, clock), events, clock, FakeBooks()
        )


def candidates(home: Home, text: str, **environ: str) -> tuple[Candidate, ...]:
    home.config.write_text(text, encoding="utf-8")
    return read_candidates(home, load_config(home, environ))


async def test_a_provider_without_its_key_is_nobody_who_could_answer(home: Home, routes: Routes) -> None:
    """Issue 2, 6: no usable provider and no embedded default is `setup_required`, whatever is configured."""
    routes.use(candidates(home, KEYLESS), LocalModelSettings())
    without = routes.current
    routes.use(candidates(home, KEYLESS, OPENAI_API_KEY="sk-from-the-environment"), LocalModelSettings())

    assert (without, routes.current) == (None, "openai/gpt-5.5")


async def test_the_local_model_counts_once_its_files_are_here(home: Home, routes: Routes) -> None:
    routes.use(candidates(home, ""), LocalModelSettings())
    absent = routes.current
    (home.models / "tiny.gguf").write_bytes(b"GGUF")
    ready = routes.current
    routes.use(candidates(home, ""), LocalModelSettings(enabled=False))

    assert (absent, ready, routes.current) == (None, "local/qwen2.5-coder-0.5b", None)


@pytest.mark.parametrize(
    ("section", "guests", "problem"),
    [
        ("", 0, "everybody is denied, since neither owner nor list is set"),
        (
            'owner_user_id = "@ada"',
            0,
            '"@ada" is no id of this platform (one looks like "123456789"); everybody is denied',
        ),
        ('allowed_user_ids = ["*", "77"]', 1, '"*" is no id of this platform (one looks like "123456789")'),
        (
            'owner_user_id = "1"\ncommand_allowlist = ["b\\u202e", "a"]',
            0,
            '"a", "b⟨U+202E⟩" are no ids of this platform (one looks like "123456789")',
        ),
    ],
)
def test_a_channel_says_why_people_are_denied(tmp_path: Path, section: str, guests: int, problem: str) -> None:
    """R-15: an entry that is no id lets nobody in, and whoever wrote it must learn that where he looks."""
    home = Home(tmp_path)
    home.config.write_text(f"[fermix_channels.telegram]\nenabled = true\n{section}", encoding="utf-8")
    config = load_config(home, {})
    row = channel_row(telegram.SPEC, config, telegram.SPEC.access(config))

    assert row["problem"] == f"{problem}; this version cannot connect to it yet"
    assert row["guests"] == guests
