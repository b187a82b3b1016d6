"""The owner's prompt files: `bootstrap/<agent>/` for who the agent is, `memory/<agent>/` for what it remembers.

Plain functions for the worker pool, called by the agent: `seed` at its start, `load` whenever the runtime context
is built. Seeding writes only what is missing; loading writes nothing. A required file that is missing or blank is
taken from the text we ship.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fermix.errors import ConfigError, NeedsOperator
from fermix.home import Home, write_atomic

MAX_FILE_BYTES = 65_536  # about 16,000 tokens in every request; more is a mistake, not a persona

IDENTITY = "IDENTITY.md"
RULES = "FERMIX.md"
SOUL = "SOUL.md"
COMPACT = "COMPACT.md"
USER = "USER.md"
MEMORY = "MEMORY.md"
SEEDED = (IDENTITY, RULES)

_DEFAULTS = files("fermix.agent.prompt") / "defaults"
SHIPPED = {name: (_DEFAULTS / name).read_text(encoding="utf-8") for name in (*SEEDED, COMPACT)}
"""Read with the import: the files of a frozen program may be gone when a turn wants them (faults.md, PKG-02)."""


@dataclass(frozen=True, slots=True)
class PromptFiles:
    """The texts as they go into the prompt; "" where an optional file is missing or blank. `compact` is shipped."""

    identity: str
    rules: str
    soul: str
    user: str
    memory: str
    compact: str


def shipped(name: str, agent_name: str) -> str:
    """Return the text we ship for a file, with the agent's name in it."""
    return SHIPPED[name].replace("{name}", agent_name)


def seed(home: Home, agent_name: str) -> tuple[str, ...]:
    """Write the shipped files that are missing and return their names; what exists stays as it is.

    Raises: NeedsOperator when one cannot be written.
    """
    return tuple(name for name in SEEDED if _write_new(home.bootstrap / name, shipped(name, agent_name)))


def load(home: Home, agent_name: str) -> PromptFiles:
    """Read all prompt files.

    Raises: ConfigError naming the file that cannot be used.
    """
    return PromptFiles(
        identity=_read(home.bootstrap / IDENTITY) or shipped(IDENTITY, agent_name).strip(),
        rules=_read(home.bootstrap / RULES) or shipped(RULES, agent_name).strip(),
        soul=_read(home.bootstrap / SOUL),
        user=_read(home.memory / USER),
        memory=_read(home.memory / MEMORY),
        compact=shipped(COMPACT, agent_name).strip(),
    )


def _write_new(path: Path, text: str) -> bool:
    if path.is_symlink() or path.exists():
        return False
    try:
        write_atomic(path, text.encode("utf-8"))  # half a file would be taken for the owner's own
    except OSError as error:
        advice = "free space or set FERMIX_HOME to a folder you can write"
        raise NeedsOperator(f"cannot write {path}: {error.strerror}", advice=advice) from error
    return True


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=str(path)) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"is larger than {MAX_FILE_BYTES} bytes; shorten it", path=str(path))
    try:
        return data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", path=str(path)) from error
