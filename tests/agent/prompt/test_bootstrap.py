from __future__ import annotations

import hashlib
import logging
import resource
import stat
from pathlib import Path

import pytest

from fermix.agent.prompt import bootstrap
from fermix.agent.prompt.bootstrap import (
    EVER_SHIPPED,
    MAX_FILE_BYTES,
    SEEDED,
    SHIPPED,
    PromptFiles,
    load,
    seed,
    shipped,
)
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


def test_every_shipped_text_is_known_by_its_digest() -> None:
    """Who changes a shipped text adds its digest at the end of EVER_SHIPPED, or unedited files would stay behind."""
    assert sorted(EVER_SHIPPED) == ["FERMIX.md"]
    for name, digests in EVER_SHIPPED.items():
        assert digests[-1] == hashlib.sha256(SHIPPED[name].encode()).hexdigest()
        assert "{name}" not in SHIPPED[name]
        assert len(set(digests)) == len(digests)


@pytest.fixture
def shipped_before(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A text of FERMIX.md that an older Fermix wrote."""
    old = b"# How you worked\n"
    known = (hashlib.sha256(old).hexdigest(), *EVER_SHIPPED["FERMIX.md"])
    monkeypatch.setattr(bootstrap, "EVER_SHIPPED", {"FERMIX.md": known})
    return old


def test_an_unedited_file_follows_the_shipped_text(home: Home, shipped_before: bytes) -> None:
    """Reference 4, 3.1: a new default replaces a file that is byte-equal to what it was seeded with."""
    path = home.bootstrap / "FERMIX.md"
    path.write_bytes(shipped_before)

    assert seed(home, "Ada") == ("IDENTITY.md", "FERMIX.md")
    assert path.read_text(encoding="utf-8") == shipped("FERMIX.md", "Ada")
    assert seed(home, "Ada") == ()


@pytest.mark.parametrize("edit", [b"# How you worked", b"# How you worked\n\n", b"\xef\xbb\xbf# How you worked\n", b""])
def test_one_byte_of_the_owner_keeps_a_file(
    home: Home, shipped_before: bytes, edit: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = home.bootstrap / "FERMIX.md"
    path.write_bytes(edit)

    assert seed(home, "Ada") == ("IDENTITY.md",)
    assert path.read_bytes() == edit
    assert "FERMIX.md was edited and stays as it is" in caplog.text


def test_what_is_no_plain_file_is_left_alone(home: Home, shipped_before: bytes) -> None:
    elsewhere = home.root / "mine.md"
    elsewhere.write_bytes(shipped_before)
    (home.bootstrap / "FERMIX.md").symlink_to(elsewhere)
    (home.bootstrap / "IDENTITY.md").mkdir()

    assert seed(home, "Ada") == ()
    assert elsewhere.read_bytes() == shipped_before


def test_identity_is_the_owners_from_the_first_day(home: Home) -> None:
    seed(home, "Ada")
    assert seed(home, "Bea") == ()

    assert "Name: Ada\n" in (home.bootstrap / "IDENTITY.md").read_text(encoding="utf-8")
