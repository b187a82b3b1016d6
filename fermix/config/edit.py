"""The only writer of config.toml: changes named keys and leaves every other byte as it was.

Setup, commands and screens go through `ConfigEditor`. A change is validated before anything is written, the version
before it stays as config.toml.previous, and a file that somebody else changed meanwhile is never overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeGuard

from pydantic import BaseModel

from fermix.config.load import Table, build, decode, parse, read
from fermix.config.lock import hold_settings
from fermix.errors import ConfigError, NeedsOperator, Unavailable
from fermix.home import Home, write_atomic

Key: TypeAlias = tuple[str, ...]
Value: TypeAlias = str | int | float | bool | tuple[str, ...]
Changes: TypeAlias = Mapping[Key, Value | None]
"""New values by key path, e.g. {("fermix_web", "port"): 4040}; None removes the key, or the whole section."""

NewTable: TypeAlias = Callable[[bool], MutableMapping[str, object]]
"""Makes an empty table; the flag says that it only holds other tables."""

TAKEN_AWAY = (
    "Files of Fermix itself were removed from its cache folder. It puts them back within ten minutes: try again then."
)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ConfigEditor:
    """One reading of the file and the right to replace it."""

    def __init__(self, home: Home, sections: Mapping[str, type[BaseModel]]) -> None:
        """Read the file. Raises: ConfigError."""
        self._home = home
        self._sections = sections
        self._seen = read(home.config)

    def apply(self, changes: Changes) -> None:
        """Write these changes; all or nothing, blocking.

        Raises: ConfigError when the result would be wrong, NeedsOperator when the file was changed since it was
        read or cannot be written, Unavailable when another program is writing.
        """
        with hold_settings(self._home.root):
            self._refuse_outside_edit()
            data = rewrite(self._seen, changes, self._home.config)
            if data == self._seen:
                return
            build(decode(data, self._home.config), self._home, {}, self._sections)
            self._replace(data)
            self._seen = data

    def _refuse_outside_edit(self) -> None:
        path = self._home.config
        now = read(path)
        if now == self._seen:
            return
        before, after = parse(decode(self._seen, path), path), parse(decode(now, path), path)
        names = ", ".join(f"[{name}]" for name in _changed_sections(before, after)) or "layout or comments only"
        raise NeedsOperator(
            f"{path} was changed by someone else meanwhile ({names})", advice="nothing was written; do it again"
        )

    def _replace(self, data: bytes) -> None:
        path = self._home.config
        try:
            if self._seen:
                write_atomic(path.with_name(f"{path.name}.previous"), self._seen)
            write_atomic(path.resolve(), data)  # people link to a file in their own repository; the link stays
        except OSError as error:
            raise NeedsOperator(
                f"cannot write {path}: {error.strerror}", advice="free space or make the folder writable"
            ) from error


def rewrite(data: bytes, changes: Changes, path: Path) -> bytes:
    """Return the file's bytes with the changes in place. Raises: ConfigError, Unavailable."""
    try:
        import tomlkit  # late: four megabytes for every daemon, and few ever change the config
        from tomlkit.exceptions import TOMLKitError
    except ImportError as error:  # a cleaner took it from the frozen daemon's folder: PKG-02
        raise Unavailable(str(error), user_text=TAKEN_AWAY) from error

    text = decode(data, path)
    expected = parse(text, path)  # what must come out, worked out without the editing library
    try:
        document = tomlkit.parse(text)
        for key, value in changes.items():
            _put(document, key, value, tomlkit.table)
            _put(expected, key, value, lambda _above: {})
        changed = tomlkit.dumps(document)
    except (TOMLKitError, ValueError) as error:
        raise ConfigError(f"cannot be edited: {error}", path=str(path)) from error
    if not _same(parse(changed, path), expected, changes):
        raise ConfigError("is laid out in a way that cannot be edited safely; change it by hand", path=str(path))
    if "\r\n" in text and not re.search(r"(?<!\r)\n", text):
        changed = re.sub(r"(?<!\r)\n", "\r\n", changed)
    mark = BYTE_ORDER_MARK if data.startswith(BYTE_ORDER_MARK) else b""
    return mark + changed.encode("utf-8")


def _put(document: MutableMapping[str, object], key: Key, value: Value | None, new_table: NewTable) -> None:
    """Set or remove one key in a parsed file, whichever library parsed it."""
    *sections, last = key
    table = document
    for depth, name in enumerate(sections, start=1):
        if name not in table:
            if value is None:
                return
            table[name] = new_table(depth < len(sections))
        inner = table[name]
        if not _is_table(inner):
            raise ValueError(f"{'.'.join(sections[:depth])} is not a section")
        table = inner
    if value is None:
        table.pop(last, None)
    else:
        table[last] = list(value) if isinstance(value, tuple) else value


def _same(written: Table, expected: Table, changes: Changes) -> bool:
    """Compare; a section that only held what was removed may stay or go."""
    for table in (written, expected):
        for *sections, _ in (key for key, value in changes.items() if value is None):
            _drop_empty(table, sections)
    return written == expected


def _drop_empty(table: MutableMapping[str, object], sections: Sequence[str]) -> None:
    if not sections:
        return
    inner = table.get(sections[0])
    if _is_table(inner):
        _drop_empty(inner, sections[1:])
        if not inner:
            del table[sections[0]]


def _is_table(value: object) -> TypeGuard[MutableMapping[str, object]]:
    return isinstance(value, MutableMapping)  # both libraries make string keys only


def _changed_sections(before: Table, after: Table) -> list[str]:
    old, new = _by_section(before), _by_section(after)
    return sorted(name or "top level" for name in old.keys() | new.keys() if old.get(name, {}) != new.get(name, {}))


def _by_section(table: Mapping[str, object], name: str = "") -> dict[str, Table]:
    """Return the plain keys of each section by its dotted name."""
    found: dict[str, Table] = {name: {}}
    for key, value in table.items():
        if _is_table(value):
            found |= _by_section(value, f"{name}.{key}" if name else key)
        else:
            found[name][key] = value
    return found
