"""Variables, presets and programs: what asks, what is done at once, what is written, shown and recorded."""

from __future__ import annotations

import json
import tomllib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from fermix.agent.sandbox import Change, Policy, SandboxSettings
from fermix.agent.sandbox.change_words import read
from fermix.config.edit import ConfigEditor
from fermix.errors import Refused
from fermix.home import Home
from fermix.setup.sections import SECTIONS, load_config
from tests.fakes.clock import ManualClock
from tests.fakes.policy import policy_in

ENVIRON = {"PATH": "/usr/bin:/bin", "LANG": "C", "TICKETS": "canary-22", "OPENAI_API_KEY": "sk-canary-1"}


class Scene:
    """A policy that is written in a config.toml, and the owner's words."""

    def __init__(self, policy: Policy, home: Home) -> None:
        self.policy = policy
        self.home = home
        self.told = 0
        policy.tell(self._count)

    async def widens(self, words: str) -> bool:
        return (await self.policy.propose(_change(words))).widens

    async def question(self, words: str) -> list[str]:
        """The lines inside the block."""
        proposal = await self.policy.propose(_change(words))
        return self.policy.approval_request(proposal, "1").text.splitlines()[3:-1]

    async def do(self, *changes: str) -> None:
        for words in changes:
            proposal = await self.policy.propose(_change(words))
            await self.policy.apply(proposal, proposal.seal, "1 on telegram")

    async def begin(self, text: str) -> None:
        self.home.config.write_text(text, encoding="utf-8")
        await self.policy.reread()

    @property
    def written(self) -> dict[str, object]:
        return tomllib.loads(self.home.config.read_text(encoding="utf-8"))["sandbox"]

    def _count(self) -> None:
        self.told += 1


def _change(words: str) -> Change:
    change = read(words.split())
    assert change is not None
    return change


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncGenerator[Scene]:
    with policy_in(tmp_path, ManualClock(), environ=ENVIRON) as policy:
        yield Scene(policy, Home(tmp_path / "user/.fermix"))


BEGINNING = """
[sandbox.env]
allow = ["TICKETS", "GONE"]
deny = ["LANG"]
[sandbox.env.GONE]
command = "/bin/true"
[sandbox.commands]
profile = "bare"
presets = ["dev_tools"]
[sandbox.commands.off]
command = "date"
enabled = false
[sandbox.commands.on]
command = "date"
pass_env = ["TICKETS"]
timeout_ms = 30000
"""


@pytest.mark.parametrize(
    ("words", "widens"),
    [
        ("grant env MORE", True),
        ("sandbox env allow MORE", True),
        ("sandbox env allow LANG", True),
        ("sandbox env set MORE -- date", True),
        ("sandbox env set TICKETS -- date", True),
        ("sandbox env set GONE -- date", True),
        ("sandbox env deny TICKETS", False),
        ("sandbox env unset GONE", False),
        ("revoke env TICKETS", False),
        ("sandbox commands profile extended", False),
        ("sandbox commands enable ai_tools", True),
        ("sandbox commands disable dev_tools", False),
        ("grant command off", True),
        ("grant command new -- date -u", True),
        ("grant command on -- date -u", True),
        ("revoke command on", False),
    ],
)
async def test_what_gains_anything_asks_and_the_rest_is_done_at_once(scene: Scene, words: str, widens: bool) -> None:
    """Reference 4, 5.4: a root, a variable, a preset, a command asks; a profile never does."""
    await scene.begin(BEGINNING)

    assert await scene.widens(words) is widens


@pytest.mark.parametrize(
    ("words", "section", "written"),
    [
        ("grant env MORE", "env", {"allow": ["TICKETS", "GONE", "MORE"], "deny": ["LANG"]}),
        ("grant env LANG", "env", {"allow": ["TICKETS", "GONE", "LANG"], "deny": []}),
        ("sandbox env deny TICKETS", "env", {"allow": ["GONE"], "deny": ["LANG", "TICKETS"]}),
        ("revoke env TICKETS", "env", {"allow": ["GONE"], "deny": ["LANG"]}),
        ("sandbox commands enable ai_tools", "commands", {"profile": "bare", "presets": ["dev_tools", "ai_tools"]}),
        ("sandbox commands disable dev_tools", "commands", {"profile": "bare", "presets": []}),
        ("sandbox commands profile assistant", "commands", {"profile": "assistant", "presets": ["dev_tools"]}),
    ],
)
async def test_a_change_writes_its_keys_and_no_others(
    scene: Scene, words: str, section: str, written: dict[str, object]
) -> None:
    await scene.begin(BEGINNING)
    before = tomllib.loads(BEGINNING)["sandbox"]
    await scene.do(words)

    assert scene.written == {**before, section: {**before[section], **written}}
    assert scene.told == 1
    assert load_config(scene.home, {})[SandboxSettings] == scene.policy.sandbox.settings


async def test_a_helper_comes_and_goes_whole(scene: Scene) -> None:
    await scene.do("sandbox env set TOKEN -- date -u +%Y")
    assert scene.written == {
        "env": {
            "allow": ["TOKEN"],
            "TOKEN": {"source": "command", "command": "/usr/bin/date", "args": ["-u", "+%Y"]},
        }
    }

    await scene.do("sandbox env unset TOKEN")
    assert scene.written == {"env": {"allow": []}}
    assert scene.policy.sandbox.settings == SandboxSettings()


async def test_a_command_is_turned_off_and_on_as_it_was(scene: Scene) -> None:
    await scene.begin(BEGINNING)
    on = scene.policy.sandbox.settings.commands.own["on"]
    await scene.do("revoke command on")
    off = scene.policy.sandbox.settings.commands.own["on"]
    await scene.do("grant command on")

    assert (off.enabled, scene.policy.sandbox.settings.commands.own["on"]) == (False, on)


async def test_a_command_that_is_defined_anew_keeps_nothing_of_the_old_one(scene: Scene) -> None:
    """What the owner agrees to is a program; the variables of another one are not slipped in with it."""
    await scene.begin(BEGINNING)
    await scene.do("grant command on -- uname -a")

    assert scene.policy.sandbox.settings.commands.own["on"].pass_env == ()
    assert scene.written["commands"]["on"] == {"command": "/usr/bin/uname", "args": ["-a"], "timeout_ms": 30000}  # type: ignore[index]


async def test_where_all_variables_pass_a_revoked_one_is_denied(scene: Scene) -> None:
    await scene.begin('[sandbox.env]\nmode = "all"\nallow = ["TICKETS"]\n')
    await scene.do("revoke env TICKETS")

    assert scene.policy.sandbox.settings.env.deny == ("TICKETS",)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("grant env LD_PRELOAD", "never passed"),
        ("sandbox env set BASH_ENV -- date", "never passed"),
        ("grant env a=b", "no name of a variable"),
        ("grant env TICKETS", "is allowed already"),
        ("sandbox env deny LANG", "is denied already"),
        ("revoke env NEVER", "is not allowed by name"),
        ("sandbox env set X -- no-such-program", "there is no program"),
        ("sandbox env set X -- date +\u202eY", "one line of printable text"),
        ("sandbox env set X -- ./date", "no program that can be run"),
        ("sandbox env set X -- /etc/passwd", "no program that can be run"),
        ("sandbox commands profile bare", "is bare already"),
        ("sandbox commands enable dev_tools", "is on already"),
        ("sandbox commands disable ai_tools", "is off already"),
        ("grant command on", "is on already"),
        ("grant command nothing", "there is no command nothing yet"),
        ("grant command Upper -- date", "no name of a command"),
        ("grant command x -- bash -c date", "runs whatever it is given"),
        ("grant command x -- /usr/bin/env date", "runs whatever it is given"),
        ("revoke command off", "no command"),
        ("revoke command make", "belongs to the preset dev_tools"),
    ],
)
async def test_what_must_not_or_need_not_be_done_is_refused(scene: Scene, words: str, reason: str) -> None:
    await scene.begin(BEGINNING)
    with pytest.raises(Refused, match=reason):
        await scene.policy.propose(_change(words))


async def test_a_helper_that_commands_can_change_is_refused(scene: Scene) -> None:
    """It would run outside of the walls, with what the agent wrote into it."""
    helper = scene.home.workspace / "helper"
    helper.write_text("#!/bin/sh\n", encoding="utf-8")
    helper.chmod(0o700)
    relative = str(helper).removeprefix("/")  # a helper runs in "/"
    for program in (str(helper), f"sh {helper}", f"sh {relative}"):
        with pytest.raises(Refused, match="commands may change"):
            await scene.policy.propose(_change(f"sandbox env set X -- {program}"))


async def test_the_question_shows_every_program_in_full(scene: Scene) -> None:
    """R-25, R-26: the resolved program, every argument; one with hidden characters is refused."""
    assert await scene.question("sandbox env set TOKEN -- date +%Y") == [
        'program: "/usr/bin/date" (13 characters)',
        'TOKEN is what this prints: ["/usr/bin/date", "+%Y"]',
        "it runs as you do, not behind the walls of commands, before each command that gets the value",
        "[sandbox]",
        '+ env.allow: "TOKEN"',
        '+ env.TOKEN.source = "command"',
        '+ env.TOKEN.command = "/usr/bin/date"',
        '+ env.TOKEN.args = ["+%Y"]',
    ]
    assert await scene.question("sandbox commands enable ai_tools") == [
        'run_codex: ["codex", "exec"], gets OPENAI_API_KEY',
        'run_claude_code: ["claude", "--print"], gets ANTHROPIC_API_KEY',
        "[sandbox]",
        '+ commands.presets: "ai_tools"',
    ]


async def test_a_variable_whose_helper_is_defined_is_asked_with_it(scene: Scene) -> None:
    await scene.begin('[sandbox.env.TOKEN]\ncommand = "/bin/true"\n')

    assert 'TOKEN is what this prints: ["/bin/true"]' in await scene.question("grant env TOKEN")


async def test_a_program_that_was_exchanged_meanwhile_is_not_taken(scene: Scene, tmp_path: Path) -> None:
    """R-25."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o700)
    proposal = await scene.policy.propose(_change(f"grant command x -- {program}"))
    program.rename(tmp_path / "kept so that its inode is not given again")
    program.write_text("#!/bin/sh\nevil\n", encoding="utf-8")
    program.chmod(0o700)

    with pytest.raises(Refused, match="changed since you were asked"):
        await scene.policy.apply(proposal, proposal.seal, "x")
    assert not scene.home.config.exists()


async def test_a_record_says_who_and_what(scene: Scene) -> None:
    await scene.do("grant command say -- printf %s")
    (record,) = scene.home.grants.iterdir()
    kept = json.loads(record.read_text(encoding="utf-8"))

    assert (kept["by"], kept["change"], kept["target"]) == ("1 on telegram", "GrantCommand", "/usr/bin/printf")
    assert kept["after"]["commands"]["say"]["command"] == "/usr/bin/printf"


@pytest.mark.parametrize(
    "words",
    ["", "grant", "grant path", "grant path a b", "grant env", "grant env A B", "grant command x --", "revoke x y",
     "revoke command x -- y",
     "sandbox", "sandbox mode", "sandbox mode loose", "sandbox env set X", "sandbox env set X --",
     "sandbox env put X", "sandbox commands", "sandbox commands enable all", "sandbox commands profile x", "status"],
)  # fmt: skip
def test_other_words_mean_nothing(words: str) -> None:
    assert read(words.split()) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sandbox mode developer", "the mode developer is now called standard"),
        ("sandbox commands profile none", "the profile none is now called bare"),
        ("sandbox commands profile trusted", "the profile trusted is now called extended"),
    ],
)
def test_a_name_of_former_times_is_told_its_new_one(words: str, told: str) -> None:
    """Reference 4, 5.1."""
    with pytest.raises(Refused, match=told):
        read(words.split())


async def test_the_status_names_and_never_shows_a_value(scene: Scene) -> None:
    await scene.begin(BEGINNING)
    await scene.do("sandbox commands profile extended", "grant env OPENAI_API_KEY", "revoke env TICKETS")
    status = await scene.policy.status()

    assert status["variables"] == [
        {"name": "GONE", "state": "from the helper /bin/true"},
        {"name": "OPENAI_API_KEY", "state": "from the daemon's environment"},
    ]
    assert {row["name"]: row["problem"] for row in status["commands"] if row["name"] in ("git", "on")} == {
        "git": "",
        "on": "needs TICKETS, which is not allowed",
    }
    assert "canary" not in json.dumps(status)


@pytest.mark.parametrize(
    ("path", "is_open", "why"),
    [
        ("~/.fermix/workspace/x", True, "it lies in the workspace"),
        ("~/project/a", True, "it lies in the folder that you speak from, and is open to what you ask from there"),
        ("~/.ssh/id", False, "protected, no tool may touch it"),
        ("/etc", False, "protected, no tool may touch it"),
        ("~/blocked/x", False, "inside a folder that the owner blocked"),
        ("x", False, "this is no whole path, from / or ~/ on"),
    ],
)
async def test_a_path_is_explained(scene: Scene, tmp_path: Path, path: str, is_open: bool, why: str) -> None:
    project = tmp_path / "user/project"
    project.mkdir()
    await scene.begin('[sandbox]\nblocked_roots = ["~/blocked"]\n')
    found = await scene.policy.explain(path, project)

    assert (found["open"], found["why"]) == (is_open, why)


async def test_a_path_outside_is_explained_with_what_opens_it(scene: Scene, tmp_path: Path) -> None:
    found = await scene.policy.explain(str(tmp_path))

    assert found["why"].startswith("only these folders are open: ")
    assert found["why"].endswith("; `fermix grant path FOLDER` opens another")


def test_every_change_keeps_the_file_valid(tmp_path: Path) -> None:
    """CFG-01: what was written by hand stays, comments too."""
    home = Home(tmp_path)
    text = "# mine\n[sandbox.env] # these\nallow = ['A'] # quoted so\n"
    home.config.write_text(text, encoding="utf-8")
    ConfigEditor(home, SECTIONS).apply({("sandbox", "env", "deny"): ("B",)})

    assert home.config.read_text(encoding="utf-8") == text + 'deny = ["B"]\n'
