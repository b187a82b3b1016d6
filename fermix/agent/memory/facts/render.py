"""The facts as the texts of USER.md and MEMORY.md. Pure: equal facts give equal bytes, and no clock is asked.

The newest of each section win; what does not fit is left out here and still found by `memory_recall`. Nothing that a
guest said is ever shown, whatever stands in the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fermix.agent.memory.facts.fact import Category, Fact, Target
from fermix.trust import Trust

MOST_SHOWN_CHARS = 200  # of one value
BYTES_PER_TOKEN = 4
OMITTED = "\n({} older ones are not shown here; memory_recall finds them)\n"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a file, with how many facts it shows at most."""

    title: str
    category: Category
    most: int


@dataclass(frozen=True, slots=True)
class FileShape:
    """One derived file."""

    name: str
    target: Target
    title: str
    sections: tuple[Section, ...]
    most_tokens: int


USER = FileShape(
    "USER.md",
    "user_md",
    "About your owner",
    (
        Section("Identity", Category.IDENTITY, 6),
        Section("Preferences", Category.PREFERENCE, 6),
        Section("Interests", Category.INTEREST, 6),
        Section("Goals", Category.GOAL, 5),
    ),
    1_500,
)
MEMORY = FileShape(
    "MEMORY.md",
    "memory_md",
    "About your work",
    (
        Section("Context", Category.CONTEXT, 12),
        Section("Working rules, as your owner stated them", Category.DIRECTIVE, 8),
    ),
    2_000,
)
SHAPES: Mapping[str, FileShape] = {shape.name: shape for shape in (USER, MEMORY)}


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of a file, "" for none; `dropped` facts did not fit."""

    text: str
    dropped: int


def render(shape: FileShape, facts: Sequence[Fact]) -> Rendered:
    """Make the text from what is remembered now."""
    newest = sorted(facts, key=lambda fact: -fact.change_id)
    mine = [fact for fact in newest if _is_shown(fact, shape.target)]
    shown = [fact for section in shape.sections for fact in _of(section, mine)[: section.most]]
    most_bytes = shape.most_tokens * BYTES_PER_TOKEN
    while (text := _text(shape, shown, len(mine) - len(shown))) and len(text.encode()) > most_bytes:
        shown.remove(min(shown, key=lambda fact: fact.change_id))
    return Rendered(text, len(mine) - len(shown))


def _is_shown(fact: Fact, target: Target) -> bool:
    return fact.active and fact.place.target == target and fact.origin.trust is Trust.OPERATOR


def _of(section: Section, facts: Sequence[Fact]) -> list[Fact]:
    return [fact for fact in facts if fact.category is section.category]


def _text(shape: FileShape, shown: Sequence[Fact], dropped: int) -> str:
    if not shown:
        return ""
    parts = [f"# {shape.title}\n"]
    for section in shape.sections:
        if facts := _of(section, shown):
            parts.append("\n".join((f"\n## {section.title}\n", *map(_line, facts), "")))
    return "".join(parts) + (OMITTED.format(dropped) if dropped else "")


def _line(fact: Fact) -> str:
    value = fact.value
    shown = value if len(value) <= MOST_SHOWN_CHARS else f"{value[:MOST_SHOWN_CHARS]}…"
    return f"- {fact.key}: {shown}"
