"""`[sandbox]` of config.toml: what is wrong is told with its line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.agent.sandbox import SandboxSettings
from fermix.config.load import build
from fermix.errors import ConfigError
from fermix.home import Home
from fermix.setup.sections import SECTIONS

MANY = 65


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[sandbox]\nmode = "developer"', "sandbox.mode: line 2: is now called 'standard'"),
        ('[sandbox.commands]\nprofile = "none"', "sandbox.commands.profile: line 2: is now called 'bare'"),
        ('[sandbox.commands]\nprofile = "trusted"', "is now called 'extended'"),
        ('[sandbox]\nallowed_roots = ["x"]', "must be an absolute path or begin with ~/"),
        (
            '[sandbox.env]\nallow = ["A", "LD_X"]',
            "sandbox.env.allow: line 2: entry 2: LD_X decides",
        ),
        ('[sandbox.env]\nalow = ["A"]', "sandbox.env.alow: line 2: unknown key"),
        ('[sandbox.env.A]\nsource = "command"', 'source = "command" takes a command'),
        ('[sandbox.env.A]\nsource = "env"\ncommand = "x"', 'source = "env" takes none'),
        ('[sandbox.env.A]\ncommand = "bin/x"', "the name of a program on PATH, or its whole path"),
        ('[sandbox.env.A]\ncommand = "x"\nargs = ["a\\nb"]', "one line of printable text"),
        ('[sandbox.env.A]\ncommand = "x"\ntimeout_ms = 5001', "sandbox.env.A.timeout_ms: line 3: "),
        ('[sandbox.env."A B"]\ncommand = "x"', "A B is no name of a variable"),
        ("\n".join(f'[sandbox.env.A{n}]\ncommand = "x"' for n in range(MANY)), "at most 64 variables"),
        ('[sandbox.commands.X]\ncommand = "x"', "'X' is no name of a command"),
        ('[sandbox.commands.x]\ncommand = "env"', "sandbox.commands.x.command: line 2: env runs whatever it is given"),
        ("[sandbox.commands.x]\nenabled = true", "sandbox.commands.x.command"),
        ('[sandbox.commands.x]\ncommand = "x"\npass_env = ["GIT_DIR"]', "GIT_DIR decides what a program loads"),
        ('[sandbox.commands]\npresets = ["all"]', "sandbox.commands.presets: line 2: "),
        ("\n".join(f'[sandbox.commands.a{n}]\ncommand = "x"' for n in range(MANY)), "at most 32 commands"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str) -> None:
    """CFG-03, CFG-05; reference 4, 5.1 for the former names."""
    with pytest.raises(ConfigError) as wrong:
        build(text, Home(Path("/home/x")), {}, SECTIONS)

    assert told in str(wrong.value)


def test_a_source_may_be_the_environment_itself() -> None:
    """Reference 4, 5.5: `source` env or command."""
    config = build('[sandbox.env.A]\nsource = "env"\n', Home(Path("/home/x")), {}, SECTIONS)

    assert config[SandboxSettings].env.sources["A"].command is None
