"""The words on the daemon's socket about what is remembered. Without a daemon the verb answers by the same shapes.

Reading is for every client of this user; forgetting, restoring and rolling back are refused to a program that no person
sits in front of.
"""

from __future__ import annotations

from typing import NotRequired  # pydantic reads this only from here before Python 3.12

from typing_extensions import TypedDict


class MemoryRow(TypedDict):
    """One memory. `scope`: "owner", "agent", "conversation" or "job"; `shown_in` is the file that shows it, "" for
    none; `archived_at` is None while it counts. `by` and what follows say where it came from.
    """

    id: int
    scope: str
    category: str
    key: str
    value: str
    shown_in: str
    created_at: str
    updated_at: str
    archived_at: str | None
    archived_by: str | None
    archive_reason: str | None
    by: str
    trust: str
    source: str
    note: str
    message_id: str
    session: str
    turn: str


class ChangeRow(TypedDict):
    """What was done to a memory, and what it was afterwards. `action`: "store", "forget" or "restore"."""

    id: int
    memory_id: int
    action: str
    key: str
    category: str
    value: str
    archived: bool
    by: str
    trust: str
    source: str
    note: str
    reason: str
    at: str


class RevisionRow(TypedDict):
    """A kept text of a file. `source`: "rebuild", "rollback", or for an owner's hand "manual_edit" or "imported"."""

    revision: int
    name: str
    source: str
    at: str
    sha256: str
    size_bytes: int


class ListMemories(TypedDict):
    """`memory.list`: by number, those behind `after`."""

    archived: bool
    after: NotRequired[int]


class MemoryList(TypedDict):
    """`more`: ask again, behind the last of these. `notes` tell of files that hold an owner's own text instead."""

    memories: list[MemoryRow]
    more: bool
    notes: list[str]


class OneMemory(TypedDict):
    """`memory.show`, answered with the memory and its newest changes."""

    id: int


class ShownMemory(TypedDict):
    memory: MemoryRow
    changes: list[ChangeRow]


class ForgetMemory(TypedDict):
    """`memory.forget`: archive it."""

    id: int
    reason: NotRequired[str]


class RestoreMemory(TypedDict):
    """`memory.restore`: out of the archive; to what it was before its last change; or as `change` left it."""

    id: int
    change: NotRequired[int]


class ChangedMemory(TypedDict):
    """`notes` are what the owner should know about the files."""

    memory: MemoryRow
    notes: list[str]


class MemoryHistory(TypedDict):
    """`memory.history`: the changes of one memory, or of all; the newest first, those before `before`."""

    id: NotRequired[int]
    before: NotRequired[int]


class MemoryChanges(TypedDict):
    changes: list[ChangeRow]
    more: bool


class ListRevisions(TypedDict):
    """`memory.revisions` of a file, "USER.md" or "MEMORY.md", the newest first."""

    name: str
    before: NotRequired[int]


class Revisions(TypedDict):
    revisions: list[RevisionRow]
    more: bool


class OneRevision(TypedDict):
    """`memory.revision`, and `memory.rollback`, which brings all memories of a file to where they were then."""

    name: str
    revision: int


class RevisionText(TypedDict):
    revision: RevisionRow
    text: str


class RolledBack(TypedDict):
    """`changed` memories are different now."""

    changed: int
    notes: list[str]


class SearchMemory(TypedDict):
    """`memory.search`: what is remembered and what was said, by words; `limit` counts messages, 1 to 50."""

    query: str
    limit: NotRequired[int]


class SaidRow(TypedDict):
    """One message. `role`: "user", "assistant" or "tool"; `guest`: of a guest's conversation; `outside`: with words of
    a page, a file or another program in it or before it.
    """

    id: int
    channel: str
    chat_id: str
    thread: str
    sender: str
    role: str
    at: str
    snippet: str
    guest: bool
    outside: bool


class SearchResult(TypedDict):
    """The best first. `whole` is false while older messages are not in the index yet."""

    memories: list[MemoryRow]
    messages: list[SaidRow]
    whole: bool
