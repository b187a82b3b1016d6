"""Every verb of the command line, one line each. Their modules are imported when they run, never before."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs half as much as the interpreter's start, and collections.abc a fifth
if TYPE_CHECKING:
    from collections.abc import Callable


class Verb:
    """`run` takes the arguments behind the verb and returns the exit code."""

    __slots__ = ("hidden", "name", "run", "summary")

    def __init__(self, name: str, summary: str, run: Callable[[list[str]], int], *, hidden: bool = False) -> None:
        self.name = name
        self.summary = summary
        self.run = run
        self.hidden = hidden


def _tui(argv: list[str]) -> int:
    from fermix.cli.verbs import tui

    return tui.main(argv)


def _ask(argv: list[str]) -> int:
    from fermix.cli.verbs import ask

    return ask.main(argv)


def _run(argv: list[str]) -> int:
    import gc

    gc.disable()  # a start makes a hundred thousand objects and no garbage; the verb turns it on again
    from fermix.cli.verbs import run

    return run.main(argv)


def _start(argv: list[str]) -> int:
    from fermix.cli.verbs import start

    return start.main(argv)


def _stop(argv: list[str]) -> int:
    from fermix.cli.verbs import stop

    return stop.main(argv)


def _status(argv: list[str]) -> int:
    from fermix.cli.verbs import status

    return status.main(argv)


def _setup(argv: list[str]) -> int:
    from fermix.cli.verbs import setup

    return setup.main(argv)


def _logs(argv: list[str]) -> int:
    from fermix.cli.verbs import logs

    return logs.main(argv)


def _channels(argv: list[str]) -> int:
    from fermix.cli.verbs import channels

    return channels.main(argv)


def _sandbox(argv: list[str]) -> int:
    from fermix.cli.verbs import sandbox

    return sandbox.main(argv)


def _grant(argv: list[str]) -> int:
    from fermix.cli.verbs import grant

    return grant.main(argv)


def _revoke(argv: list[str]) -> int:
    from fermix.cli.verbs import revoke

    return revoke.main(argv)


def _backup(argv: list[str]) -> int:
    from fermix.cli.verbs import backup

    return backup.main(argv)


def _restore(argv: list[str]) -> int:
    from fermix.cli.verbs import restore

    return restore.main(argv)


def _usage(argv: list[str]) -> int:
    from fermix.cli.verbs import usage

    return usage.main(argv)


def _memory(argv: list[str]) -> int:
    from fermix.cli.verbs import memory

    return memory.main(argv)


def _version(argv: list[str]) -> int:
    from fermix.cli.verbs import version

    return version.main(argv)


def _model(argv: list[str]) -> int:
    from fermix.cli.verbs import model

    return model.main(argv)


def _engine(argv: list[str]) -> int:
    from fermix.cli.verbs import engine

    return engine.main(argv)


def _listen(argv: list[str]) -> int:
    from fermix.cli.verbs import listen

    return listen.main(argv)


def _search(argv: list[str]) -> int:
    from fermix.cli.verbs import search

    return search.main(argv)


def _convert(argv: list[str]) -> int:
    from fermix.cli.verbs import convert

    return convert.main(argv)


def _document(argv: list[str]) -> int:
    from fermix.cli.verbs import document

    return document.main(argv)


VERBS = (
    Verb("tui", "chat in the terminal (what `fermix` alone does)", _tui),
    Verb("ask", "ask one question and print the answer", _ask),
    Verb("setup", "choose who answers and give the key", _setup),
    Verb("start", "start the daemon in the background", _start),
    Verb("stop", "stop the daemon", _stop),
    Verb("status", "tell what runs and what is missing", _status),
    Verb("channels", "tell who may write on which channel and who was denied", _channels),
    Verb("sandbox", "tell or choose what tools may open and what commands get", _sandbox),
    Verb("grant", "open a folder, allow a variable, make a program a tool", _grant),
    Verb("revoke", "take such a grant back", _revoke),
    Verb("backup", "write one file with all that Fermix remembers and how it is set up", _backup),
    Verb("restore", "bring such a file back, or undo that", _restore),
    Verb("memory", "tell what is remembered, forget it, bring it back", _memory),
    Verb("usage", "tell what the models cost and how the limits stand", _usage),
    Verb("logs", "show the daemon's log", _logs),
    Verb("version", "print the version", _version),
    Verb("model", "fetch the local model, or tell how it stands", _model),
    Verb("run", "run the daemon in the foreground (as --daemon)", _run, hidden=True),
    Verb("_engine", "serve the embedded model", _engine, hidden=True),
    Verb("_listen", "turn recordings into text", _listen, hidden=True),
    Verb("_document", "read a document or a picture", _document, hidden=True),
    Verb("_search", "search files by a regular expression", _search, hidden=True),
    Verb("_convert", "read a foreign document as text", _convert, hidden=True),
)
