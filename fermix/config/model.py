"""The settings every install has, as typed models, and `Config`, which holds them together with the rooms' own.

A room (provider, channel, tool) declares its settings as a subclass of `Settings` in its own file and hands them to
`load`. Everything is strict: a number is not a string, an unknown key is an error, nothing is corrected.
"""

from __future__ import annotations

import ipaddress
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fermix.config.secrets import Secret

S = TypeVar("S", bound=BaseModel)

MAX_LINE_CHARS = 200
MAX_ADDRESS_CHARS = 2_000


class Settings(BaseModel):
    """What every section shares: frozen, strict, no unknown key, and no value in an error text."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", hide_input_in_errors=True)


def check_line(text: str) -> str:
    """Return one line of printable text unchanged. Raises: ValueError."""
    if not text.strip() or not text.isprintable() or len(text) > MAX_LINE_CHARS:
        raise ValueError(f"must be one line of printable text, at most {MAX_LINE_CHARS} characters")
    return text


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("must be an IP address such as 127.0.0.1") from None
    return text


def _port(number: int) -> int:
    if number != 0 and not 1024 <= number <= 65535:
        raise ValueError("must lie between 1024 and 65535, or be 0 for any free port")
    return number


def _time_zone(name: str) -> str:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is no time zone this machine knows; write it like Europe/Paris") from None
    return name


def check_web_address(text: str) -> str:
    """Return an http or https address unchanged, for `base_url` fields of rooms. Raises: ValueError."""
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", text) or len(text) > MAX_ADDRESS_CHARS:
        raise ValueError("must be an http:// or https:// address without a query or a password")
    return text


Line = Annotated[str, AfterValidator(check_line)]
WebAddress = Annotated[str, AfterValidator(check_web_address)]


class AgentSettings(Settings):
    """`[fermix_core.agent]`."""

    name: Line = "fermix"
    """What the assistant calls itself."""


class PersonalizationSettings(Settings):
    """`[fermix_core.personalization]`: what the prompt says about the owner."""

    user_name: Line | None = None
    timezone: Annotated[str, AfterValidator(_time_zone)] | None = None
    """IANA name; None means the machine's own zone."""
    communication_style: Annotated[str, Field(max_length=2_000)] | None = None


class LocalModelSettings(Settings):
    """`[fermix_core.local_model]`: the embedded default."""

    enabled: bool = True
    primary: bool = False
    """Asked first. Otherwise it answers only while no provider is configured."""
    mirror: WebAddress | None = None
    """Where its files are fetched instead of from their own release."""
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    """None lets the engine choose."""
    idle_s: Annotated[int, Field(ge=1, le=604_800)] = 600
    """Unloaded after so many seconds without a request."""

    @model_validator(mode="after")
    def _is_on_when_primary(self) -> Self:
        if self.primary and not self.enabled:
            raise ValueError("the local model cannot be primary while enabled = false")
        return self


class TraceSettings(Settings):
    """`[fermix_core.traces]`."""

    content: bool = False
    """Whole bodies in traces; otherwise previews of 2,000 characters."""


class CoreSettings(Settings):
    """`[fermix_core]`: the keys that stand in no section below it."""

    profile: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "general"
    """Name space of this install in the system keyring."""
    secret_store: Literal["file", "keyring"] = "file"
    """Where setup keeps provider keys: auth.json, or the system keyring."""


class WebSettings(Settings):
    """`[fermix_web]`: the health endpoints."""

    port: Annotated[int, AfterValidator(_port)] = 4030
    bind: Annotated[str, AfterValidator(_address)] = "127.0.0.1"


CLOSED: Mapping[str, type[Settings]] = {
    "fermix_core": CoreSettings,
    "fermix_core.agent": AgentSettings,
    "fermix_core.personalization": PersonalizationSettings,
    "fermix_core.local_model": LocalModelSettings,
    "fermix_core.traces": TraceSettings,
    "fermix_web": WebSettings,
}


@dataclass(frozen=True, slots=True)
class Core:
    """`[fermix_core]` with the closed sections below it."""

    settings: CoreSettings
    agent: AgentSettings
    personalization: PersonalizationSettings
    local_model: LocalModelSettings
    traces: TraceSettings


@dataclass(frozen=True, slots=True)
class Config:
    """Everything configured, from file and environment. Made by `load` only; replaced whole on a reload."""

    sections: Mapping[str, BaseModel]
    """Every section by its dotted name, with defaults where the file states nothing."""
    stated: frozenset[str]
    """The sections that the file or the environment really holds."""
    secrets: Mapping[str, Secret]
    """Keys found in the environment, by variable."""
    log_file: Path
    trace_folder: Path
    environment: tuple[str, ...]
    """Variables in use, for `fermix status`."""

    @property
    def core(self) -> Core:
        return Core(
            self[CoreSettings],
            self[AgentSettings],
            self[PersonalizationSettings],
            self[LocalModelSettings],
            self[TraceSettings],
        )

    @property
    def web(self) -> WebSettings:
        return self[WebSettings]

    def __getitem__(self, kind: type[S]) -> S:
        """Return the one section of this type. Raises: KeyError when none or several have it."""
        found = [section for section in self.sections.values() if type(section) is kind]
        if len(found) != 1:
            raise KeyError(f"{len(found)} sections of type {kind.__name__}")
        return found[0]

    def section(self, name: str, kind: type[S]) -> S:
        """Return a section by its dotted name. Raises: KeyError when nobody declared it with this type."""
        section = self.sections[name]
        if not isinstance(section, kind):
            raise KeyError(f"section {name} is not of type {kind.__name__}")
        return section
