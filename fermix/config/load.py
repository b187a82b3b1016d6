"""Read config.toml and the environment into a `Config`. Called at start and on every reload; changes nothing.

Whatever is wrong is one `ConfigError` with file, key and line: a reload that fails leaves the old `Config` in use.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, cast

from pydantic import BaseModel, ValidationError

from fermix.config import environment
from fermix.config.model import CLOSED, Config
from fermix.config.secrets import Secret
from fermix.errors import ConfigError
from fermix.home import Home

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Table: TypeAlias = dict[str, object]

MAX_FILE_BYTES = 1_048_576  # a person writes it by hand; more is the wrong file
MAX_MENTIONS = 50  # finding a key's line parses the file up to each line that mentions it
MAX_VALUE_LINES = 50
_REASONS = {"tuple_type": 'must be a list, like ["…"]', "extra_forbidden": "unknown key", "missing": "is missing"}


def load(
    home: Home, environ: Mapping[str, str], sections: Mapping[str, type[BaseModel]], secret_names: Sequence[str] = ()
) -> Config:
    """Read everything. `sections` are the rooms' models by dotted name; `secret_names` the variables that hold keys.

    Raises: ConfigError; a missing file means defaults.
    """
    return build(decode(read(home.config), home.config), home, environ, sections, secret_names)


def build(
    text: str,
    home: Home,
    environ: Mapping[str, str],
    sections: Mapping[str, type[BaseModel]],
    secret_names: Sequence[str] = (),
) -> Config:
    """Make a `Config` of the text of a config.toml. Every model must have a default for each of its keys.

    Raises: ConfigError.
    """
    document = parse(text, home.config)
    models = {**CLOSED, **sections}
    overlaid = _overlay(document, environ, models)
    settled = _Reader(home.config, text, models, overlaid).settle(document)
    secrets = _secrets(environ, secret_names)
    return Config(
        sections={name: settled[name] if name in settled else model() for name, model in models.items()},
        stated=frozenset(settled),
        secrets=secrets,
        log_file=environment.log_file(home, environ),
        trace_folder=environment.trace_folder(home, environ),
        environment=(*environment.used_paths(environ), *overlaid.values(), *secrets),
    )


def read(path: Path) -> bytes:
    """Return the file as it is; nothing when there is no file. Raises: ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=str(path)) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"is larger than {MAX_FILE_BYTES} bytes", path=str(path))
    return data


def decode(data: bytes, path: Path) -> str:
    """Return the text without a byte order mark. Raises: ConfigError with line and column."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise ConfigError(f"is not UTF-8 text (at line {line}, column {column})", path=str(path)) from error


def parse(text: str, path: Path) -> Table:
    """Parse TOML. Raises: ConfigError with line and column."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError("is nested too deeply", path=str(path)) from None
    except ValueError as error:  # TOMLDecodeError, and int() for a number of thousands of digits
        raise ConfigError(_with_place(str(error), text), path=str(path)) from error


def _with_place(message: str, text: str) -> str:
    if re.search(r"\(at line \d+, column \d+\)$", message):
        return message
    lines = text.split("\n")
    end = f"(at line {len(lines)}, column {len(lines[-1]) + 1})"
    reason = message.removesuffix("(at end of document)").rstrip()
    return f"{reason} {end}" if message.endswith("(at end of document)") else message


def _overlay(document: Table, environ: Mapping[str, str], models: Mapping[str, type[BaseModel]]) -> dict[str, str]:
    """Lay the environment over the file; returns the variable of each dotted key so set."""
    overlaid: dict[str, str] = {}
    for variable, section, key, read in environment.OVERLAYS:
        text = environment.overlay(environ, variable, read)
        if text is None or section not in models:
            continue
        try:
            value = read(text)
        except ValueError as error:
            raise ConfigError(str(error), path=environment.SOURCE, key=variable) from error
        if _put(document, section.split("."), key, value):
            overlaid[f"{section}.{key}"] = variable
    return overlaid


def _put(document: Table, section: Sequence[str], key: str, value: object) -> bool:
    """Set one key, making its tables; False when something else than a table stands in the way."""
    table: object = document
    for name in section:
        if not _is_table(table):
            return False
        table = table.setdefault(name, {})
    if not _is_table(table):
        return False
    table[key] = value
    return True


def _secrets(environ: Mapping[str, str], names: Sequence[str]) -> dict[str, Secret]:
    found: dict[str, Secret] = {}
    for name in names:
        text = environment.stated(environ, name)
        if text is None:
            continue
        try:
            found[name] = Secret(text)
        except ValueError as error:
            raise ConfigError(str(error), path=environment.SOURCE, key=name) from error
    return found


class _Reader:
    """Takes the sections out of one parsed file, deepest first, so that what is left over is unknown."""

    def __init__(
        self, path: Path, text: str, models: Mapping[str, type[BaseModel]], overlaid: Mapping[str, str]
    ) -> None:
        self._path = path
        self._text = text
        self._models = models
        self._overlaid = overlaid
        self._places = {prefix for name in models for prefix in _prefixes(name)}

    def settle(self, document: Table) -> dict[str, BaseModel]:
        """Return the stated sections as models; empties `document`. Raises: ConfigError."""
        settled: dict[str, BaseModel] = {}
        for name in sorted(self._places, key=lambda place: place.count("."), reverse=True):
            table = self._take(document, name)
            if table is None:
                continue
            model = self._models.get(name)
            if model is None:
                self._refuse_rest(table, name)
            else:
                settled[name] = self._validate(table, name, model)
        self._refuse_rest(document, "")
        return settled

    def _take(self, document: Table, name: str) -> Table | None:
        *above, last = name.split(".")
        table: object = document
        for step in above:
            table = table.get(step) if _is_table(table) else None
        if not _is_table(table) or last not in table:
            return None
        taken = table.pop(last)
        if not _is_table(taken):
            raise self._wrong(name, f"must be a section, written [{name}]")
        return taken

    def _validate(self, table: Table, name: str, model: type[BaseModel]) -> BaseModel:
        try:
            return model.model_validate({key: _with_tuples(value) for key, value in table.items()})
        except RecursionError:
            raise self._wrong(name, "is nested too deeply") from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        # raised outside the handler: pydantic's own error could show the value, and the value may be a key
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            raise self._unknown(name, str(first["loc"][0]), set(model.model_fields))
        raise self._wrong(".".join([name, *_keys(first["loc"])]), _reason(first))

    def _refuse_rest(self, table: Table, name: str) -> None:
        for key in table:
            raise self._unknown(name, key, set())

    def _unknown(self, section: str, key: str, fields: set[str]) -> ConfigError:
        known = sorted(fields | self._below(section))
        near = get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        return self._wrong(f"{section}.{key}" if section else key, f"unknown key; {hint}")

    def _below(self, section: str) -> set[str]:
        start = f"{section}." if section else ""
        return {place[len(start) :].split(".")[0] for place in self._places if place.startswith(start)}

    def _wrong(self, key: str, message: str) -> ConfigError:
        variable = self._overlaid.get(key)
        if variable is not None:
            return ConfigError(message, path=environment.SOURCE, key=variable)
        line = _nearest_line(self._text, key.split("."))
        return ConfigError(message if line is None else f"line {line}: {message}", path=str(self._path), key=key)


def _keys(place: Sequence[int | str]) -> list[str]:
    """The keys down to a list; the number of its entry is no key and stands in no line."""
    return [str(step) for step in takewhile(lambda step: isinstance(step, str), place)]


def _reason(error: ErrorDetails) -> str:
    """Pydantic's reason in the words of the file: TOML has lists, and a person counts their entries from 1."""
    reason = _REASONS.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    entry = next((step for step in error["loc"] if isinstance(step, int)), None)
    return reason if entry is None else f"entry {entry + 1}: {reason}"


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _is_table(value: object) -> TypeGuard[Table]:
    return isinstance(value, dict)  # tomllib makes dicts with str keys only


def _with_tuples(value: object) -> object:
    """Freeze arrays: settings models are frozen, and strict models take a tuple for a tuple only."""
    if isinstance(value, list):
        return tuple(_with_tuples(item) for item in cast("list[object]", value))
    if _is_table(value):
        return {key: _with_tuples(item) for key, item in value.items()}
    return value


def _nearest_line(text: str, key: Sequence[str]) -> int | None:
    """Return the line where a key is set or, when it is what is missing, the nearest section that should hold it."""
    lines = (_line_of(text, key[:end]) for end in range(len(key), 0, -1))
    return next((line for line in lines if line is not None), None)


def _line_of(text: str, key: Sequence[str]) -> int | None:
    """Return the line where a key is set: it mentions the key, and the file read so far first holds it there."""
    lines = text.split("\n")
    mentions = [number for number, line in enumerate(lines) if key[-1] in line]
    for number in mentions[:MAX_MENTIONS]:
        if _parsed(lines[:number]) is not None and _is_set_at(lines, number, key):
            return number + 1
    return None


def _is_set_at(lines: Sequence[str], number: int, key: Sequence[str]) -> bool:
    for end in range(number + 1, min(number + MAX_VALUE_LINES, len(lines)) + 1):
        document = _parsed(lines[:end])
        if document is not None:
            return _holds(document, key)
    return False


def _parsed(lines: Sequence[str]) -> Table | None:
    """Return the beginning of a file; None when it ends inside a value."""
    try:
        return tomllib.loads("\n".join(lines))
    except ValueError:
        return None


def _holds(document: Table, key: Sequence[str]) -> bool:
    value: object = document
    for name in key:
        if not _is_table(value) or name not in value:
            return False
        value = value[name]
    return True
