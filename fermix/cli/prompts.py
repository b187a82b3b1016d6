"""Setup's questions on a plain terminal. Used by the verb `setup` only; the terminal UI has its own form.

Leaving with Ctrl-C or Ctrl-D saves nothing. A key is typed unseen or not at all.
"""

from __future__ import annotations

import getpass
import warnings

from fermix.agent.providers.catalog import LOCAL_ID, ProviderSpec
from fermix.config.secret_store import StoreKind
from fermix.config.secrets import Secret
from fermix.errors import NeedsOperator
from fermix.gateway.transcription.choice import SERVICES
from fermix.setup.probe import Probe, probe
from fermix.setup.questions import (
    Field,
    Question,
    ask_connection,
    ask_model,
    ask_provider,
    find_spec,
    read_answer,
)
from fermix.setup.trial import why_not
from fermix.setup.voice import VoiceSetup, ask_voice, ask_voice_key
from fermix.setup.wizard import Answers, Wizard

MAX_TRIES = 3


def ask_person(wizard: Wizard, store: StoreKind | None, *, skip_probe: bool) -> tuple[Answers, Probe | None]:
    """Ask until everything is known and tried. Raises: NeedsOperator when no answer can be used."""
    provider = _ask(ask_provider(wizard.files, wizard.provider))
    if provider == LOCAL_ID:
        wizard.check(Answers(LOCAL_ID))
        return Answers(LOCAL_ID, secret_store=store), None
    spec = find_spec(provider)
    for _ in range(MAX_TRIES):
        connection = {question.field: _ask(question) for question in ask_connection(spec, wizard.kept(spec))}
        key = Secret(connection["key"]) if connection.get("key") else None
        base_url = connection.get("base_url")
        found = None if skip_probe else _try(wizard, spec, base_url, key)
        if found is None or not why_not(spec, found):
            model = _ask(ask_model(spec, wizard.kept(spec), () if found is None else found.models))
            return Answers(provider, base_url, key, model, store), found
    raise NeedsOperator(
        f"{MAX_TRIES} tries at {spec.label} failed; nothing was saved",
        advice="mend what it said above, or save without trying with `fermix setup --skip-probe`",
    )


def ask_person_for_voice(setup: VoiceSetup) -> tuple[str, Secret | None]:
    """Ask who listens to voice notes; `KEEP` leaves that as it is. Raises: ConfigError, NeedsOperator."""
    backend = _ask(ask_voice(setup))
    service = next((service for service in SERVICES if service.backend == backend), None)
    text = _ask(ask_voice_key(setup, service.backend)) if service is not None else ""
    return backend, Secret(text) if text else None


def _try(wizard: Wizard, spec: ProviderSpec, base_url: str | None, key: Secret | None) -> Probe:
    print(f"Asking {spec.label} …", flush=True)
    found = probe(spec, wizard.base_url(spec, base_url), wizard.key_for(spec, key))
    print(f"{found.detail}.")
    return found


def _ask(question: Question) -> str:
    """Ask until the answer can be read."""
    for number, option in enumerate(question.options, start=1):
        print(f"  {number}. {option.label}" + (f"  ({option.note})" if option.note else ""))
    prompt = f"{question.text} [{question.default}]: " if question.default else f"{question.text}: "
    while True:
        text = _type_unseen(prompt) if question.secret else input(prompt)
        try:
            return read_answer(question, text)
        except ValueError as error:
            print(f"{_NOUNS[question.field]}: {error}")


def _type_unseen(prompt: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(prompt)
        except getpass.GetPassWarning as error:
            raise NeedsOperator(
                "this terminal cannot hide what is typed", advice="pipe the key in with `--api-key-stdin`"
            ) from error


_NOUNS: dict[Field, str] = {
    "provider": "provider",
    "base_url": "address",
    "key": "key",
    "model": "model",
    "voice": "answer",
}
