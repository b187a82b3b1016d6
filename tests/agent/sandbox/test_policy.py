"""The one way in which the policy changes: proposed, sealed, written, in use at once, recorded."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from fermix.agent.sandbox import Change, GrantPath, Policy, RevokePath, SandboxSettings, SetMode
from fermix.agent.sandbox.changes import Target
from fermix.config.edit import Changes, ConfigEditor
from fermix.errors import ConfigError, NeedsOperator, OutsideSandbox, Refused
from fermix.home import Home
from tests.fakes.clock import ManualClock
from tests.fakes.policy import policy_in
from tests.fakes.turns import make_turn
from tests.requirements import covers
from tests.waiting import until


class Scene:
    """A policy, its home, and a folder that is not open."""

    def __init__(self, root: Path, policy: Policy) -> None:
        self.root = root
        self.policy = policy
        self.home = Home(root / "user/.fermix")
        self.shut = root / "shut"
        self.shut.mkdir()

    async def do(self, change: Change) -> None:
        proposal = await self.policy.propose(change)
        await self.policy.apply(proposal, proposal.seal, "1 on telegram")

    def is_open(self, path: Path) -> bool:
        try:
            self.policy.sandbox.find(make_turn(), str(path))
        except OutsideSandbox:
            return False
        return True

    @property
    def config(self) -> str:
        return self.home.config.read_text(encoding="utf-8")


FOREIGN = SandboxSettings(allowed_roots=("/elsewhere",))
OTHERS: dict[str, dict[str, object]] = {
    "the kind of change": {"change": SetMode("open")},
    "the folder": {"target": Target("/elsewhere", None)},
    "what stands at its path": {"target": Target("/", (1, 1))},
    "the policy in use": {"before": FOREIGN},
    "what it becomes": {"after": FOREIGN},
    "what is opened": {"opened": ("/elsewhere",)},
    "what is closed": {"closed": ("/elsewhere",)},
}


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncGenerator[Scene]:
    with policy_in(tmp_path, ManualClock()) as policy:
        yield Scene(tmp_path, policy)


@covers("approval.grant.persists", "home.grants")
async def test_a_grant_is_written_in_use_and_recorded(scene: Scene) -> None:
    """Ingress and trust: persists to `[sandbox] allowed_roots`; Architecture: a record in grants/. No restart."""
    assert not scene.is_open(scene.shut)
    await scene.do(GrantPath(str(scene.shut)))

    assert scene.is_open(scene.shut / "file")
    assert f'allowed_roots = ["{scene.shut}"]' in scene.config
    (record,) = scene.home.grants.iterdir()
    kept = json.loads(record.read_text(encoding="utf-8"))
    assert (kept["by"], kept["change"], kept["target"]) == ("1 on telegram", "GrantPath", str(scene.shut))
    assert kept["after"]["allowed_roots"] == [str(scene.shut)]
    assert record.stat().st_mode & 0o777 == 0o600


async def test_a_revoke_closes_at_once_and_even_what_is_gone(scene: Scene) -> None:
    await scene.do(GrantPath(str(scene.shut)))
    scene.shut.rmdir()
    proposal = await scene.policy.propose(RevokePath(str(scene.shut)))
    await scene.do(RevokePath(str(scene.shut)))

    assert not proposal.widens
    assert not scene.is_open(scene.shut)
    assert "allowed_roots = []" in scene.config


@pytest.mark.parametrize(
    ("before", "after", "widens"),
    [
        ("strict", "standard", True),
        ("strict", "open", True),
        ("standard", "open", True),
        ("open", "standard", False),
        ("open", "strict", False),
        ("standard", "strict", False),
    ],
)
async def test_a_mode_that_opens_anything_widens(tmp_path: Path, before: str, after: str, widens: bool) -> None:
    settings = SandboxSettings.model_validate({"mode": before})
    with policy_in(tmp_path, ManualClock(), settings) as policy:
        proposal = await policy.propose(SetMode(after))  # type: ignore[arg-type]

    assert proposal.widens is widens


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("shut", "give the whole path"),
        ("~", "holds, a home"),
        ("/", "holds, a home"),
        ("~/.fermix", "protected"),
        ("~/.fermix/grants", "protected"),
        ("~/.ssh", "protected"),
        ("/etc", "protected"),
        ("/usr/share", "protected"),
        ("/proc", "protected"),
        ("/proc/self", "protected"),
        ("/sys/kernel", "protected"),
        ("/proc/self/root", "holds, a home"),
        ("/usr/../etc", "protected"),
        ("/tmp/../..", "holds, a home"),
        ("~/..", "holds, a home"),
        ("~/../user/.ssh/.", "protected"),
        ("~/.fermix/workspace/../grants", "protected"),
        ("//", "holds, a home"),
        ("~root", "give the whole path"),
        ("$HOME", "give the whole path"),
        ("../shut", "give the whole path"),
        ("", "give the whole path"),
        ("\ufeff/etc", "give the whole path"),
        ("file:///etc", "give the whole path"),
        ("~/.fermix/workspace", "open already"),
        ("/nowhere/at/all", "not a folder"),
        ("/dev/null", "not a folder"),
        ("/" + "x" * 300, "not a folder|cannot be looked at"),
        ("/a\0b", "not a possible file name"),
        ("/a\ud800", "not a possible file name"),
        ("~/.fermix/models", "protected"),
    ],
)
async def test_what_must_not_or_need_not_be_granted_is_refused(scene: Scene, path: str, reason: str) -> None:
    """Reference 4, 5.3: it never asks for a path that would be refused."""
    (scene.root / "user/.ssh").mkdir()
    with pytest.raises(Refused, match=reason):
        await scene.policy.propose(GrantPath(path))


async def test_a_blocked_folder_is_not_granted(tmp_path: Path) -> None:
    (tmp_path / "blocked/inside").mkdir(parents=True)
    settings = SandboxSettings(blocked_roots=(str(tmp_path / "blocked"),))
    with policy_in(tmp_path, ManualClock(), settings) as policy, pytest.raises(Refused, match="the owner blocked"):
        await policy.propose(GrantPath(str(tmp_path / "blocked/inside")))


async def test_a_link_is_granted_as_what_it_leads_to(scene: Scene) -> None:
    link = scene.root / "link"
    link.symlink_to(scene.shut)
    proposal = await scene.policy.propose(GrantPath(str(link)))

    assert proposal.target is not None
    assert proposal.target.path == str(scene.shut)
    assert proposal.seal == (await scene.policy.propose(GrantPath(str(scene.shut)))).seal


async def test_a_folder_that_was_exchanged_meanwhile_is_not_opened(scene: Scene) -> None:
    """R-25: what was approved is what is done: a link put in place, another folder put in place."""
    proposal = await scene.policy.propose(GrantPath(str(scene.shut)))
    scene.shut.rename(scene.root / "kept so that its inode is not given again")
    scene.shut.mkdir()
    with pytest.raises(Refused, match="changed since you were asked"):
        await scene.policy.apply(proposal, proposal.seal, "x")

    scene.shut.rmdir()
    (scene.root / "secret").mkdir()
    scene.shut.symlink_to(scene.root / "secret")
    with pytest.raises(Refused, match="changed since you were asked"):
        await scene.policy.apply(proposal, proposal.seal, "x")
    assert not scene.home.config.exists()
    assert list(scene.home.grants.iterdir()) == []


async def test_a_policy_that_changed_meanwhile_needs_a_new_question(scene: Scene) -> None:
    """R-25: the difference that was shown is the difference that is made."""
    proposal = await scene.policy.propose(GrantPath(str(scene.shut)))
    await scene.do(SetMode("strict"))
    with pytest.raises(Refused, match="changed since you were asked"):
        await scene.policy.apply(proposal, proposal.seal, "x")

    assert not scene.is_open(scene.shut)


async def test_what_closes_is_done_even_when_something_else_was_closed_meanwhile(scene: Scene) -> None:
    """Of two revokes at once one was refused as if its owner had been asked, and its folder stayed open."""
    other = scene.root / "other"
    other.mkdir()
    await scene.do(GrantPath(str(scene.shut)))
    await scene.do(GrantPath(str(other)))
    both = [await scene.policy.propose(RevokePath(str(folder))) for folder in (scene.shut, other)]

    for proposal in both:
        await scene.policy.apply(proposal, proposal.seal, "x")

    assert not scene.is_open(scene.shut)
    assert not scene.is_open(other)


async def test_a_change_that_cannot_be_recorded_is_not_made_and_says_what_to_do(scene: Scene) -> None:
    """A full disk was told as a failure of the daemon."""
    proposal = await scene.policy.propose(GrantPath(str(scene.shut)))
    scene.home.grants.rmdir()
    scene.home.grants.write_text("", encoding="utf-8")

    with pytest.raises(NeedsOperator, match=r"nothing was changed.*free space"):
        await scene.policy.apply(proposal, proposal.seal, "x")

    assert not scene.is_open(scene.shut)


async def test_a_hand_made_change_is_not_slipped_in_with_a_grant(scene: Scene) -> None:
    """Reference 3, 11.5: an outside edit makes the next save refuse. Nothing opens that no prompt has shown."""
    (scene.root / "other").mkdir()
    scene.home.config.write_text(f'[sandbox]\nallowed_roots = ["{scene.root}/other"]\n', encoding="utf-8")
    with pytest.raises(NeedsOperator, match="changed by hand"):
        await scene.do(GrantPath(str(scene.shut)))

    assert not scene.is_open(scene.root / "other")
    assert list(scene.home.grants.iterdir()) == []
    await scene.policy.reread()
    assert scene.is_open(scene.root / "other")


async def test_a_broken_config_changes_nothing(scene: Scene) -> None:
    scene.home.config.write_text("[sandbox]\nmode = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        await scene.do(GrantPath(str(scene.shut)))
    with pytest.raises(ConfigError):
        await scene.policy.reread()

    assert not scene.is_open(scene.shut)


@covers("approval.prompt.content")
async def test_the_question_shows_all_of_it(scene: Scene) -> None:
    """INJ-07: the real path with its length, the reason and the difference, control characters made visible."""
    odd = scene.root / "a\u202egnp.b \n```"
    odd.mkdir()
    proposal = await scene.policy.propose(GrantPath(str(odd)))
    text = scene.policy.approval_request(proposal, "x", "to\u200blook\x1b[2K").text

    shown = f"{scene.root}/a⟨U+202E⟩gnp.b ⟨U+000A⟩```"
    assert text.splitlines()[2:] == [
        "````",
        f'folder: "{shown}" ({len(str(odd))} characters)',
        'reason: "to⟨U+200B⟩look⟨U+001B⟩[2K"',
        "[sandbox]",
        f'+ allowed_roots: "{shown}"',
        f'opens: "{shown}"',
        "````",
    ]


async def test_a_question_too_long_to_show_is_refused_not_cut(scene: Scene) -> None:
    """R-26."""
    proposal = await scene.policy.propose(GrantPath(str(scene.shut)))
    with pytest.raises(Refused, match="too long to show"):
        scene.policy.approval_request(proposal, "x", "why " * 1_000)


async def test_a_link_or_another_spelling_is_no_way_into_what_is_protected(scene: Scene) -> None:
    """R-29: a grant is judged by where its path leads, and by what is there."""
    keys = scene.root / "user/.ssh"
    keys.mkdir()
    (scene.root / "innocent").symlink_to(keys)
    (scene.root / "chain").symlink_to(scene.root / "innocent")
    (scene.root / "home").symlink_to(scene.root / "user")
    for name in ("innocent", "chain", "chain/.", "home", "home/.ssh", "home/.fermix", "home/.fermix/grants/.."):
        with pytest.raises(Refused, match="cannot be granted"):
            await scene.policy.propose(GrantPath(f"{scene.root}/{name}"))


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_a_seal_stands_for_everything_that_would_be_done(scene: Scene, other: dict[str, object]) -> None:
    """R-25: whatever differs makes it another question."""
    proposal = await scene.policy.propose(GrantPath(str(scene.shut)))

    assert replace(proposal, **other).seal != proposal.seal  # type: ignore[arg-type]


async def test_a_change_that_cannot_be_written_leaves_no_record(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise NeedsOperator("the disk is full", advice="free some space")

    monkeypatch.setattr(ConfigEditor, "apply", full)
    with pytest.raises(NeedsOperator):
        await scene.do(GrantPath(str(scene.shut)))

    assert list(scene.home.grants.glob("*")) == []
    assert not scene.is_open(scene.shut)


async def test_a_change_whose_asker_has_gone_is_told_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that writes cannot be stopped; tools that are not built again would be those of before."""
    release, begun, told = threading.Event(), threading.Event(), asyncio.Event()
    write = ConfigEditor.apply

    def write_slowly(editor: ConfigEditor, changes: Changes) -> None:
        begun.set()
        assert release.wait(5)
        write(editor, changes)

    monkeypatch.setattr(ConfigEditor, "apply", write_slowly)
    scene.policy.tell(told.set)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        asking = group.create_task(scene.do(GrantPath(str(scene.shut))))
        await until(begun.is_set)
        asking.cancel()
    assert not told.is_set()
    release.set()

    async with asyncio.timeout(5):
        await told.wait()
    assert scene.is_open(scene.shut / "file")
