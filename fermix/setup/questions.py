"""What setup asks, in order, and how an answer is read. Built from the provider catalog; knows no screen.

The verb shows these questions as prompts, the terminal UI as a form. A wrong answer is a ValueError whose text is
for the person who typed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fermix.agent.providers.catalog import LOCAL_ID, PROVIDERS, ProviderSpec
from fermix.agent.providers.local_files import LocalFiles
from fermix.agent.providers.settings import KeyedSettings
from fermix.config.model import check_line, check_web_address
from fermix.config.secrets import Secret

Field: TypeAlias = Literal["provider", "base_url", "key", "model", "voice"]

OLLAMA = "ollama"
SHOWN_MODELS = 12  # a provider may list hundreds; any other can be typed


class WrongAnswer(ValueError):
    """An answer cannot be used; `field` says to which question."""

    def __init__(self, field: Field, message: str) -> None:
        super().__init__(message)
        self.field: Field = field


@dataclass(frozen=True, slots=True)
class Option:
    """One answer to choose. `note` says what it costs or needs."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """`default` is taken for a blank answer; None asks for one. `closed`: only an option is an answer.

    `optional`: a blank answer without a default is fine. `secret`: never echo what is typed.
    """

    field: Field
    text: str
    default: str | None = None
    options: tuple[Option, ...] = ()
    closed: bool = False
    optional: bool = False
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What this install already has for a provider; None where it has nothing.

    `key_from` is where the key was found, a variable's name when only the environment has it.
    """

    base_url: str | None = None
    model: str | None = None
    key_from: str | None = None


def find_spec(provider: str) -> ProviderSpec:
    """Return a provider of the catalog. Raises: WrongAnswer naming the valid ones; the local model is none of them."""
    for spec in PROVIDERS:
        if spec.id == provider:
            return spec
    valid = ", ".join((LOCAL_ID, *(spec.id for spec in PROVIDERS)))
    raise WrongAnswer("provider", f"unknown provider {provider!r}; choose one of {valid}")


def ask_provider(files: LocalFiles, default: str | None) -> Question:
    """Offer the embedded model first, then a key of a provider, then a server of one's own."""
    keyed = [Option(spec.id, spec.label, "paste a key") for spec in PROVIDERS if spec.needs_key]
    own = [Option(spec.id, spec.label, "your own server") for spec in PROVIDERS if not spec.needs_key]
    own.sort(key=lambda option: option.value != OLLAMA)
    options = (Option(LOCAL_ID, "Local model", _local_note(files)), *keyed, *own)
    return Question("provider", "Who should answer?", default or LOCAL_ID, options, closed=True)


def ask_connection(spec: ProviderSpec, kept: Kept) -> tuple[Question, ...]:
    """Ask for the address where it is the owner's own, and for the key where one can be used."""
    asked: list[Question] = []
    if not spec.needs_key:
        asked.append(Question("base_url", f"Address of {spec.label}", kept.base_url or spec.base_url))
    if issubclass(spec.settings, KeyedSettings):
        asked.append(_ask_key(spec, kept))
    return tuple(asked)


def ask_model(spec: ProviderSpec, kept: Kept, listed: Sequence[str]) -> Question:
    """Ask for the model; `listed` is what the provider said it has."""
    known = [model.id for model in spec.models if not listed or model.id in listed]
    options = tuple(Option(name, name) for name in (known or listed)[:SHOWN_MODELS])
    first = options[0].value if options else spec.default_model
    return Question("model", "Model", kept.model or first, options)


def read_answer(question: Question, text: str) -> str:
    """Return what was meant; "" when an optional question was left blank. Raises: ValueError with a sentence."""
    text = text.strip()
    if not text:
        if question.default is None and not question.optional:
            raise ValueError("please answer, or press Ctrl-C to leave everything as it is")
        return question.default or ""
    if text.isascii() and text.isdecimal() and question.options:
        number = int(text)
        if not 1 <= number <= len(question.options):
            raise ValueError(f"choose a number from 1 to {len(question.options)}")
        text = question.options[number - 1].value
    if question.closed and text not in {option.value for option in question.options}:
        raise ValueError(f"choose one of {', '.join(option.value for option in question.options)}, or its number")
    check_text(question.field, text)
    return text


def check_text(field: Field, text: str) -> None:
    """Look whether a text can be an answer at all. Raises: WrongAnswer."""
    try:
        match field:
            case "provider" | "voice":
                return
            case "base_url":
                check_web_address(text)
            case "key":
                Secret(text)
            case "model":
                check_line(text)
    except ValueError as error:
        raise WrongAnswer(field, str(error)) from error


def _ask_key(spec: ProviderSpec, kept: Kept) -> Question:
    if kept.key_from is not None:
        how = (
            "is used when you leave this blank"
            if kept.key_from == spec.key_variable
            else "stays when you leave this blank"
        )
        text = f"Key for {spec.label} (the one from {kept.key_from} {how})"
        return Question("key", text, optional=True, secret=True)
    text = f"Key for {spec.label}" if spec.needs_key else f"Key for {spec.label} (blank when it needs none)"
    return Question("key", text, optional=not spec.needs_key, secret=True)


def _local_note(files: LocalFiles) -> str:
    if files.unsupported:
        return files.unsupported
    megabytes = sum(artifact.size_bytes for artifact in files.missing()) / 1e6
    return f"free, private, small; downloads {megabytes:.0f} MB once" if megabytes else "free, private, small; is here"
