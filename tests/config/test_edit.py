"""The editor changes named keys and nothing else, or nothing at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.config.edit import Changes, ConfigEditor, rewrite
from fermix.config.load import load
from fermix.errors import ConfigError, NeedsOperator, Unavailable
from fermix.home import Home
from tests.config.test_load import SECTIONS
from tests.requirements import covers

PRIMARY = ("fermix_core", "providers", "openai", "primary")
PORT = ("fermix_web", "port")
HAND_WRITTEN = """\
# my settings   \t
[fermix_web]          # the web
port =   4040         # not the default
bind = '127.0.0.1'

[sandbox]
allowed = [
  "/a",   # first
  "/b",
]
mode = \"\"\"standard\"\"\"

[fermix_core.agent]
name = "\\u0041da"  # escaped
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    return Home(root)


def editor(home: Home) -> ConfigEditor:
    return ConfigEditor(home, SECTIONS)


@pytest.mark.parametrize(
    "text",
    [
        "# mine\n[fermix_core.providers.openai]\nprimary = true\n\n[fermix_web]\nport = 4040\n",
        "fermix_web.port = 4040\nfermix_core.providers.openai.primary = true\n",
        "[fermix_core]\nproviders.openai = { primary = true }\n[fermix_web]\nport = 4040\n",
        "[fermix_core.providers.openai]\nprimary = true\n[fermix_web]\nport = 4040\n[fermix_core.providers.xai]\n",
    ],
)
def test_whole_section_is_taken_out(text: str) -> None:
    changed = rewrite(text.encode(), {("fermix_core", "providers", "openai"): None}, Path("config.toml"))

    assert tomllib.loads(changed.decode())["fermix_web"] == {"port": 4040}
    assert "openai" not in changed.decode()
    assert ("xai" in changed.decode()) is ("xai" in text)
    assert ("# mine" in changed.decode()) is ("# mine" in text)


def test_first_change_makes_a_private_file(home: Home) -> None:
    editor(home).apply({PRIMARY: True, ("fermix_core", "agent", "name"): "Ada"})

    assert home.config.read_text(encoding="utf-8") == (
        '[fermix_core.providers.openai]\nprimary = true\n\n[fermix_core.agent]\nname = "Ada"\n'
    )
    assert stat.S_IMODE(home.config.stat().st_mode) == 0o600
    assert [path.name for path in home.root.iterdir()] == ["config.toml"]


@covers("home.config", "config.edit-by-hand")
def test_every_other_byte_stays_as_it_was(home: Home) -> None:
    """CFG-01: comments, order, blanks and spellings."""
    home.config.write_text(HAND_WRITTEN, encoding="utf-8")

    editor(home).apply({PORT: 5050, PRIMARY: True})

    assert home.config.read_text(encoding="utf-8") == (
        HAND_WRITTEN.replace("4040", "5050") + "\n[fermix_core.providers.openai]\nprimary = true\n"
    )


def test_version_before_is_kept(home: Home) -> None:
    home.config.write_text(HAND_WRITTEN, encoding="utf-8")

    edit = editor(home)
    edit.apply({PORT: 5050})
    edit.apply({PORT: 6060})

    previous = home.root / "config.toml.previous"
    assert previous.read_text(encoding="utf-8") == HAND_WRITTEN.replace("4040", "5050")
    assert stat.S_IMODE(previous.stat().st_mode) == 0o600


def test_removed_key_leaves_its_section(home: Home) -> None:
    home.config.write_text("[fermix_web]\nport = 4040\nbind = '::1'\n", encoding="utf-8")

    editor(home).apply({PORT: None, ("sandbox", "mode"): None, ("fermix_web", "nothing"): None})

    assert home.config.read_text(encoding="utf-8") == "[fermix_web]\nbind = '::1'\n"


def test_change_that_changes_nothing_writes_nothing(home: Home) -> None:
    home.config.write_text(HAND_WRITTEN, encoding="utf-8")
    before = home.config.stat()

    editor(home).apply({PORT: 4040})

    assert (home.config.stat().st_ino, home.config.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({PORT: 80}, r"fermix_web\.port: line 3: must lie between"),
        ({PORT: "4040"}, r"fermix_web\.port: line 3: Input should be a valid integer"),
        ({("fermix_web", "prot"): 1}, r"fermix_web\.prot: line 5: unknown key; did you mean 'port'"),
        ({("fermix_core", "agent", "name", "first"): "A"}, r"fermix_core\.agent\.name is not a section"),
        ({("sandbox", "allowed"): ("\x00",)}, None),
    ],
)
def test_wrong_change_is_refused_before_anything_is_written(home: Home, changes: Changes, message: str | None) -> None:
    """CFG-02, CFG-03"""
    home.config.write_text(HAND_WRITTEN, encoding="utf-8")

    if message is None:
        editor(home).apply(changes)
        assert load(home, {}, SECTIONS).sections["sandbox"].model_dump()["allowed"] == ("\x00",)
        return
    with pytest.raises(ConfigError, match=message):
        editor(home).apply(changes)
    assert home.config.read_text(encoding="utf-8") == HAND_WRITTEN
    assert [path.name for path in home.root.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("outside", "named"),
    [
        (HAND_WRITTEN.replace("4040", "4041"), "([fermix_web])"),
        (HAND_WRITTEN + "\n[fermix_core.traces]\ncontent = true\n", "([fermix_core.traces])"),
        (HAND_WRITTEN + "# a note\n", "(layout or comments only)"),
        ("", "([fermix_core.agent], [fermix_web], [sandbox])"),
    ],
)
def test_edit_by_another_hand_is_never_overwritten(home: Home, outside: str, named: str) -> None:
    home.config.write_text(HAND_WRITTEN, encoding="utf-8")
    edit = editor(home)
    home.config.write_text(outside, encoding="utf-8")

    with pytest.raises(NeedsOperator) as caught:
        edit.apply({PORT: 5050})

    assert named in str(caught.value)
    assert home.config.read_text(encoding="utf-8") == outside


def test_broken_file_is_named_and_left_alone(home: Home) -> None:
    home.config.write_text("[fermix_web\n", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"\(at line 1, column 12\)"):
        editor(home).apply({PORT: 5050})
    assert home.config.read_text(encoding="utf-8") == "[fermix_web\n"


def test_byte_order_mark_and_windows_line_ends_stay(home: Home) -> None:
    """CFG-05"""
    home.config.write_bytes(b"\xef\xbb\xbf[fermix_web]\r\nport = 4040\r\n")

    editor(home).apply({PORT: 5050, PRIMARY: True})

    assert home.config.read_bytes() == (
        b"\xef\xbb\xbf[fermix_web]\r\nport = 5050\r\n\r\n[fermix_core.providers.openai]\r\nprimary = true\r\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "fermix_web.port = 4040\n",
        "fermix_web = {port = 4040}\n",
        "[fermix_core.providers]\nopenai = {primary = false} # inline\n",
        "[fermix_core.agent]\nname = 'x'\n[sandbox]\n[fermix_core.traces]\ncontent = true\n",
        "[fermix_web]\nport = 4040",
        "[fermix_core.providers.openai]\n[fermix_core]\nprofile = 'p'\n",
        "'fermix_web'.\"port\" = 4_040\n",
    ],
)
def test_odd_layouts_are_edited_or_refused_but_never_damaged(text: str) -> None:
    changes: Changes = {PORT: 5050, PRIMARY: True}

    after = tomllib.loads(rewrite(text.encode(), changes, Path("config.toml")).decode())

    expected = tomllib.loads(text)
    expected.setdefault("fermix_web", {})["port"] = 5050
    expected.setdefault("fermix_core", {}).setdefault("providers", {}).setdefault("openai", {})["primary"] = True
    assert after == expected


def test_two_editors_at_once_do_not_lose_a_change(home: Home) -> None:
    home.config.write_text(HAND_WRITTEN, encoding="utf-8")
    refused: list[str] = []

    def change(edit: ConfigEditor, port: int) -> None:
        try:
            edit.apply({PORT: port})
        except NeedsOperator as error:
            refused.append(str(error))

    threads = [threading.Thread(target=change, args=(editor(home), 5000 + number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    assert len(refused) == 3


def test_full_disk_leaves_the_old_file_whole(tiny_disk: Path) -> None:
    """CFG-02"""
    home = Home(tiny_disk)
    home.config.write_text(HAND_WRITTEN, encoding="utf-8")
    edit = editor(home)
    filler = tiny_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * 65_536)

    with pytest.raises(NeedsOperator, match="No space left on device"):
        edit.apply({PORT: 5050})

    assert home.config.read_text(encoding="utf-8") == HAND_WRITTEN
    assert sorted(path.name for path in tiny_disk.iterdir()) == ["config.toml", "filler"]


def test_read_only_disk_is_told_as_such(tiny_disk: Path) -> None:
    home = Home(tiny_disk)
    home.config.write_text(HAND_WRITTEN, encoding="utf-8")
    edit = editor(home)
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], timeout=5, check=True)

    with pytest.raises(NeedsOperator, match="Read-only file system"):
        edit.apply({PORT: 5050})
    assert home.config.read_text(encoding="utf-8") == HAND_WRITTEN


NAMES = st.sampled_from(["a", "b", "c d", "é", "x.y", '"', "1"])
SCALARS = st.one_of(
    st.text(max_size=20),
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.text(max_size=5), max_size=3).map(tuple),
)


@given(st.dictionaries(st.tuples(NAMES, NAMES), SCALARS, max_size=5), st.tuples(NAMES, NAMES), SCALARS)
def test_any_written_value_is_read_back_and_its_neighbours_keep_their_bytes(
    first: dict[tuple[str, str], str], key: tuple[str, str], value: str
) -> None:
    path = Path("config.toml")
    before = rewrite(b"# head\n", first, path)

    after = rewrite(before, {key: value}, path)
    removed = rewrite(after, {key: None}, path)

    written = tomllib.loads(after.decode())[key[0]][key[1]]
    assert (tuple(written) if isinstance(written, list) else written) == value
    untouched = [line for line in before.decode().split("\n") if line not in after.decode().split("\n")]
    assert len(untouched) <= 1
    assert key[1] not in tomllib.loads(removed.decode()).get(key[0], {})


def test_symbolic_link_to_the_file_stays_a_link(home: Home, tmp_path: Path) -> None:
    """People keep their settings in a repository and link to them."""
    elsewhere = tmp_path / "dotfiles"
    elsewhere.mkdir()
    (elsewhere / "fermix.toml").write_text(HAND_WRITTEN, encoding="utf-8")
    home.config.symlink_to(elsewhere / "fermix.toml")

    editor(home).apply({PORT: 5050})

    assert os.readlink(home.config) == str(elsewhere / "fermix.toml")  # noqa: PTH115
    assert (elsewhere / "fermix.toml").read_text(encoding="utf-8") == HAND_WRITTEN.replace("4040", "5050")


def test_an_editing_library_that_a_cleaner_took_is_told_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PKG-02: it is the one that the daemon imports late."""
    home = Home(tmp_path / "home")
    home.prepare()
    home.config.write_text(HAND_WRITTEN, encoding="utf-8")
    monkeypatch.setitem(sys.modules, "tomlkit", None)

    with pytest.raises(Unavailable) as caught:
        ConfigEditor(home, SECTIONS).apply({PORT: 4050})

    assert "try again" in (caught.value.user_text or "")
    assert home.config.read_text(encoding="utf-8") == HAND_WRITTEN
