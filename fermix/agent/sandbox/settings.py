"""The section `[sandbox]` of config.toml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from fermix.config.model import Settings

Mode = Literal["strict", "standard", "open"]

FORMER_NAMES = {"workspace": "strict", "developer": "standard", "trusted_local": "open"}


def _current_name(value: object) -> object:
    if isinstance(value, str) and value in FORMER_NAMES:
        raise ValueError(f"is now called {FORMER_NAMES[value]!r}")
    return value


def _folder(text: str) -> str:
    if not text.startswith(("/", "~/")) or "\0" in text:
        raise ValueError("must be an absolute path or begin with ~/")
    return text


Folder = Annotated[str, AfterValidator(_folder)]


class SandboxSettings(Settings):
    """Which folders the file tools and the working directory of commands may lie in."""

    mode: Annotated[Mode, BeforeValidator(_current_name)] = "standard"
    """strict: workspace and grants; standard: also where you and the daemon were started; open: the whole home."""
    allowed_roots: tuple[Folder, ...] = ()
    """The grants: further folders."""
    blocked_roots: tuple[Folder, ...] = ()
    """Folders that stay closed even inside an allowed one."""
    network: bool = True
    """Whether the operator's commands may use the network; those of others never may."""
