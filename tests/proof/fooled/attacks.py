"""All attacks, in one table."""

from __future__ import annotations

from tests.proof.fooled import attacks_commands, attacks_files, attacks_network, attacks_rights, attacks_words
from tests.proof.fooled.attack import Attack

ATTACKS: tuple[Attack, ...] = (
    *attacks_files.ATTACKS,
    *attacks_commands.ATTACKS,
    *attacks_network.ATTACKS,
    *attacks_words.ATTACKS,
    *attacks_rights.ATTACKS,
)
