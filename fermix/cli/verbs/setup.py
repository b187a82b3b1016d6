"""`fermix setup`: choose who answers, give the key, try it, save it. Prompts for a person, flags for a script.

A key is typed unseen, or comes through standard input or a variable; never as an argument, which every program of
the machine can read. Nothing is saved before the key was tried, unless that was asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from fermix.cli import output
from fermix.cli.progress import show_progress
from fermix.config.secrets import Secret, redact
from fermix.errors import FermixError, NeedsOperator
from fermix.home import Home
from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning, RequestFailed, socket_path

if TYPE_CHECKING:
    from fermix.setup.probe import Probe
    from fermix.setup.questions import Field
    from fermix.setup.wizard import Answers, Saved, Wizard

MAX_KEY_BYTES = 16_384
IN_ARGUMENTS = (
    "a key among the arguments can be read by every program on this machine and stays in the shell's history; "
    "use --api-key-stdin, --api-key-env NAME, or type it when asked"
)
FLAGS: dict[Field, str] = {
    "provider": "--provider",
    "base_url": "--base-url",
    "key": "--api-key-stdin or --api-key-env",
    "model": "--model",
    "voice": "--transcription-backend",
}

DaemonState: TypeAlias = Literal["uses it", "is not running", "kept its settings"]


class Wrong(Exception):
    """The call cannot be understood; the text says why."""


class Left(Exception):
    """The person pressed Ctrl-C or Ctrl-D instead of an answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was saved and what came of it."""

    provider: str
    model: str | None
    key_from: str
    probe: Probe | None
    notes: tuple[str, ...]
    daemon: DaemonState
    daemon_note: str = ""


def main(argv: list[str]) -> int:
    as_json = "--json" in argv
    try:
        return _run(_read_options(argv))
    except Wrong as error:
        return _failed(str(error), as_json=as_json, code=2)
    except FermixError as error:
        return _failed(str(error), as_json=as_json, code=1)
    except Left:
        print("\nNothing was saved.", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    from fermix.setup.questions import WrongAnswer
    from fermix.setup.wizard import Wizard

    home = Home.locate(os.environ)
    home.prepare()
    wizard = Wizard(home, os.environ)
    if options.print_state:
        _print_state(wizard, as_json=options.json)
        return 0
    if options.remove:
        _remove(wizard, options)
        return 0
    try:
        if options.transcription_backend:
            return _set_voice(home, options.transcription_backend, _read_key(options), as_json=options.json)
        answers, found = _take_flags(wizard, options) if options.provider else _ask_person(wizard, options)
        saved = wizard.save(answers)
    except WrongAnswer as error:
        raise Wrong(f"{FLAGS[error.field]}: {error}") from error
    daemon, daemon_note = _tell_daemon()
    notes = (*saved.notes, *_doubts(saved, found))
    outcome = Outcome(saved.provider, saved.model, saved.key_from, found, notes, daemon, daemon_note)
    if options.json:
        output.print_json({"status": "ok", **asdict(outcome)})
        return 0
    _show(outcome, home)
    return 0 if options.provider else _offer_voice(home)


def _read_options(argv: list[str]) -> argparse.Namespace:
    """Read the flags. Raises: Wrong, whose text repeats nothing that could be a key."""
    parser = argparse.ArgumentParser(
        prog="fermix setup",
        description="Choose who answers: the local model, a provider with your key, or your own server.",
        epilog="exit codes: 0 saved, 1 nothing was saved, 2 wrong use",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--provider", metavar="ID", help="local, openai, anthropic, ollama, …; without it you are asked")
    add("--api-key-stdin", action="store_true", help="read the key from standard input and keep it")
    add("--api-key-env", metavar="NAME", help="read the key from this variable and keep it")
    add("--base-url", metavar="URL", help="where the provider listens, for a server of your own")
    add("--model", metavar="NAME", help="the model to use; without it the provider's default")
    add("--transcription-backend", metavar="ID", help="who turns voice notes into text: local, openai, deepgram or xai")
    add("--secret-store", choices=("file", "keyring"), help="keep keys in auth.json (0600) or the system keyring")
    add("--skip-probe", action="store_true", help="save without trying the key or the server")
    add("--remove", metavar="ID", help="take out a provider: its section of config.toml and its key")
    add("--json", action="store_true", help="print one JSON object")
    add("--print-state", action="store_true", help="tell what is configured and what is missing; change nothing")
    if any(word.partition("=")[0] in ("--api-key", "--key") for word in argv):
        raise Wrong(IN_ARGUMENTS)
    options, rest = parser.parse_known_args(argv)
    if rest:
        name = rest[0].partition("=")[0]
        raise Wrong(f"unknown option {redact(name)}" if name.startswith("--") else IN_ARGUMENTS)
    if options.api_key_stdin and options.api_key_env:
        raise Wrong("give the key one way: --api-key-stdin or --api-key-env")
    _check_together(options)
    return options


def _check_together(options: argparse.Namespace) -> None:
    if options.remove is not None:
        if options.provider is not None or options.print_state or options.secret_store or _given(options):
            raise Wrong("--remove takes one provider and nothing else but --json")
    elif options.transcription_backend is not None:
        if options.provider is not None or options.print_state or options.base_url or options.model:
            raise Wrong("--transcription-backend takes a key and nothing else but --json")
    elif options.provider is None and not options.print_state and _given(options):
        raise Wrong("name the provider with --provider")


def _given(options: argparse.Namespace) -> bool:
    return any(value is not None for value in (options.api_key_env, options.base_url, options.model)) or bool(
        options.api_key_stdin
    )


def _ask_person(wizard: Wizard, options: argparse.Namespace) -> tuple[Answers, Probe | None]:
    if options.json or not sys.stdin.isatty():
        raise Wrong("this is no terminal to ask on; say what you want with --provider and the other options")
    from fermix.cli.prompts import ask_person

    try:
        return ask_person(wizard, options.secret_store, skip_probe=options.skip_probe)
    except (EOFError, KeyboardInterrupt):
        raise Left from None


def _take_flags(wizard: Wizard, options: argparse.Namespace) -> tuple[Answers, Probe | None]:
    """Raises: WrongAnswer, Wrong, NeedsOperator when the provider refuses the key or cannot be asked."""
    from fermix.agent.providers.catalog import LOCAL_ID
    from fermix.setup.probe import probe
    from fermix.setup.questions import ask_model, check_text, find_spec
    from fermix.setup.trial import why_not
    from fermix.setup.wizard import Answers

    if options.provider == LOCAL_ID:
        if _given(options):
            raise Wrong("the local model takes no key, address or model")
        return Answers(LOCAL_ID, secret_store=options.secret_store), None
    spec = find_spec(options.provider)
    if options.base_url is not None:
        check_text("base_url", options.base_url)
    if options.model is not None:
        check_text("model", options.model)
    answers = Answers(spec.id, options.base_url, _read_key(options), options.model, options.secret_store)
    wizard.check(answers)
    if options.skip_probe:
        return answers, None
    found = probe(spec, wizard.base_url(spec, answers.base_url), wizard.key_for(spec, answers.key))
    if problem := why_not(spec, found):
        mend = "check the key" if found.outcome == "rejected" else "start the server or check --base-url"
        raise NeedsOperator(f"{problem}; nothing was saved", advice=f"{mend}, or save it with --skip-probe")
    if answers.model is None:
        answers = replace(answers, model=ask_model(spec, wizard.kept(spec), found.models).default)
    return answers, found


def _read_key(options: argparse.Namespace) -> Secret | None:
    """Raises: Wrong when there is none where it was said to be, or it cannot be a key."""
    if options.api_key_env is not None:
        if options.api_key_env not in os.environ:
            raise Wrong(f"--api-key-env: the variable {redact(options.api_key_env)} is not set")
        return _as_key("--api-key-env", os.environ[options.api_key_env])
    if not options.api_key_stdin:
        return None
    if sys.stdin.isatty():
        raise Wrong("--api-key-stdin reads a pipe; run `fermix setup` to type the key unseen")
    text = sys.stdin.buffer.read(MAX_KEY_BYTES + 1)
    if len(text) > MAX_KEY_BYTES or not text.isascii():
        raise Wrong("--api-key-stdin: what came through standard input is no key")
    return _as_key("--api-key-stdin", text.decode("ascii"))


def _as_key(flag: str, text: str) -> Secret:
    try:
        return Secret(text.strip())
    except ValueError as error:
        raise Wrong(f"{flag}: {error}") from error


def _doubts(saved: Saved, found: Probe | None) -> tuple[str, ...]:
    from fermix.setup.questions import find_spec
    from fermix.setup.trial import doubt

    unlisted = "" if found is None else doubt(find_spec(saved.provider), saved.model, found)
    return (unlisted,) if unlisted else ()


def _remove(wizard: Wizard, options: argparse.Namespace) -> None:
    """Raises: Wrong when there is no such provider, NeedsOperator when nothing is saved of it."""
    from fermix.agent.providers.catalog import LOCAL_ID
    from fermix.setup.questions import WrongAnswer

    if options.remove == LOCAL_ID:
        raise Wrong("--remove: the local model has no key; switch it off with enabled = false")
    try:
        removed = wizard.remove(options.remove)
    except WrongAnswer as error:
        raise Wrong(f"--remove: {error}") from error
    daemon, daemon_note = _tell_daemon()
    if options.json:
        output.print_json({"status": "ok", **asdict(removed), "daemon": daemon, "daemon_note": daemon_note})
        return
    print(f"Removed {removed.provider}: its section and its key. Answers now: {removed.model or 'nobody yet'}.")
    _show_notes(removed.notes)
    _show_daemon(daemon, daemon_note)


def _offer_voice(home: Home) -> int:
    """Ask a person who listens to voice notes, once it is settled who answers."""
    from fermix.cli.prompts import ask_person_for_voice
    from fermix.setup.voice import KEEP, VoiceSetup

    try:
        backend, key = ask_person_for_voice(VoiceSetup.of(home, os.environ))
    except (EOFError, KeyboardInterrupt):
        backend, key = KEEP, None
        print()
    if backend == KEEP:
        return 0
    return _set_voice(home, backend, key, as_json=False)


def _set_voice(home: Home, backend: str, key: Secret | None, *, as_json: bool) -> int:
    """Fetch the local model when it is that, then save who listens. Raises: WrongAnswer, NeedsOperator."""
    from fermix.setup.voice import VoiceSetup

    voice = VoiceSetup.of(home, os.environ)
    name = voice.check(backend, key)
    if name == "local" and not voice.files.ready:
        with show_progress(silent=as_json) as report:
            voice.files.fetch((), None, report)
    voice.save(name, key)
    daemon, daemon_note = _tell_daemon()
    listens = voice.listens()
    if as_json:
        output.print_json({"status": "ok", "voice": name, "daemon": daemon, "daemon_note": daemon_note})
        return 0
    print(f"Voice notes: {listens}." + ("" if name == "local" else " The first one will show whether the key works."))
    _show_daemon(daemon, daemon_note)
    return 0


def _tell_daemon() -> tuple[DaemonState, str]:
    """Let a running daemon read the new settings."""
    try:
        connection = Connection(socket_path(os.environ), client="setup")
    except DaemonNotRunning:
        return "is not running", ""
    except (OSError, DaemonGone, RequestFailed) as error:
        return "kept its settings", str(error)
    try:
        restart = connection.request("config.reload", {}).get("restart_required")
    except (OSError, DaemonGone, RequestFailed) as error:
        return "kept its settings", str(error)
    finally:
        connection.close()
    return "uses it", "some of it only after a restart" if restart else ""


def _show(outcome: Outcome, home: Home) -> None:
    who = "the local model" if outcome.model is None else f"{outcome.provider}/{outcome.model}"
    print(f"Saved in {home.config}: {who} answers (key: {outcome.key_from}).")
    if outcome.probe is not None and outcome.probe.outcome == "inconclusive":
        print(f"Not tried: {outcome.probe.detail}. The first message will show whether it works.")
    _show_notes(outcome.notes)
    _show_daemon(outcome.daemon, outcome.daemon_note)
    if outcome.daemon == "is not running":
        print("Open `fermix` to talk to it.")


def _show_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        print(f"Note: {note}.")


def _show_daemon(daemon: DaemonState, note: str) -> None:
    if daemon == "kept its settings":
        print(f"The running daemon kept its old settings: {note}. Restart it to use the new ones.")
    elif daemon == "uses it":
        print(f"The running daemon uses it now{note and ', ' + note}.")


def _print_state(wizard: Wizard, *, as_json: bool) -> None:
    readiness = wizard.readiness()
    if as_json:
        failures, advice = ([asdict(each) for each in found] for found in (readiness.failures, readiness.advice))
        status = "ready" if readiness.ready else "setup_required"
        output.print_json({"status": status, "model": readiness.model, "failures": failures, "advice": advice})
        return
    print(f"answers with: {readiness.model or 'nobody yet'}")
    for failure in readiness.found:
        print(f"{'missing' if failure.gating else 'advice'}: {failure.action}")


def _failed(problem: str, *, as_json: bool, code: int) -> int:
    if as_json:
        output.print_json({"status": "error", "error": "wrong_use" if code == 2 else "not_saved", "message": problem})
        return code
    return output.wrong_use("setup", problem) if code == 2 else output.failed("setup", problem)
