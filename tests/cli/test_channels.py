"""`fermix channels`: what strangers call themselves is only shown, never acted on."""

from __future__ import annotations

from fermix.cli.verbs.channels import _lines
from fermix.protocol.methods import Channels
from tests.requirements import covers

FOUND: Channels = {
    "channels": [
        {"channel": "telegram", "enabled": True, "owner": "1", "guests": 2, "problem": ""},
        {"channel": "slack", "enabled": False, "owner": None, "guests": 0, "problem": ""},
    ],
    "denied": [
        {
            "channel": "telegram",
            "sender": "66\x1b[2J",
            "name": 'Owner\u202e"\n',
            "at": "2026-11-30T12:00:00+00:00",
            "times": 3,
        }
    ],
}


@covers("whoami.discovery")
def test_denied_ids_are_shown_with_every_character_spelled_out() -> None:
    """Issue 3, step 2: the owner can learn the id of an account not yet listed."""
    lines = list(_lines(FOUND))

    assert lines[:2] == ["telegram   on, owner 1, 2 guests", "slack      off"]
    assert lines[3] == 'telegram   66⟨U+001B⟩[2J  3 x, last 2026-11-30T12:00:00+00:00  "Owner⟨U+202E⟩"⟨U+000A⟩"'
    assert lines[-1] == "then `fermix stop` and `fermix start`: the daemon reads it at start."
