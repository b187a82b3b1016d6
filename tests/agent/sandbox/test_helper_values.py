"""Variables that the owner allows: which pass, where their values come from, and that none is ever shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fermix.agent.sandbox import Sandbox, SandboxSettings
from fermix.agent.sandbox.helper_values import look_up
from fermix.home import Home
from fermix.native.sweep import children
from fermix.trust import Trust
from fermix.workers import Workers
from tests.fakes.turns import make_turn

ENVIRON = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "LC_TIME": "C",
    "OPENAI_API_KEY": "sk-canary-of-ours-1",
    "TICKETS": "canary-tickets-22",
    "EDITOR": "vi",
    "LD_PRELOAD": "/tmp/x.so",
    "PYTHONPATH": "/tmp",
    "FERMIX_HOME": "/home/x",
    "BASH_ENV": "/tmp/rc",
}


class Scene:
    """A sandbox, the folder that is open, and one that is not."""

    def __init__(self, root: Path, workers: Workers) -> None:
        self.home = Home(root / "user/.fermix")
        self.home.prepare()
        self.shut = root / "shut"
        self.shut.mkdir()
        self.workers = workers

    def sandbox(self, environ: Mapping[str, str] = ENVIRON, **env: object) -> Sandbox:
        settings = SandboxSettings.model_validate({"env": env})
        root = self.shut.parent
        return Sandbox(settings, self.home, root, root / "user", environ, key_names={"OPENAI_API_KEY"})

    def helper(self, body: str, folder: Path | None = None) -> str:
        path = (folder or self.shut) / f"helper-{abs(hash(body))}"
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o700)
        return str(path)

    def source(self, body: str, **more: object) -> dict[str, object]:
        return {"source": "command", "command": self.helper(body), **more}


@pytest.fixture
def scene(tmp_path: Path) -> object:
    workers = Workers()
    yield Scene(tmp_path, workers)
    workers.close()


async def passed(sandbox: Sandbox, trust: Trust = Trust.OPERATOR, together_s: float = 5) -> dict[str, dict[str, str]]:
    wanted = sandbox.wanted(make_turn(trust=trust))
    found = await look_up(wanted, together_s=together_s)
    return {"values": dict(found.variables), "missing": dict(found.missing)}


async def test_what_is_allowed_passes_and_nothing_else(scene: Scene) -> None:
    assert await passed(scene.sandbox()) == {"values": {}, "missing": {}}
    assert await passed(scene.sandbox(allow=("TICKETS", "NOWHERE"))) == {
        "values": {"TICKETS": "canary-tickets-22"},
        "missing": {"NOWHERE": "the daemon was started without it"},
    }
    assert await passed(scene.sandbox(allow=("TICKETS",), deny=("TICKETS",))) == {"values": {}, "missing": {}}
    assert "LANG" not in scene.sandbox(deny=("LANG",)).confined(make_turn()).environment


async def test_all_passes_everything_but_keys_and_what_steers_a_program(scene: Scene) -> None:
    """R-40: also where the whole environment is passed on."""
    found = await passed(scene.sandbox(mode="all"))

    assert found["values"] == {"TICKETS": "canary-tickets-22", "EDITOR": "vi"}
    assert "OPENAI_API_KEY" in (await passed(scene.sandbox(mode="all", allow=("OPENAI_API_KEY",))))["values"]


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "NODE_OPTIONS", "BASH_ENV", "ENV",
     "PERL5LIB", "RUBYOPT", "FERMIX_EXE", "_MEIPASS2", "_PYI_ARCHIVE_FILE", "LD_LIBRARY_PATH_ORIG", "a=b", "", "X\n"],
)  # fmt: skip
@pytest.mark.parametrize("key", ["allow", "deny", "source"])
def test_what_steers_a_program_cannot_even_be_configured(name: str, key: str) -> None:
    """R-40, SEC-06: neither allowed nor given a value."""
    env = {name: {"command": "pass"}} if key == "source" else {key: (name,)}
    with pytest.raises(ValueError, match=r"never passed|no name of a variable"):
        SandboxSettings.model_validate({"env": env})


async def test_a_guest_gets_nothing(scene: Scene) -> None:
    sandbox = scene.sandbox(allow=("TICKETS", "HELPED"), HELPED=scene.source("echo 12345678"))

    assert await passed(sandbox, Trust.GUEST) == {"values": {}, "missing": {}}


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("echo canary-1", "canary-1"),
        ("printf canary-1", "canary-1"),
        (r"printf 'canary-1\r\n'", "canary-1"),
        ("echo noise >&2; echo canary-1", "canary-1"),
        ("printf '%8192s' x", " " * 8191 + "x"),
        ("printf '漢字-%s' $LANG", "漢字-C.UTF-8"),
    ],
)
async def test_a_helper_gives_one_line(scene: Scene, body: str, value: str) -> None:
    """Reference 4, 5.5: one line, at most 8,192 bytes, one line end trimmed."""
    found = await passed(scene.sandbox(allow=("HELPED",), HELPED=scene.source(body)))

    assert found == {"values": {"HELPED": value}, "missing": {}}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo canary-2; exit 3", "its helper ended with exit code 3"),
        ("echo a; echo b", "its helper printed more than one line of text"),
        ("printf 'canary-2\\n\\n'", "its helper printed more than one line of text"),
        ("printf 'a\\033b'", "its helper printed more than one line of text"),
        ("printf '%8193s' x", "its helper printed more than 8192 bytes"),
        ("yes", "its helper printed more than 8192 bytes"),
        (":", "its helper printed nothing"),
        (r"printf '\363'", "its helper printed no UTF-8 text"),
        ("kill -9 $$", "its helper ended with exit code -9"),
    ],
)
async def test_a_helper_that_gives_no_value_is_told_of_and_shown_nowhere(scene: Scene, body: str, reason: str) -> None:
    found = await passed(scene.sandbox(allow=("HELPED",), HELPED=scene.source(body)))

    assert found == {"values": {}, "missing": {"HELPED": reason}}


async def test_a_late_answer_is_thrown_away(scene: Scene) -> None:
    """EXE-11: what a helper prints after its time is in no result, and no process of it is left."""
    before = children()
    late = scene.source("trap 'echo canary-late; exit 0' TERM; sleep 60 & wait", timeout_ms=100)
    found = await passed(scene.sandbox(allow=("LATE",), LATE=late))

    assert found == {"values": {}, "missing": {"LATE": "its helper took too long"}}
    assert children() == before


async def test_all_helpers_of_a_command_share_their_time(scene: Scene) -> None:
    """Reference 4, 5.5: a locked keyring with many entries costs a command this time once."""
    names = [f"SLOW_{number}" for number in range(9)]
    slow = {name: scene.source("sleep 60") for name in names}
    found = await passed(scene.sandbox(allow=tuple(names), **slow), together_s=0.2)

    assert set(found["missing"]) == set(names)
    assert set(found["missing"].values()) == {
        "its helper took too long",
        "there was no time left to ask its helper; all have 5 s together",
    }


async def test_a_helper_that_a_command_could_have_changed_is_not_run(scene: Scene) -> None:
    """It would run without walls, so what lies in an open folder, or is reached through one, is left alone."""
    inside = scene.helper("echo canary-3", scene.home.workspace)
    link = scene.home.workspace / "link"
    link.symlink_to(scene.helper("echo canary-3"))
    for helper in (
        {"command": inside},
        {"command": str(link)},
        {"command": "/bin/sh", "args": (inside,)},
        {"command": "/bin/sh", "args": (inside.removeprefix("/"),)},
    ):
        found = await passed(scene.sandbox(allow=("HELPED",), HELPED=helper))
        assert found["missing"] == {"HELPED": "its helper cannot be run: it lies in a folder that commands may change"}


async def test_a_helper_finds_no_program_that_a_command_could_have_put_there(scene: Scene) -> None:
    """What it calls by a bare name runs without walls too."""
    fooling = scene.home.workspace / "date"
    fooling.write_text("#!/bin/sh\necho fooled\n", encoding="utf-8")
    fooling.chmod(0o700)
    environ = {**ENVIRON, "PATH": f"{scene.home.workspace}:.:/usr/bin:/bin"}
    sandbox = scene.sandbox(
        environ, allow=("A", "B"), A=scene.source("date +A"), B={"command": "date", "args": ("+B",)}
    )

    assert await passed(sandbox) == {"values": {"A": "A", "B": "B"}, "missing": {}}


async def test_a_helper_that_is_not_there_is_told_of(scene: Scene) -> None:
    broken = scene.shut / "broken"
    broken.write_text("#!/no/such/shell\n", encoding="utf-8")
    broken.chmod(0o700)
    helpers = {"A": {"command": "no-such"}, "B": {"command": "/etc/passwd"}, "C": {"command": str(broken)}}
    sandbox = scene.sandbox(allow=("A", "B", "C"), **helpers)

    assert (await passed(sandbox))["missing"] == {
        "C": "its helper cannot be started: No such file or directory",
        "A": 'its helper cannot be run: there is no program "no-such" on PATH',
        "B": 'its helper cannot be run: "/etc/passwd" is no program that can be run',
    }


async def test_a_helper_has_a_clean_environment(scene: Scene) -> None:
    """SEC-05, R-40: no key of ours, nothing that steers it."""
    found = await passed(scene.sandbox(allow=("SEEN",), SEEN=scene.source("env -0 | tr '\\0' ' '")))

    names = {pair.partition("=")[0] for pair in found["values"]["SEEN"].split()}
    assert names - {"PWD", "_", "SHLVL", "OLDPWD", "FERMIX_CHILD"} == {"PATH", "LANG", "LC_TIME"}
