"""A daemon that is killed anywhere loses no message and says nothing twice without saying so.

Issue 3, kill everywhere. A failure names its trial; `python -m tests.proof.kills MODE STEP …` plays it again.
"""

from __future__ import annotations

import os
import random
from itertools import count, cycle
from pathlib import Path

import pytest

from tests.fakes.provider import ScriptedProvider
from tests.proof import albums
from tests.proof.albums import AlbumTrial
from tests.proof.kills import MODES, Lives, Mode, Trial, script
from tests.proof.twins import ALBUM_TWINS, TWINS

SEED = int(os.environ.get("PROOF_SEED", "3"))
TRIALS = int(os.environ.get("PROOF_TRIALS", "3000"))
TRIAL_S = 3  # for the bound only; one takes about 0.7 s


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_an_undisturbed_scene_breaks_no_promise(tmp_path: Path, mode: Mode) -> None:
    async with Lives.open() as lives, ScriptedProvider(script) as model:
        trial = Trial(lives, model, tmp_path, mode)

        assert await trial.play([]) == []
        assert (trial.kills, len(trial.heard) > 0) == (0, mode == "local")


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_kill_at_each_step_of_a_scene_breaks_no_promise(tmp_path: Path) -> None:
    """DLV-01, DLV-06, DLV-07: every await point from the accept to the commit, the four kinds of platform in turn."""
    broken: dict[str, list[str]] = {}
    async with Lives.open() as lives, ScriptedProvider(script) as model:
        for step, mode in zip(count(1), cycle(MODES)):
            trial = Trial(lives, model, tmp_path / str(step), mode)
            if problems := await trial.play([step]):
                broken[f"{mode} {step}"] = problems
            if not trial.kills:
                break

    assert broken == {}
    assert step > 100


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("twin", TWINS)
async def test_a_daemon_with_this_broken_is_caught(tmp_path: Path, twin: str) -> None:
    chance = random.Random(SEED)
    async with Lives.open() as lives, ScriptedProvider(script) as model:
        for number in range(200):
            trial = Trial(lives, model, tmp_path / str(number), "plain", twin)
            if await trial.play([chance.randint(1, 180)]):
                return

    raise AssertionError("no trial told it from the real one")


@pytest.mark.slow
@pytest.mark.parametrize("mode", albums.MODES)
async def test_an_undisturbed_album_is_one_turn(tmp_path: Path, mode: Mode) -> None:
    async with Lives.open() as lives, ScriptedProvider(script) as model:
        trial = AlbumTrial(lives, model, tmp_path, mode)

        assert await trial.play([]) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_kill_at_each_step_of_an_album_answers_every_part_once(tmp_path: Path) -> None:
    """What was acknowledged of one album is one turn, wherever the daemon dies."""
    broken: dict[str, list[str]] = {}
    async with Lives.open() as lives, ScriptedProvider(script) as model:
        for step, mode in zip(count(1), cycle(albums.MODES)):
            trial = AlbumTrial(lives, model, tmp_path / str(step), mode)
            if problems := await trial.play([step]):
                broken[f"{mode} {step}"] = problems
            if not trial.kills:
                break

    assert broken == {}
    assert step > 50


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("twin", ALBUM_TWINS)
async def test_a_daemon_that_breaks_albums_in_this_way_is_caught(tmp_path: Path, twin: str) -> None:
    async with Lives.open() as lives, ScriptedProvider(script) as model:
        for step in range(10, 100, 3):
            trial = AlbumTrial(lives, model, tmp_path / str(step), "lookup", twin)
            if await trial.play([step]):
                return

    raise AssertionError("no trial told it from the real one")


@pytest.mark.proof
@pytest.mark.timeout(TRIALS * TRIAL_S)
async def test_thousands_of_kills_break_no_promise(tmp_path: Path) -> None:
    """Seeded: one kill mostly, two and three in a row now and then."""
    chance = random.Random(SEED)
    broken: dict[str, list[str]] = {}
    killed = 0
    async with Lives.open() as lives, ScriptedProvider(script) as model:
        scene = Trial(lives, model, tmp_path / "scene", "lookup")
        await scene.play([])
        for number in range(TRIALS):
            mode, kills = chance.choice(MODES), chance.choices((1, 2, 3), (8, 1, 1))[0]
            steps = [chance.randint(1, scene.steps) for _ in range(kills)]
            trial = Trial(lives, model, tmp_path / str(number), mode)
            if problems := await trial.play(steps):
                broken[f"{mode} {' '.join(map(str, steps))}"] = problems
            killed += trial.kills
            trial.clean()

    assert broken == {}
    assert killed > TRIALS * 0.8
