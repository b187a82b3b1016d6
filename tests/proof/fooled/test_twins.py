"""The suite can fail: each daemon that lacks one wall is found out by the row that stands for it."""

from __future__ import annotations

import os
import signal

import pytest

from tests.proof.fooled import effects
from tests.proof.fooled.attacks import ATTACKS
from tests.proof.fooled.trial import Field
from tests.proof.fooled.twins import TWINS

BY_ID = {attack.id: attack for attack in ATTACKS}


@pytest.mark.parametrize("name", TWINS)
def test_a_daemon_without_one_wall_is_found_out(field: Field, name: str) -> None:
    twin = TWINS[name]
    one = field.range(twin.mode, name)
    attack = BY_ID[twin.attack]
    played = one.play(attack)
    told = [*played.forbidden, *one.written_down()]
    for line in effects.processes(one.marks[-1]):
        os.kill(int(line.partition(":")[0]), signal.SIGKILL)
    field.close(twin.mode, name)

    assert any(twin.effect in effect for effect in told), told or played.calls
