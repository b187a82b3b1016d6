from __future__ import annotations

import io
import json
from contextlib import ExitStack, redirect_stderr, redirect_stdout

import pytest

from fermix.cli.answer import Answer, Printer, visible

Event = tuple[str, dict[str, object]]

DELTAS: list[Event] = [
    ("turn.delta", {"session": "cli", "message_id": "m", "kind": "reasoning", "text": "hm"}),
    ("turn.delta", {"session": "cli", "message_id": "m", "kind": "text", "text": "Hel"}),
    ("turn.delta", {"session": "cli", "message_id": "m", "kind": "tool", "text": "shell"}),
    ("turn.delta", {"session": "cli", "message_id": "m", "kind": "text", "text": "lo"}),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Screen:
    """Where a printer writes while this is entered: two pipes or two terminals."""

    def __init__(self, kind: type[io.StringIO]) -> None:
        self.out, self.err = kind(), kind()
        self._exits = ExitStack()

    def __enter__(self) -> None:
        self._exits.enter_context(redirect_stdout(self.out))
        self._exits.enter_context(redirect_stderr(self.err))

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def play(self, *events: Event, as_json: bool = False, stream: bool = True) -> int:
        """Feed the events until the last one, as the verb does; the exit code."""
        with self:
            printer, answer = Printer(as_json=as_json, stream=stream), Answer("m", "cli")
            for name, params in events:
                printer.show(answer, name, params)
                if answer.take(name, params):
                    break
            return printer.finish(answer)


def reply(text: str, *, id: str = "m", model: str | None = "p/m") -> Event:
    return "reply", {"session": "cli", "message_id": id, "text": text, "model": model}


def ended(outcome: str = "completed", error: str = "", *, id: str = "m") -> Event:
    return "turn.ended", {
        "session": "cli",
        "message_id": id,
        "outcome": outcome,
        "error": error,
        "input_tokens": 3,
        "output_tokens": 4,
    }


def tool(name: str, arguments: str) -> Event:
    return "tool.started", {"session": "cli", "name": name, "arguments": arguments}


def download(done: int, state: str = "running", error: str = "") -> Event:
    params = {"name": "m.gguf", "done_bytes": done, "total_bytes": 100_000_000, "state": state, "error": error}
    return "download", params


@pytest.fixture
def pipe() -> Screen:
    return Screen(io.StringIO)


@pytest.fixture
def terminal() -> Screen:
    return Screen(Terminal)


def test_a_pipe_gets_the_whole_text_once(pipe: Screen) -> None:
    assert pipe.play(*DELTAS, tool("shell", "{}"), reply("Hello"), ended()) == 0
    assert (pipe.out.getvalue(), pipe.err.getvalue()) == ("Hello\n", "[p/m]\n")


def test_a_terminal_gets_it_as_it_is_produced_and_only_once(terminal: Screen) -> None:
    with terminal:
        printer, answer = Printer(as_json=False, stream=True), Answer("m", "cli")
        for name, params in DELTAS:
            printer.show(answer, name, params)
        so_far = terminal.out.getvalue()
        for name, params in (reply("Hello there"), ended()):
            printer.show(answer, name, params)
            answer.take(name, params)
        code = printer.finish(answer)

    assert (code, so_far) == (0, "Hello")
    assert terminal.out.getvalue() == "Hello there\n"
    assert terminal.err.getvalue() == "\x1b[2m[p/m]\x1b[0m\n"


def test_a_reply_that_differs_from_its_stream_is_printed_whole(terminal: Screen) -> None:
    """Deltas may be lost for a slow client; the reply never is."""
    terminal.play(*DELTAS[:2], reply("Hi, all"), ended())

    assert terminal.out.getvalue() == "Hel\nHi, all\n"


def test_tools_are_noted_between_the_texts(terminal: Screen) -> None:
    terminal.play(DELTAS[1], tool("shell", '{"command": "ls"}'), reply("done"), ended())

    assert terminal.out.getvalue() == "Hel\ndone\n"
    assert '· shell {"command": "ls"}' in terminal.err.getvalue()


def test_without_streaming_a_terminal_gets_it_when_it_is_whole(terminal: Screen) -> None:
    terminal.play(*DELTAS, tool("shell", "{}"), reply("Hello"), ended(), stream=False)

    assert terminal.out.getvalue() == "Hello\n"


def test_json_is_one_object_with_everything(pipe: Screen) -> None:
    assert pipe.play(*DELTAS, reply("Hello"), reply("and more", model=None), ended(), as_json=True) == 0
    assert pipe.err.getvalue() == ""
    assert json.loads(pipe.out.getvalue()) == {
        "status": "ok",
        "response": "Hello\n\nand more",
        "session_id": "cli",
        "message_id": "m",
        "model": "p/m",
        "outcome": "completed",
        "error": None,
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }


def test_what_belongs_to_other_messages_is_not_ours(terminal: Screen) -> None:
    other = ("turn.delta", {"session": "cli", "message_id": "x", "kind": "text", "text": "not ours"})
    terminal.play(other, reply("nor this", id="x"), ended("failed", "nor that", id="x"), reply("ours"), ended())

    assert terminal.out.getvalue() == "ours\n"


@pytest.mark.parametrize(
    ("events", "code", "out", "err"),
    [
        ([ended("failed", "the key was refused")], 1, "", "fermix ask: the key was refused\n"),
        ([ended("failed")], 1, "", "fermix ask: the turn failed\n"),
        ([reply("why it failed", model=None), ended("failed", "why it failed")], 1, "", "fermix ask: why it failed\n"),
        (
            [reply("half of it"), reply("why it failed", model=None), ended("failed", "why it failed")],
            1,
            "half of it\n",
            "fermix ask: why it failed\n[p/m]\n",
        ),
        ([ended("cancelled")], 1, "", "stopped\n"),
        ([reply("the help", model=None), ended("handled")], 0, "the help\n", ""),
    ],
)
def test_each_way_to_end_has_its_words_and_exit_code(
    pipe: Screen, events: list[Event], code: int, out: str, err: str
) -> None:
    assert pipe.play(*events) == code
    assert (pipe.out.getvalue(), pipe.err.getvalue()) == (out, err)


def test_a_failed_call_is_an_object_for_programs_and_a_line_for_people(pipe: Screen) -> None:
    with pipe:
        codes = [Printer(as_json=kind, stream=True).failed("cli", "timeout", "no answer") for kind in (False, True)]
    assert codes == [1, 1]
    told = {"status": "error", "error": "timeout", "message": "no answer", "session_id": "cli"}

    assert pipe.err.getvalue() == "fermix ask: no answer\n"
    assert json.loads(pipe.out.getvalue()) == told


def test_a_download_is_a_line_for_each_tenth_in_a_pipe(pipe: Screen) -> None:
    pipe.play(*(download(at * 1_000_000) for at in range(100)), download(0, "done"), reply("Hello"), ended())

    lines = [f"fetching m.gguf: {percent} of 100 MB ({percent} %)" for percent in range(0, 100, 10)]
    assert pipe.out.getvalue() == "Hello\n"
    assert pipe.err.getvalue().splitlines() == [*lines, "m.gguf: done", "[p/m]"]


def test_a_download_that_fails_is_told_once_by_the_turn(pipe: Screen) -> None:
    pipe.play(download(1_000_000), download(1_000_000, "failed", "no room"), ended("failed", "no room: free some"))

    assert pipe.err.getvalue().splitlines()[1:] == ["fermix ask: no room: free some"]


def test_a_failed_turn_leaves_standard_output_empty_on_a_terminal_too(terminal: Screen) -> None:
    assert terminal.play(reply("why it failed", model=None), ended("failed", "why it failed")) == 1

    assert (terminal.out.getvalue(), terminal.err.getvalue()) == ("", "fermix ask: why it failed\n")


def test_a_terminal_shows_that_an_answer_is_still_to_come(terminal: Screen) -> None:
    """After two seconds, once a second, until the first output takes its place."""
    with terminal:
        printer, answer = Printer(as_json=False, stream=True), Answer("m", "cli")
        for elapsed_s in (1.9, 2.1, 2.8, 3.0):
            printer.waiting(elapsed_s)
        printer.show(answer, *DELTAS[1])
        printer.waiting(4.0)

    seen = [f"\r\x1b[2K\x1b[2mthinking… {seconds} s\x1b[0m" for seconds in (2, 3)]
    assert terminal.err.getvalue() == "".join(seen) + "\r\x1b[2K"
    assert terminal.out.getvalue() == "Hel"


def test_a_pipe_is_not_told_to_wait(pipe: Screen) -> None:
    with pipe:
        Printer(as_json=False, stream=True).waiting(10.0)

    assert pipe.err.getvalue() == ""


def test_a_stop_is_told_on_a_line_of_its_own(terminal: Screen, pipe: Screen) -> None:
    """The terminal has just shown ^C, which goes with the line that waits."""
    with terminal:
        printer = Printer(as_json=False, stream=True)
        printer.interrupted()
        printer.waiting(2.0)
        printer.interrupted()
    with pipe:
        Printer(as_json=False, stream=True).interrupted()

    stopped = "\x1b[2mstopped\x1b[0m\n"
    waited = "\r\x1b[2K\x1b[2mthinking… 2 s\x1b[0m\r\x1b[2K"
    assert terminal.err.getvalue() == f"\n{stopped}{waited}{stopped}"
    assert pipe.err.getvalue() == "stopped\n"


def test_a_download_is_one_moving_line_on_a_terminal(terminal: Screen) -> None:
    terminal.play(download(0), download(50_000_000), download(100_000_000, "done"), reply("Hello"), ended())
    lines = terminal.err.getvalue().split("\n")

    assert lines[0].count("\r") == 3
    assert lines[0].endswith("fetching m.gguf: 100 of 100 MB (100 %)\x1b[0m")
    assert terminal.out.getvalue() == "Hello\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größe 你好 🙂", "plain größe 你好 🙂"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\x1b[2J\x07\0", "␛[2J␇␀"),
        ("\r\x7f", "␍␡"),
        ("\x9b31m", "␡31m"),
        ("a\ud83db", "a\ufffdb"),
    ],
)
def test_foreign_text_cannot_drive_the_terminal(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_control_characters_are_visible_on_a_terminal_and_kept_in_a_pipe(terminal: Screen, pipe: Screen) -> None:
    evil: Event = ("turn.delta", {"session": "cli", "message_id": "m", "kind": "text", "text": "\x1b]0;x\x07"})
    terminal.play(evil, tool("shell", "\x1b[31m"), reply("\x1b]0;x\x07 end"), ended())
    pipe.play(reply("\x1b[31mred\ud83d"), ended())

    assert "\x1b" not in terminal.out.getvalue()
    assert "\x1b[31m" not in terminal.err.getvalue()
    assert pipe.out.getvalue() == "\x1b[31mred?\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_question_that_holds_the_turn_up_is_shown_at_once_and_is_no_part_of_the_answer(as_json: bool) -> None:
    """Decision 0015: the owner has a minute to answer it from another terminal."""
    screen = Screen(io.StringIO)
    asked = "reply", {**reply("May I? /confirm ABCDEFGH", model=None)[1], "waits": True}
    with screen:
        printer, answer = Printer(as_json=as_json, stream=False), Answer("m", "cli")
        printer.show(answer, *asked)
        answer.take(*asked)
    assert "/confirm ABCDEFGH" in screen.err.getvalue()

    screen = Screen(io.StringIO)
    screen.play(asked, reply("done"), ended(), as_json=as_json)
    assert "done" in screen.out.getvalue()
    assert "May I" not in screen.out.getvalue()
