"""Setup from the terminal screen: the wizard's questions and saving, run beside the loop.

Made by the verb that opens the screen. The wizard and its libraries are loaded when somebody sets something up,
never before the first frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fermix.errors import NeedsOperator, Unusable
from fermix.home import Home
from fermix.tui.desk import ProviderChoice
from fermix.workers import Workers

if TYPE_CHECKING:
    from fermix.setup.wizard import Answers, Wizard


class WizardDesk:
    """A `SetupDesk` over one home."""

    def __init__(self, home: Home, environ: Mapping[str, str], workers: Workers) -> None:
        self._home = home
        self._environ = environ
        self._workers = workers

    async def choices(self) -> Sequence[ProviderChoice]:
        return await self._workers.run(self._list_choices)

    async def save(self, provider: str, *, key: str, base_url: str) -> str:
        return await self._workers.run(self._save, provider, key, base_url)

    def _list_choices(self) -> list[ProviderChoice]:
        from fermix.setup.questions import ask_connection, ask_provider, find_spec

        wizard = self._wizard()
        found: list[ProviderChoice] = []
        for option in ask_provider(wizard.files, None).options[1:]:  # the first is the local model
            spec = find_spec(option.value)
            kept = wizard.kept(spec)
            key = next((asked for asked in ask_connection(spec, kept) if asked.field == "key"), None)
            use = "none" if key is None else "optional" if key.optional else "required"
            found.append(ProviderChoice(spec.id, spec.label, use, kept.base_url or spec.base_url or ""))
        return found

    def _save(self, provider: str, key: str, base_url: str) -> str:
        from fermix.config.secrets import Secret
        from fermix.setup.wizard import Answers

        wizard = self._wizard()
        try:
            answers = Answers(provider, base_url or None, Secret(key) if key else None)
            return _try_and_save(wizard, answers)
        except ValueError as error:
            raise Unusable(str(error), user_text=f"{error}.") from error

    def _wizard(self) -> Wizard:
        from fermix.setup.wizard import Wizard

        self._home.prepare()
        return Wizard(self._home, self._environ)


def _check_address(address: str) -> None:
    """Raises: ValueError with a sentence."""
    from fermix.config.model import check_web_address

    try:
        check_web_address(address)
    except ValueError as error:
        raise ValueError(f"The address {error}") from error


def _save_local(wizard: Wizard, answers: Answers) -> str:
    """Raises: as the wizard."""
    saved = wizard.save(answers)
    if wizard.files.missing():  # the last note tells how to fetch it, which happens now
        return _sentences("The local model answers as soon as it is fetched", *saved.notes[:-1])
    return _sentences("The local model answers", *saved.notes)


def _try_and_save(wizard: Wizard, answers: Answers) -> str:
    """Raises: NeedsOperator when the key is refused or the server is away, ValueError as the wizard."""
    from fermix.setup.probe import probe
    from fermix.setup.questions import ask_model, find_spec
    from fermix.setup.trial import doubt, why_not

    if answers.is_local:
        return _save_local(wizard, answers)
    if answers.base_url is not None:
        _check_address(answers.base_url)
    spec = find_spec(answers.provider)
    found = probe(spec, wizard.base_url(spec, answers.base_url), wizard.key_for(spec, answers.key))
    if found.outcome == "rejected":
        raise NeedsOperator(found.detail, advice="check the key and paste it again")
    model = ask_model(spec, wizard.kept(spec), found.models).default
    if model is None or why_not(spec, found):
        raise NeedsOperator(found.detail, advice="start the server with a model, then try again")
    saved = wizard.save(replace(answers, model=model))
    doubts = [] if found.outcome == "accepted" else [f"{found.detail}; the first message will show whether it works"]
    if unlisted := doubt(spec, saved.model, found):
        doubts.append(unlisted)
    return _sentences(f"{spec.label} answers with {saved.model}", *doubts, *saved.notes)


def _sentences(*parts: str) -> str:
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts)
