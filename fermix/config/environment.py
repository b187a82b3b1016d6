"""The settings that may come from the environment: paths, addresses, switches, lists of senders and secrets.

Read once at start, never written back; `fermix status` names the variables in use. Blank means unset. The paths
stand here on their own because the log and the quick verbs need them before any settings model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from fermix.errors import ConfigError
from fermix.home import Home

SOURCE: Final = "environment"

Setting = str | int | bool | tuple[str, ...]


def stated(environ: Mapping[str, str], name: str) -> str | None:
    """Return a variable without surrounding blanks; None when it is unset or blank."""
    return environ.get(name, "").strip() or None


def log_file(home: Home, environ: Mapping[str, str]) -> Path:
    """Return where the log goes. Raises: ConfigError when FERMIX_LOG_FILE is relative."""
    return _path(environ, "FERMIX_LOG_FILE") or home.log_file


def trace_folder(home: Home, environ: Mapping[str, str]) -> Path:
    """Return where traces go. Raises: ConfigError when FERMIX_TRACE_DIR is relative."""
    return _path(environ, "FERMIX_TRACE_DIR") or home.traces


def used_paths(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the path variables that are set."""
    return tuple(name for name in ("FERMIX_HOME", "FERMIX_LOG_FILE", "FERMIX_TRACE_DIR") if stated(environ, name))


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    text = stated(environ, name)
    if text is None:
        return None
    path = Path(text)
    if not path.is_absolute():
        raise ConfigError("must be an absolute path", path=SOURCE, key=name)
    return path


def _switch(text: str) -> bool:
    if text.lower() in {"1", "true", "yes", "y"}:
        return True
    if text.lower() in {"0", "false", "no", "n"}:
        return False
    raise ValueError("must be 1, true, yes, y or 0, false, no, n")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError("must be a whole number")
    return int(text)


def _ids(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def overlay(environ: Mapping[str, str], name: str, read: Callable[[str], Setting]) -> str | None:
    """Return what a variable lays over the file; None when it leaves the file as it is. A list of people that is set
    and blank is an empty one: it means nobody, and not those whom the file names.
    """
    return environ.get(name) if read is _ids else stated(environ, name)


OVERLAYS: Final[tuple[tuple[str, str, str, Callable[[str], Setting]], ...]] = (
    ("PORT", "fermix_web", "port", _number),
    ("FERMIX_HTTP_BIND", "fermix_web", "bind", str),
    ("FERMIX_TRACE_CONTENT", "fermix_core.traces", "content", _switch),
    ("TELEGRAM_ALLOWED_USER_IDS", "fermix_channels.telegram", "allowed_user_ids", _ids),
    ("WHATSAPP_ALLOWED_SENDER_IDS", "fermix_channels.whatsapp", "allowed_sender_ids", _ids),
    ("DISCORD_ALLOWED_USER_IDS", "fermix_channels.discord", "allowed_user_ids", _ids),
    ("SLACK_ALLOWED_USER_IDS", "fermix_channels.slack", "allowed_user_ids", _ids),
    ("SIGNAL_ALLOWED_SENDER_IDS", "fermix_channels.signal", "allowed_sender_ids", _ids),
    ("OLLAMA_BASE_URL", "fermix_core.providers.ollama", "base_url", str),
)
"""Variable, section, key, and how its text is read."""
