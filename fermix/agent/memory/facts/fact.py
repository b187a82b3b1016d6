"""What a remembered fact is: its category, its scope, where it came from, and what is admitted.

Pure values. `admitted` is the only way in for what a turn wants to store; `facts.py` writes nothing else. What must
stay true: a guest adds nothing, a value is one line of visible text, and the category decides where it is shown.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from fermix.agent.model import valid_text
from fermix.agent.turn import Turn
from fermix.config.secrets import hide_known
from fermix.errors import Refused, Unusable
from fermix.home import AGENT_ID
from fermix.message import ConversationKey
from fermix.trust import Trust
from fermix.visible import only_seen

OWNER_ID = "default"
MOST_KEY_CHARS = 80
MOST_PROMPT_VALUE_CHARS = 500  # of what a prompt file shows, which itself shows the first 200
MOST_VALUE_CHARS = 2_000  # of what one conversation keeps for itself

Scope = Literal["owner", "agent", "conversation", "job"]
Target = Literal["none", "user_md", "memory_md"]
Action = Literal["store", "forget", "restore"]


class Category(StrEnum):
    """What a fact is about. The first four tell about the owner, the others about the work."""

    IDENTITY = "identity"
    PREFERENCE = "preference"
    INTEREST = "interest"
    GOAL = "goal"
    CONTEXT = "context"
    DIRECTIVE = "directive"


ORDERS = re.compile(
    r"\b(ignore|disregard|forget|override)\b.{0,40}\b(instructions?|rules?|prompts?|guidelines)\b"
    r"|\byou (must|shall|should|are now|have to|need to)\b|\bsystem (prompt|message)\b"
    r"|\b(always|never) (answer|ask|call|copy|execute|forward|include|obey|open|reply|respond|run|say|send|tell|use)\b"
    r"|<\s*/?\s*(system|assistant|memory-context|fermix-untrusted)\b",
    re.IGNORECASE,
)
"""What reads like an order to the agent. A help and no wall: what keeps an attack out is the question of risk.py."""

OF_THE_OWNER = frozenset({Category.IDENTITY, Category.PREFERENCE, Category.INTEREST, Category.GOAL})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fact holds, and the file that shows it."""

    scope: Scope
    scope_id: str
    target: Target

    @property
    def lasting(self) -> bool:
        """Whether it holds in every conversation."""
        return self.scope in ("owner", "agent")


@dataclass(frozen=True, slots=True)
class Origin:
    """Who said so and where: `name` is the channel, `message_id` the platform's, `ledger_id` the accepted message,
    `session` the conversation, `run` the turn. `description` names what brought words from outside into that turn.
    """

    by: str
    trust: Trust
    type: str = "chat"
    id: str = ""
    name: str = ""
    description: str = ""
    message_id: str = ""
    ledger_id: int | None = None
    session: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One row. `change_id` is its last change, by which facts are ordered; times are as the table has them."""

    id: int
    place: Place
    category: Category
    key: str
    value: str
    origin: Origin
    change_id: int
    created_at: str
    updated_at: str
    archived_at: str | None = None
    archived_by: str | None = None
    archive_reason: str | None = None

    @property
    def active(self) -> bool:
        return self.archived_at is None


@dataclass(frozen=True, slots=True)
class Draft:
    """What was admitted, before it is a row."""

    place: Place
    category: Category
    key: str
    value: str


AT_THE_TERMINAL = Origin("the owner at a terminal", Trust.OPERATOR, type="terminal")


def place_of(category: Category, conversation: ConversationKey | None) -> Place:
    """Return where a fact of this category holds: in one conversation, which no file shows, or everywhere."""
    if conversation is not None:
        return Place("conversation", session_id(conversation), "none")
    if category in OF_THE_OWNER:
        return Place("owner", OWNER_ID, "user_md")
    return Place("agent", AGENT_ID, "memory_md")


def session_id(key: ConversationKey) -> str:
    """Write a conversation as one text that no other has."""
    return json.dumps([*key], ensure_ascii=False)


def origin_of(turn: Turn, sources: tuple[str, ...]) -> Origin:
    """Return the provenance of what this turn stores; `sources` are the tools that brought words from outside."""
    message = turn.message
    return Origin(
        by=message.sender.id or "unknown",
        trust=turn.trust,
        id=session_id(turn.key),
        name=message.channel,
        description=f"after words from outside (through {', '.join(sources)})" if sources else "",
        message_id=message.id,
        ledger_id=turn.ledger_id,
        session=session_id(turn.key),
        run=turn.id,
    )


def admitted(
    category: str, key: str, value: str, *, conversation: ConversationKey | None, trust: Trust | None
) -> Draft:
    """Return what may be stored. Raises: Refused for a guest; Unusable, with a sentence, for what no fact can be."""
    if trust is not Trust.OPERATOR:
        raise _refused("guests add nothing to the memory")
    if category not in CATEGORIES:
        raise _unusable(f"there is no category {category[:40]!r}; take one of {', '.join(Category)}", "category")
    kept = CATEGORIES[category]
    place, spelled = place_of(kept, conversation), checked_key(key)
    _check_words("key", spelled.replace("_", " "), kept)
    return Draft(place, kept, spelled, checked_value(value, place, kept))


def checked_key(key: str) -> str:
    """Return a key in the one spelling in which it is stored: lower case, words joined by _. Raises: Unusable."""
    spelled = "_".join(unicodedata.normalize("NFKC", only_seen(valid_text(key))).casefold().split())
    if not spelled:
        raise _unusable("the key is blank", "key")
    if len(spelled) > MOST_KEY_CHARS:
        raise _unusable(f"the key is longer than {MOST_KEY_CHARS} characters", "key")
    return spelled


def checked_value(value: str, place: Place, category: Category) -> str:
    """Return a value as it is stored: one line without what nobody sees. Raises: Unusable, Refused."""
    line = " ".join(only_seen(valid_text(value)).split())
    most = MOST_PROMPT_VALUE_CHARS if place.lasting else MOST_VALUE_CHARS
    if not line:
        raise _unusable("the value is blank", "value")
    if len(line) > most:
        raise _unusable(f"the value has {len(line)} characters, at most {most} are kept; store one short fact", "value")
    _check_words("value", line, category)
    if hide_known(line) != line:
        raise _refused("the value holds one of Fermix's own keys, and those are never remembered")
    return line


def _check_words(field: str, text: str, category: Category) -> None:
    """Let only a directive read like an order; key and value stand in the prompt side by side. Raises: Refused."""
    if category is not Category.DIRECTIVE and ORDERS.search(text):
        raise _refused(
            f"the {field} reads like an order to you, which is kept as a directive only and not as {category}; state "
            "the fact, or store it as a directive if the owner wants you to work that way"
        )


CATEGORIES: Mapping[str, Category] = {category.value: category for category in Category}


def _unusable(text: str, field: str) -> Unusable:
    return Unusable(text, field=field, user_text=text)


def _refused(text: str) -> Refused:
    return Refused(text, user_text=text)
