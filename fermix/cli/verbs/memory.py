"""`fermix memory`: what is remembered and where from; forget it, bring it back, read and roll back its files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import cast

from fermix.cli import output
from fermix.cli.change import EXIT_CODES, Failed, ask, fail
from fermix.protocol.memory import (
    ChangedMemory,
    ChangeRow,
    MemoryChanges,
    MemoryList,
    MemoryRow,
    RevisionRow,
    Revisions,
    RevisionText,
    RolledBack,
    SaidRow,
    SearchResult,
    ShownMemory,
)
from fermix.visible import spelled

USAGE = """fermix memory list [--archived]
       fermix memory search QUERY [--limit N]
       fermix memory show ID
       fermix memory forget ID [REASON]
       fermix memory restore ID [CHANGE]
       fermix memory restore USER.md|MEMORY.md REVISION
       fermix memory history [ID]
       fermix memory history USER.md|MEMORY.md [REVISION]
       fermix memory export"""
DESCRIPTION = (
    "Tell what is remembered, where each memory came from and what was ever done to it. Forgetting archives; restore "
    "brings back: what was forgotten, the value before the last change, the value as a CHANGE of `history ID` left it, "
    "or all memories of a file as they were at a REVISION of `history FILE`. search finds memories and what was said "
    "in any conversation, by words of any language. export prints everything as JSON."
)
FILES = ("USER.md", "MEMORY.md")
MOST_SAID = 50  # of one search
MOST_CHANGES = 50  # of a plain history; --json and export have them all
DONE = {"store": "stored", "forget": "forgotten", "restore": "restored"}

Result = tuple[Mapping[str, object], list[str]]


class WrongUse(Exception):
    """What was typed means nothing."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="fermix memory", usage=USAGE, description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--archived", action="store_true", help="with list: also what was forgotten")
    parser.add_argument("--limit", type=int, metavar="N", help="with search: at most so many messages, 1 to 50")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_intermixed_args(argv)
    try:
        answer, lines = _answer(options.words, archived=options.archived, limit=options.limit)
    except WrongUse as error:
        return output.wrong_use("memory", str(error))
    except Failed as error:
        return fail("memory", error, as_json=options.json)
    if options.json or options.words[:1] == ["export"]:
        output.print_json(answer)
    else:
        print("\n".join(lines))
    return 0


def _answer(words: Sequence[str], *, archived: bool, limit: int | None) -> Result:
    """Raises: WrongUse, Failed."""
    match words:
        case [] | ["list"]:
            return _list(archived=archived)
        case ["search", first, *more]:
            return _search(" ".join([first, *more]), limit)
        case ["show", number]:
            return _show(_number(number))
        case ["forget", number, *reason]:
            return _changed("memory.forget", {"id": _number(number), "reason": " ".join(reason)}, "Forgotten")
        case ["restore", *of]:
            return _restored(of)
        case ["history", *of]:
            return _told(of)
        case ["export"]:
            return _export()
        case _:
            raise _unknown(words)


def _restored(of: Sequence[str]) -> Result:
    match of:
        case [name, revision] if name in FILES:
            return _roll_back(name, _number(revision))
        case [number] if number not in FILES:
            return _changed("memory.restore", {"id": _number(number)}, "Restored")
        case [number, change]:
            return _changed("memory.restore", {"id": _number(number), "change": _number(change)}, "Restored")
        case _:
            raise _unknown(["restore", *of])


def _told(of: Sequence[str]) -> Result:
    match of:
        case []:
            return _history({})
        case [name] if name in FILES:
            return _revisions(name)
        case [name, revision] if name in FILES:
            return _revision(name, _number(revision))
        case [number]:
            return _history({"id": _number(number)})
        case _:
            raise _unknown(["history", *of])


def _unknown(words: Sequence[str]) -> WrongUse:
    uses = [line.strip() for line in USAGE.splitlines() if line.split()[2] == words[0]]
    right = f"; say {' or '.join(f'`{use}`' for use in uses)}" if uses else ""
    return WrongUse(f"{spelled(' '.join(words))!r} means nothing here{right}")


def _list(*, archived: bool) -> Result:
    found, notes = _memories(archived=archived)
    lines = [_memory_line(memory) for memory in found] or ["Nothing is remembered yet."]
    return {"memories": found, "notes": notes}, [*lines, *map(spelled, notes)]


def _search(query: str, limit: int | None) -> Result:
    if limit is not None and not 1 <= limit <= MOST_SAID:
        raise WrongUse(f"--limit is 1 to {MOST_SAID}")
    answer = ask("memory.search", {"query": query, **({} if limit is None else {"limit": limit})})
    found = cast("SearchResult", answer)  # written by our daemon, or by us
    lines = [*map(_memory_line, found["memories"]), *map(_said_line, found["messages"])]
    unfinished = [] if found["whole"] else ["(older messages are still being indexed; the daemon does it as it runs)"]
    return answer, [*(lines or ["Nothing holds any of these words."]), *unfinished]


def _show(memory_id: int) -> Result:
    answer = ask("memory.show", {"id": memory_id})
    shown = cast("ShownMemory", answer)  # written by our daemon, or by us
    memory = shown["memory"]
    return answer, [_memory_line(memory), *_about(memory), "", *map(_change_line, shown["changes"])]


def _changed(method: str, params: Mapping[str, object], done: str) -> Result:
    answer = ask(method, params)
    changed = cast("ChangedMemory", answer)  # written by our daemon, or by us
    return answer, [f"{done}: {_memory_line(changed['memory'])}", *map(spelled, changed["notes"])]


def _roll_back(name: str, revision: int) -> Result:
    answer = ask("memory.rollback", {"name": name, "revision": revision})
    done = cast("RolledBack", answer)  # written by our daemon, or by us
    told = f"{name} says again what it said in revision {revision}; memories changed: {done['changed']}."
    return answer, [told, *map(spelled, done["notes"])]


def _history(params: Mapping[str, object]) -> Result:
    changes = _changes(params)
    lines = [_change_line(change) for change in changes[:MOST_CHANGES]]
    more = [f"({len(changes) - MOST_CHANGES} older ones; --json has them)"] if len(changes) > MOST_CHANGES else []
    return {"changes": changes}, [*lines, *more] or ["Nothing was ever changed."]


def _revisions(name: str) -> Result:
    found: list[RevisionRow] = []
    more = True
    while more:
        last = {"before": found[-1]["revision"]} if found else {}
        page = cast("Revisions", ask("memory.revisions", {"name": name, **last}))  # written by our daemon, or by us
        found, more = [*found, *page["revisions"]], page["more"]
    return {"revisions": found}, [_revision_line(row) for row in found] or [f"{name} was never written."]


def _revision(name: str, revision: int) -> Result:
    answer = ask("memory.revision", {"name": name, "revision": revision})
    shown = cast("RevisionText", answer)  # written by our daemon, or by us
    return answer, [spelled(line) for line in shown["text"].splitlines()]


def _export() -> Result:
    return {"memories": _memories(archived=True)[0], "changes": _changes({})}, []


def _memories(*, archived: bool) -> tuple[list[MemoryRow], list[str]]:
    """Return all rows, and what is to be told about the files."""
    found: list[MemoryRow] = []
    while True:
        params = {"archived": archived, "after": found[-1]["id"] if found else 0}
        page = cast("MemoryList", ask("memory.list", params))  # written by our daemon, or by us
        found += page["memories"]
        if not page["more"]:
            return found, page["notes"]


def _changes(params: Mapping[str, object]) -> list[ChangeRow]:
    found: list[ChangeRow] = []
    more = True
    while more:
        last = {"before": found[-1]["id"]} if found else {}
        page = cast("MemoryChanges", ask("memory.history", {**params, **last}))  # written by our daemon, or by us
        found, more = [*found, *page["changes"]], page["more"]
    return found


def _number(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and 0 < len(word) <= 18):  # what every number of a row has
        raise WrongUse(f"{spelled(word)!r} is no number; `fermix memory list` and `history` name them")
    return int(word)


def _memory_line(memory: MemoryRow) -> str:
    place = f", {memory['scope']} only" if memory["scope"] in ("conversation", "job") else ""
    gone = "" if memory["archived_at"] is None else f" (forgotten {_day(memory['archived_at'])})"
    return f"#{memory['id']} [{memory['category']}{place}] {spelled(memory['key'])}: {spelled(memory['value'])}{gone}"


def _said_line(said: SaidRow) -> str:
    who = (said["sender"] or "user") if said["role"] == "user" else said["role"]
    marks = [", a guest's conversation"] * said["guest"] + [", words from outside"] * said["outside"]
    where = f"{said['channel']} {said['chat_id']}"
    return spelled(f"{_day(said['at'])} {where}, {who}{''.join(marks)}: {said['snippet']}")


def _about(memory: MemoryRow) -> list[str]:
    rows: list[tuple[str, str]] = [
        ("shown in", memory["shown_in"] or "no file"),
        ("last changed", memory["updated_at"]),
        ("by", f"{memory['by']} ({memory['trust']})"),
        ("from", memory["source"]),
        ("note", memory["note"]),
        ("message", memory["message_id"]),
        ("conversation", memory["session"]),
        ("forgotten because", memory["archive_reason"] or ""),
    ]
    return [f"  {name}: {spelled(value)}" for name, value in rows if value]


def _change_line(change: ChangeRow) -> str:
    done = DONE.get(change["action"], change["action"])
    state = "archived" if change["archived"] else f"{change['category']}, {change['value']}"
    because = f" ({change['reason']})" if change["reason"] else ""
    by = f"{change['by']}, {change['source']}" if change["source"] != "terminal" else change["by"]
    note = f", {change['note']}" if change["note"] else ""
    line = f"change {change['id']}: #{change['memory_id']} {change['key']} {done} {_day(change['at'])} by {by}{note}"
    return spelled(f"{line}{because}: {state}")


def _revision_line(row: RevisionRow) -> str:
    told = {"manual_edit": "written by hand", "imported": "found there", "rollback": "rolled back"}
    how = told.get(row["source"], "made from the memories")
    return f"revision {row['revision']}: {_day(row['at'])}, {how}, {row['size_bytes']} bytes"


def _day(at: str) -> str:
    return at[:16].replace("T", " ")
