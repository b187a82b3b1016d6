from __future__ import annotations

import resource
import stat
from pathlib import Path

import pytest

from fermix.agent.prompt.bootstrap import MAX_FILE_BYTES, SEEDED, PromptFiles, load, seed, shipped
from fermix.errors import ConfigError, NeedsOperator
from fermix.home import Home
from tests.requirements import covers


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def files_below(home: Home) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}


@covers("home.bootstrap")
def test_missing_files_are_seeded_with_the_name_and_for_the_owner_only(home: Home) -> None:
    """Reference 4, 3.1: identity and rules are seeded, the tone is the owner's to write."""
    assert seed(home, "Ada") == ("IDENTITY.md", "FERMIX.md")
    assert sorted(files_below(home)) == ["FERMIX.md", "IDENTITY.md"]
    assert "Name: Ada\n" in (home.bootstrap / "IDENTITY.md").read_text(encoding="utf-8")
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.bootstrap.iterdir()} == {0o600}


def test_existing_file_is_never_overwritten(home: Home) -> None:
    """Reference 4, 3.1: seeding a second time writes only what is missing."""
    (home.bootstrap / "FERMIX.md").write_text("mine", encoding="utf-8")

    assert seed(home, "Ada") == ("IDENTITY.md",)
    assert (home.bootstrap / "FERMIX.md").read_text(encoding="utf-8") == "mine"


def test_loading_an_empty_home_gives_the_shipped_texts_and_writes_nothing(home: Home) -> None:
    """Reference 4, 3.1: a missing file is rendered in memory."""
    loaded = load(home, "Ada")

    assert loaded == PromptFiles(
        identity=shipped("IDENTITY.md", "Ada").strip(),
        rules=shipped("FERMIX.md", "Ada").strip(),
        soul="",
        user="",
        memory="",
        compact=shipped("COMPACT.md", "Ada").strip(),
    )
    assert files_below(home) == {}


def test_texts_of_the_owner_are_used_and_blank_ones_are_not(home: Home) -> None:
    (home.bootstrap / "IDENTITY.md").write_text("\ufeffI am me.\n", encoding="utf-8")
    (home.bootstrap / "FERMIX.md").write_text(" \n", encoding="utf-8")
    (home.bootstrap / "SOUL.md").write_text("Warm.", encoding="utf-8")

    loaded = load(home, "Ada")

    assert (loaded.identity, loaded.soul) == ("I am me.", "Warm.")
    assert loaded.rules == shipped("FERMIX.md", "Ada").strip()


def test_disk_that_is_full_is_said_and_leaves_no_half_file(home: Home) -> None:
    """Issue 2: home on a full disk; what is half-written would be the owner's text for ever."""
    size_bytes = len(shipped(SEEDED[0], "Ada").encode()) - 1
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))  # a larger file is refused while it is written
    try:
        with pytest.raises(NeedsOperator, match="File too large: free space"):
            seed(home, "Ada")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert list(home.bootstrap.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "complaint"), [(b"caf\xe9", "not UTF-8 text (byte 3)"), (b"x" * (MAX_FILE_BYTES + 1), "larger than")]
)
def test_file_that_cannot_be_used_is_named(home: Home, content: bytes, complaint: str) -> None:
    """House 8: nothing is corrected silently."""
    (home.bootstrap / "SOUL.md").write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load(home, "Ada")

    assert complaint in str(caught.value)
    assert caught.value.path.endswith("SOUL.md")


def test_folder_in_place_of_a_file_is_named(home: Home) -> None:
    (home.bootstrap / "SOUL.md").mkdir()

    with pytest.raises(ConfigError, match="cannot be read"):
        load(home, "Ada")
