"""All attacks, in one table."""

from __future__ import annotations

from tests.proof.fooled import attacks_commands, attacks_files, attacks_network, attacks_rights, attacks_words
from tests.proof.fooled.attack import Attack

_ALL: tuple[Attack, ...] = (
    *attacks_files.ATTACKS,
    *attacks_commands.ATTACKS,
    *attacks_network.ATTACKS,
    *attacks_words.ATTACKS,
    *attacks_rights.ATTACKS,
)
WAIT = ("attachment-to-group", "attachment-to-group-earlier")
ATTACKS = tuple(attack for attack in _ALL if attack.lies not in ("pdf", "word", "picture") and attack.id not in WAIT)
