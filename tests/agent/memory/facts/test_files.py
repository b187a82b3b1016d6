"""USER.md and MEMORY.md on a real disk: derived, whole, kept as revisions; an owner's hand is never lost."""

from __future__ import annotations

import os
import stat

import pytest

from fermix.agent.memory.facts import Facts, Remembered
from fermix.agent.memory.facts.revisions import MOST_REBUILDS
from fermix.errors import Unusable
from tests.agent.memory.facts.world import HERE, OWNER, World, draft
from tests.requirements import covers


async def store(facts: Facts, category: str, key: str, value: str) -> tuple[str, ...]:
    _, notes = await facts.store(draft(category, key, value), OWNER)
    return notes


async def sources(facts: Facts, name: str = "USER.md") -> list[tuple[int, str]]:
    return [(revision.number, revision.source) for revision in await facts.revisions(name, 500)]


@covers("home.prompt-files")
async def test_the_files_show_what_is_remembered_by_section(world: World) -> None:
    """Reference 3, 9.4 and 9.6."""
    async with world.open() as facts:
        await store(facts, "goal", "run", "a marathon")
        await store(facts, "identity", "name", "Kim")
        await store(facts, "context", "project", "Fermix")
        await store(facts, "directive", "tone", "be brief")
        await facts.store(draft("directive", "here", "sing", HERE), OWNER)
        remembered = await facts.remembered()

    assert world.text() == "# About your owner\n\n## Identity\n\n- name: Kim\n\n## Goals\n\n- run: a marathon\n"
    assert world.text("MEMORY.md") == (
        "# About your work\n\n## Context\n\n- project: Fermix\n\n## Working rules, as your owner stated them\n\n"
        "- tone: be brief\n"
    )
    assert remembered == Remembered(world.text().strip(), world.text("MEMORY.md").strip())
    assert stat.S_IMODE(world.file().stat().st_mode) == 0o600


async def test_nothing_remembered_leaves_no_file(world: World) -> None:
    async with world.open() as facts:
        assert await facts.remembered() == Remembered()
        assert await sources(facts) == []

    assert list(world.home.memory.iterdir()) == []


@covers("trust.memory.directive")
async def test_what_a_guest_said_never_reaches_the_prompt(world: World) -> None:
    """Whatever way it got into the table."""
    async with world.open() as facts:
        await store(facts, "directive", "tone", "be brief")
        await store(facts, "identity", "name", "Kim")
    world.execute("UPDATE memories SET trust = 'guest'")

    async with world.open() as facts:
        assert await facts.remembered() == Remembered()


async def test_each_rebuild_is_a_revision_and_an_equal_one_is_none(world: World) -> None:
    async with world.open() as facts:
        await store(facts, "identity", "name", "Kim")
        await store(facts, "identity", "name", "Kim")
        await store(facts, "context", "project", "Fermix")
        await store(facts, "identity", "name", "Kit")
        await facts.remembered()

        assert await sources(facts) == [(2, "rebuild"), (1, "rebuild")]
        assert (await facts.revision("USER.md", 1)).content.endswith("- name: Kim\n")


async def test_of_the_rebuilds_the_newest_are_kept_and_all_of_an_owners_hand(world: World) -> None:
    async with world.open() as facts:
        world.file().write_text("mine", encoding="utf-8")
        for number in range(MOST_REBUILDS + 5):
            await store(facts, "identity", "name", f"Kim {number}")
        kept = await sources(facts)

    assert kept[-1] == (1, "imported")
    assert len(kept) == MOST_REBUILDS + 1


async def test_a_file_of_the_owners_hand_counts_until_a_fact_changes_and_is_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 5: a hand-edited derived file is noticed, kept as a revision and told."""
    async with world.open() as facts:
        await store(facts, "identity", "name", "Kim")
        world.file().write_text("# Mine\nI like tea.\n", encoding="utf-8")

        assert (await facts.remembered()).user == "# Mine\nI like tea."
        assert "USER.md was written by hand; that text is kept as revision 2" in caplog.text
        assert (await facts.remembered()).user == "# Mine\nI like tea."
        await store(facts, "context", "project", "Fermix")
        assert world.text() == "# Mine\nI like tea.\n"
        await store(facts, "goal", "run", "far")
        assert await sources(facts) == [(3, "rebuild"), (2, "manual_edit"), (1, "rebuild")]
        assert (await facts.revision("USER.md", 2)).content == "# Mine\nI like tea.\n"

    assert "- run: far" in world.text()


async def test_an_edit_that_nobody_looked_at_is_kept_when_the_next_fact_comes(world: World) -> None:
    async with world.open() as facts:
        await store(facts, "identity", "name", "Kim")
        world.file().write_text("mine", encoding="utf-8")
        notes = await store(facts, "identity", "name", "Kit")

        assert notes[0].startswith("USER.md was written by hand; that text is kept as revision 2 (`fermix memory")
        assert (await facts.revision("USER.md", 2)).content == "mine"
    assert world.text().endswith("- name: Kit\n")


async def test_a_file_from_before_is_imported_and_counts(world: World) -> None:
    world.file().write_text("I like tea.", encoding="utf-8")
    async with world.open() as facts:
        assert (await facts.remembered()).user == "I like tea."
        assert await sources(facts) == [(1, "imported")]
    assert world.text() == "I like tea."


@covers("prompt-files.derived")
async def test_a_missing_file_comes_back(world: World) -> None:
    async with world.open() as facts:
        await store(facts, "identity", "name", "Kim")
        before = world.text()
        world.file().unlink()
        await facts.remembered()

    assert world.text() == before


async def test_an_old_text_of_ours_is_not_taken_for_an_owners(world: World) -> None:
    """As after a stop between the revision and the file."""
    async with world.open() as facts:
        await store(facts, "identity", "name", "Kim")
        old = world.text()
        await store(facts, "identity", "name", "Kit")
        world.file().write_text(old, encoding="utf-8")

        assert (await facts.remembered()).user.endswith("- name: Kit")
        assert await sources(facts) == [(2, "rebuild"), (1, "rebuild")]
    assert world.text().endswith("- name: Kit\n")


async def test_a_file_that_cannot_be_written_fails_no_change_and_is_mended_later(world: World) -> None:
    async with world.open() as facts:
        await store(facts, "identity", "name", "Kim")
        world.file().unlink()
        world.file().mkdir()
        notes = await store(facts, "identity", "name", "Kit")

        assert "USER.md could not be brought up to date (Is a directory)" in notes[0]
        assert (await facts.remembered()).user.endswith("- name: Kit")
        world.file().rmdir()
        await facts.remembered()
    assert world.text().endswith("- name: Kit\n")


@pytest.mark.parametrize("content", [b"caf\xe9", b"x" * 70_000], ids=["no text", "too large"])
async def test_a_file_that_cannot_be_kept_is_not_touched(world: World, content: bytes) -> None:
    async with world.open() as facts:
        await store(facts, "identity", "name", "Kim")
        world.file().write_bytes(content)
        notes = await store(facts, "identity", "name", "Kit")

        assert "USER.md could not be brought up to date" in notes[0]
        assert (await facts.remembered()).user.endswith("- name: Kit")
    assert world.file().read_bytes() == content


@pytest.mark.timeout(20)
async def test_nobody_waits_at_a_pipe_in_the_place_of_a_file(world: World) -> None:
    async with world.open() as facts:
        os.mkfifo(world.file("USER.md"))
        notes = await store(facts, "identity", "home", "Hue")

        assert "USER.md could not be brought up to date (it is a pipe)" in notes[0]
        assert world.file("USER.md").is_fifo()
        world.file("USER.md").unlink()
        assert await store(facts, "identity", "tongue", "German") == ()


async def test_what_does_not_fit_is_told_and_the_newest_stay(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """MEM-05: never dropped without a word."""
    async with world.open() as facts:
        notes: tuple[str, ...] = ()
        for number in range(8):
            notes = await store(facts, "preference", f"p{number}", "x" * 300)

        assert notes == ("USER.md has no room for 2 older facts; memory_recall still finds them",)
        assert len(await facts.active()) == 8
    shown = world.text()
    assert "p7" in shown
    assert "p1:" not in shown
    assert shown.endswith("\n(2 older ones are not shown here; memory_recall finds them)\n")
    assert f"- p7: {'x' * 200}…\n" in shown
    assert notes[0] in caplog.text


async def test_the_whole_file_is_bounded(world: World) -> None:
    """Reference 3, 9.6: 1500 and 2000 tokens of four bytes."""
    async with world.open() as facts:
        for category in ("identity", "preference", "interest", "goal", "context", "directive"):
            for number in range(12):
                await store(facts, category, f"{category}{number}", "\U0001f37a" * 250)

    assert 4_800 < len(world.text().encode()) <= 6_000
    assert 6_800 < len(world.text("MEMORY.md").encode()) <= 8_000


async def test_rolling_back_brings_the_facts_of_a_file_back(world: World) -> None:
    async with world.open() as facts:
        await store(facts, "identity", "name", "Kim")
        await store(facts, "goal", "run", "far")
        await store(facts, "context", "project", "Fermix")
        then = world.text()
        await store(facts, "identity", "name", "Kit")
        await facts.forget(2, OWNER)
        await store(facts, "interest", "tea", "green")
        changed, _ = await facts.roll_back("USER.md", 2)

        assert changed == 3
        assert {fact.key: fact.value for fact in await facts.active()} == {
            "name": "Kim", "run": "far", "project": "Fermix",
        }  # fmt: skip
        assert (await sources(facts))[0] == (6, "rollback")
        assert sorted(world.text().split("\n")) == sorted(then.split("\n"))
        changed, _ = await facts.roll_back("USER.md", 5)
        assert {fact.key: fact.value for fact in await facts.active()} == {
            "name": "Kit", "tea": "green", "project": "Fermix",
        }  # fmt: skip


async def test_a_text_of_an_owners_hand_is_read_and_not_rolled_back_to(world: World) -> None:
    async with world.open() as facts:
        world.file().write_text("mine", encoding="utf-8")
        await store(facts, "identity", "name", "Kim")

        with pytest.raises(Unusable, match="was written by hand and is made of no facts"):
            await facts.roll_back("USER.md", 1)
        with pytest.raises(Unusable, match="has no revision 9"):
            await facts.roll_back("USER.md", 9)
        with pytest.raises(Unusable, match=r"no file 'SOUL.md'; take USER.md or MEMORY.md"):
            await facts.revisions("SOUL.md", 5)
