from __future__ import annotations

import pytest

from fermix.gateway.command import parse
from fermix.gateway.commands.catalog import COMMANDS
from tests.requirements import covers


@covers("command.recognised", "command.unknown-is-text")
@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("/stop", "stop", ""),
        ("  /STOP  ", "stop", " "),
        ("/clear", "new", ""),
        ("/new two  words\nand a line", "new", "two  words\nand a line"),
        ("/stop@otherbot", None, ""),
        ("/stop@otherbot now", None, ""),
        ("/bg  look\n\n  here", "background", " look\n\n  here"),
        ("/stopx", None, ""),
        ("/etc/passwd", None, ""),
        ("/ stop", None, ""),
        ("say /stop", None, ""),
        ("/1", None, ""),
    ],
)
def test_a_command_is_its_name_and_the_raw_rest(text: str, name: str | None, rest: str) -> None:
    """Spec pipeline step 7; reference 3, section 5.1 and weak spot 2: the remainder is kept as it was typed."""
    found = parse(text, COMMANDS)

    assert (found[0].name, found[1]) == (name, rest) if found else name is None


def test_no_trigger_is_used_twice() -> None:
    triggers = [trigger for command in COMMANDS for trigger in (command.name, *command.aliases)]

    assert sorted(set(triggers)) == sorted(triggers)


def test_a_command_can_be_run_or_says_what_is_missing() -> None:
    assert [command.name for command in COMMANDS if (command.run is None) != bool(command.missing)] == []
    assert {command.name for command in COMMANDS if command.run is None} == {
        "background", "tasks", "pause", "resume", "ultra",
    }  # fmt: skip
