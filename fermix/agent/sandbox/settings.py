"""The section `[sandbox]` of config.toml, with what stands below it: variables of commands, commands of their own."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from fermix.agent.sandbox.name_rules import COMMAND_NAME, why_never_passed, why_no_command
from fermix.config.model import Line, Settings

Mode = Literal["strict", "standard", "open"]
Profile = Literal["bare", "assistant", "extended"]
Preset = Literal["ai_tools", "dev_tools"]

FORMER_MODES = {"workspace": "strict", "developer": "standard", "trusted_local": "open"}
FORMER_PROFILES = {"none": "bare", "trusted": "extended"}
SECTION_KINDS: tuple[type, ...] = (dict, Settings)
MOST_VARIABLES = 64
MOST_COMMANDS = 32
MOST_ARGUMENTS = 32
MOST_ARGUMENT_CHARS = 1_000
LOOK_UP_MS = 3_000
MOST_LOOK_UP_MS = 5_000  # what all look-ups of one command have together
RUN_MS = 30_000
MOST_RUN_MS = 1_800_000


def _current_mode(value: object) -> object:
    return _current_name(value, FORMER_MODES)


def _current_profile(value: object) -> object:
    return _current_name(value, FORMER_PROFILES)


def _current_name(value: object, former: dict[str, str]) -> object:
    if isinstance(value, str) and value in former:
        raise ValueError(f"is now called {former[value]!r}")
    return value


def _folder(text: str) -> str:
    if not text.startswith(("/", "~/")) or "\0" in text:
        raise ValueError("must be an absolute path or begin with ~/")
    return text


def _variable(name: str) -> str:
    if (reason := why_never_passed(name)) is not None:
        raise ValueError(f"{name} {reason}")
    return name


def _program(text: str) -> str:
    if not text or not text.isprintable() or ("/" in text and not text.startswith("/")):
        raise ValueError("must be the name of a program on PATH, or its whole path")
    return text


def _command(text: str) -> str:
    if (reason := why_no_command(_program(text))) is not None:
        raise ValueError(reason)
    return text


def _argument(text: str) -> str:
    if not text.isprintable() or len(text) > MOST_ARGUMENT_CHARS:
        raise ValueError(f"must be one line of printable text, at most {MOST_ARGUMENT_CHARS} characters")
    return text


def _section(value: object) -> object:
    if not isinstance(value, SECTION_KINDS):
        raise ValueError("unknown key; what has a name of its own is a section below this one")
    return value


Folder = Annotated[str, AfterValidator(_folder)]
Variable = Annotated[str, AfterValidator(_variable)]
Arguments = Annotated[tuple[Annotated[str, AfterValidator(_argument)], ...], Field(max_length=MOST_ARGUMENTS)]


class Source(Settings):
    """`[sandbox.env.NAME]`: where the value of one allowed variable comes from."""

    source: Literal["env", "command"] = "command"
    """The daemon's own environment, or what a helper prints."""
    command: Annotated[str, AfterValidator(_program)] | None = None
    args: Arguments = ()
    timeout_ms: Annotated[int, Field(ge=1, le=MOST_LOOK_UP_MS)] = LOOK_UP_MS

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.source == "command") != (self.command is not None):
            raise ValueError('source = "command" takes a command, source = "env" takes none')
        return self


class EnvSettings(Settings):
    """`[sandbox.env]`: which variables commands get besides the few that every program needs."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[Source, BeforeValidator(_section)]] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride] - how pydantic wants it

    mode: Literal["selected", "all"] = "selected"
    """selected: those of `allow`; all: the daemon's whole environment but its keys."""
    allow: Annotated[tuple[Variable, ...], Field(max_length=MOST_VARIABLES)] = ()
    deny: tuple[Variable, ...] = ()

    @property
    def sources(self) -> dict[str, Source]:
        """The stated sources by variable."""
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if len(self.sources) > MOST_VARIABLES:
            raise ValueError(f"at most {MOST_VARIABLES} variables can have a source")
        for name in self.sources:
            _variable(name)
        return self


class CommandSettings(Settings):
    """`[sandbox.commands.NAME]`: a program that is a tool of its own, `run_NAME`."""

    command: Annotated[str, AfterValidator(_command)]
    args: Arguments = ()
    """What always stands before the model's arguments."""
    pass_env: Annotated[tuple[Variable, ...], Field(max_length=MOST_VARIABLES)] = ()
    """Variables it cannot do without; each must be allowed."""
    timeout_ms: Annotated[int, Field(ge=1, le=MOST_RUN_MS)] = RUN_MS
    description: Line | None = None
    enabled: bool = True


class CommandsSettings(Settings):
    """`[sandbox.commands]`: which programs are tools of their own."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[CommandSettings, BeforeValidator(_section)]] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride] - how pydantic wants it

    profile: Annotated[Profile, BeforeValidator(_current_profile)] = "bare"
    """bare: no preset is offered; assistant and extended: the presets below are."""
    presets: tuple[Preset, ...] = ()

    @property
    def own(self) -> dict[str, CommandSettings]:
        """The owner's own commands by name."""
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if len(self.own) > MOST_COMMANDS:
            raise ValueError(f"at most {MOST_COMMANDS} commands can be defined")
        for name in self.own:
            if COMMAND_NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r} is no name of a command: lower-case letters, digits and _, at most 32")
        return self


class SandboxSettings(Settings):
    """What tools may open, and what commands run with."""

    mode: Annotated[Mode, BeforeValidator(_current_mode)] = "standard"
    """strict: workspace and grants; standard: also where you and the daemon were started; open: the whole home."""
    allowed_roots: tuple[Folder, ...] = ()
    """The grants: further folders."""
    blocked_roots: tuple[Folder, ...] = ()
    """Folders that stay closed even inside an allowed one."""
    network: bool = True
    """Whether the operator's commands may use the network; those of others never may."""
    env: EnvSettings = EnvSettings()
    commands: CommandsSettings = CommandsSettings()
