"""The owner's prompt files in `bootstrap/<agent>/`: who the agent is and how it works.

Plain functions for the worker pool, called by the agent: `seed` at its start, `load` whenever the runtime context
is built. Seeding writes what is missing, and brings rules that are still a text we shipped up to the one we ship now;
what an owner has written stays as it is. Loading writes nothing. A required file that is missing or blank is taken
from the text we ship.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fermix.errors import ConfigError, NeedsOperator
from fermix.home import Home, write_atomic

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 65_536  # about 16,000 tokens in every request; more is a mistake, not a persona

IDENTITY = "IDENTITY.md"
RULES = "FERMIX.md"
SOUL = "SOUL.md"
COMPACT = "COMPACT.md"
SEEDED = (IDENTITY, RULES)

_DEFAULTS = files("fermix.agent.prompt") / "defaults"
SHIPPED = {name: (_DEFAULTS / name).read_text(encoding="utf-8") for name in (*SEEDED, COMPACT)}
"""Read with the import: the files of a frozen program may be gone when a turn wants them (faults.md, PKG-02)."""


EVER_SHIPPED = {
    RULES: (
        "ec1eb636358aaa0d17b90ba12aee1fe990554687902d8032de8e8765ad25c9d1",
        "4c490fee434796179d14a3811bf47e98938ac99a7edf6e3ae48f0f7baaa85379",
        "19146d501062b722ee9e0419082718c770bca64ff060d50f24eb01448e10a1bb",
    ),
}
"""The SHA-256 of every text that was ever shipped as a file, the newest last: a file that is one of them was never
edited. Who the agent is (IDENTITY.md) belongs to the owner from the first day.
"""


@dataclass(frozen=True, slots=True)
class PromptFiles:
    """The texts as they go into the prompt; "" where an optional file is missing or blank. `compact` is shipped, `user`
    and `memory` are made from the facts; `memory_broken` says that those could not be read.
    """

    identity: str
    rules: str
    soul: str
    user: str
    memory: str
    compact: str
    memory_broken: bool = False


def shipped(name: str, agent_name: str) -> str:
    """Return the text we ship for a file, with the agent's name in it."""
    return SHIPPED[name].replace("{name}", agent_name)


def seed(home: Home, agent_name: str) -> tuple[str, ...]:
    """Write the shipped files that are missing or that an older Fermix shipped, and return their names.

    Raises: NeedsOperator when one cannot be written.
    """
    return tuple(name for name in SEEDED if _seed(home.bootstrap / name, shipped(name, agent_name)))


def load(home: Home, agent_name: str) -> PromptFiles:
    """Read all bootstrap files; what is remembered is put in by the caller.

    Raises: ConfigError naming the file that cannot be used.
    """
    return PromptFiles(
        identity=_read(home.bootstrap / IDENTITY) or shipped(IDENTITY, agent_name).strip(),
        rules=_read(home.bootstrap / RULES) or shipped(RULES, agent_name).strip(),
        soul=_read(home.bootstrap / SOUL),
        user="",
        memory="",
        compact=shipped(COMPACT, agent_name).strip(),
    )


def _seed(path: Path, text: str) -> bool:
    if path.is_symlink() or path.exists():
        if not _is_outdated(path):
            return False
        log.info("%s was still the text of an older Fermix and is the new one now", path.name)
    try:
        write_atomic(path, text.encode("utf-8"))  # half a file would be taken for the owner's own
    except OSError as error:
        advice = "free space or set FERMIX_HOME to a folder you can write"
        raise NeedsOperator(f"cannot write {path}: {error.strerror}", advice=advice) from error
    return True


def _is_outdated(path: Path) -> bool:
    """Tell whether a file is a text that we shipped once and ship no more. What cannot be read is the owner's."""
    *earlier, newest = EVER_SHIPPED.get(path.name, ("",))
    if not newest or path.is_symlink():
        return False
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError:
        return False
    found = hashlib.sha256(data).hexdigest()
    if found not in (*earlier, newest):
        log.info("%s was edited and stays as it is, whatever this Fermix ships", path.name)
    return found in earlier


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
