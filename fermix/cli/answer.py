"""What `fermix ask` knows of its answer, and how it is shown. Answers go to stdout, all else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Mapping

THINKING_AFTER_S = 2
STEP_PERCENT = 10  # of a download, in a pipe
WIPE = "\r\x1b[2K"


class Answer:
    """Folds the events of one message. `take` returns True at the last one."""

    def __init__(self, message_id: str, session: str) -> None:
        self.message_id = message_id
        self.session = session
        self.texts: list[str] = []
        self.model: str | None = None
        self.outcome = ""
        self.error = ""
        self.tokens = (0, 0)

    def take(self, name: str, params: Mapping[str, object]) -> bool:
        if params.get("message_id") != self.message_id:
            return False
        if name == "reply" and not params.get("waits"):
            self.texts.append(str(params.get("text")))
            model = params.get("model")
            self.model = model if isinstance(model, str) else self.model
        if name != "turn.ended":
            return False
        self.outcome, self.error = str(params.get("outcome")), str(params.get("error"))
        self.tokens = (_number(params.get("input_tokens")), _number(params.get("output_tokens")))
        return True

    @property
    def ok(self) -> bool:
        return self.outcome in ("completed", "handled")

    @property
    def text(self) -> str:
        return "\n\n".join(self.texts)


class Printer:
    """Streams to a terminal, prints plain text into a pipe, or one JSON object at the end."""

    def __init__(self, *, as_json: bool, stream: bool) -> None:
        self._json = as_json
        self._terminal = sys.stdout.isatty()
        self._stream = stream and self._terminal and not as_json
        self._streamed = ""
        self._unsaid: list[str] = []
        self._progress = False
        self._next_percent: dict[str, int] = {}
        self._thinking_s = 0

    def show(self, answer: Answer, name: str, params: Mapping[str, object]) -> None:
        """Show one event as it arrives."""
        if name == "download":
            self._show_download(params)
        elif name == "reply" and params.get("message_id") == answer.message_id:
            if params.get("waits") is True:
                self._ask(str(params.get("text")))
            else:
                self._take(str(params.get("text")), of_a_model=params.get("model") is not None)
        elif not self._stream or params.get("session") != answer.session:
            return
        elif name == "turn.delta" and params.get("message_id") == answer.message_id and params.get("kind") == "text":
            self._write(str(params.get("text")))
        elif name == "tool.started":
            self._end_line()
            self.note(f"· {params.get('name')} {params.get('arguments')}")

    def waiting(self, elapsed_s: float) -> None:
        """Say on a terminal that something is still to come; the next output takes the place of it."""
        seconds = int(elapsed_s)
        silent = seconds < THINKING_AFTER_S or self._streamed or self._progress or not sys.stderr.isatty()
        if silent or seconds == self._thinking_s:
            return
        self._thinking_s = seconds
        sys.stderr.write(f"{WIPE}\x1b[2mthinking… {seconds} s\x1b[0m")
        sys.stderr.flush()

    def interrupted(self) -> None:
        """Say that the turn was stopped, on a line of its own: a terminal has just shown ^C."""
        if sys.stderr.isatty() and not self._wiped():
            sys.stderr.write("\n")
        self._streamed, self._progress = "", False
        self.note("stopped")

    def finish(self, answer: Answer) -> int:
        """Print what is still missing; returns the exit code."""
        self._wiped()
        if self._json:
            self._print_json(answer)
            return 0 if answer.ok else 1
        if said := "\n\n".join(text for text in self._unsaid if answer.ok or text != answer.error):
            self._end_line()
            self._write(said)
        self._end_line()
        if answer.outcome == "cancelled":
            self.note("stopped")
        elif not answer.ok:
            print(visible(f"fermix ask: {answer.error or 'the turn failed'}"), file=sys.stderr, flush=True)
        if answer.model:
            self.note(f"[{answer.model}]")
        return 0 if answer.ok else 1

    def failed(self, session: str, error: str, message: str) -> int:
        """Report a failure of the call itself; returns exit code 1."""
        self._wiped()
        self._end_line()
        if self._json:
            from fermix.cli.output import print_json

            print_json({"status": "error", "error": error, "message": message, "session_id": session})
        else:
            self.note(f"fermix ask: {message}")
        return 1

    def note(self, text: str) -> None:
        """One line beside the answer, dim on a terminal."""
        line = visible(text)
        self._wiped()
        print(f"\x1b[2m{line}\x1b[0m" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)

    def _ask(self, text: str) -> None:
        """Show a question at once, beside the answer: the turn waits, and it is answered from another terminal."""
        self._end_line()
        self.note(text)

    def _take(self, text: str, *, of_a_model: bool) -> None:
        """Complete what was streamed. What no model said may be why the turn failed, which the last event tells."""
        if self._stream and of_a_model:
            self._complete(text)
        else:
            self._unsaid.append(text)

    def _complete(self, text: str) -> None:
        """Add what the stream lacked; a reply that differs from it is printed whole."""
        if text.startswith(self._streamed):
            self._write(text[len(self._streamed) :])
        else:
            self._end_line()
            self._write(text)
        self._end_line()

    def _write(self, text: str) -> None:
        self._wiped()
        sys.stdout.write(visible(text) if self._terminal else text.encode("utf-8", "replace").decode("utf-8"))
        sys.stdout.flush()
        self._streamed += text

    def _end_line(self) -> None:
        if self._streamed and not self._streamed.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._streamed = ""
        if self._progress:
            self._progress = False
            sys.stderr.write("\n")

    def _show_download(self, params: Mapping[str, object]) -> None:
        done, total = _number(params.get("done_bytes")), max(_number(params.get("total_bytes")), 1)
        line = f"fetching {params.get('name')}: {done / 1e6:.0f} of {total / 1e6:.0f} MB ({done * 100 // total} %)"
        state, name = params.get("state"), str(params.get("name"))
        if sys.stderr.isatty():
            sys.stderr.write(f"{WIPE}\x1b[2m{visible(line)}\x1b[0m")
            self._progress, self._thinking_s = True, 0
            if state in ("done", "failed"):
                self._end_line()
        elif state in ("verifying", "done"):
            self.note(f"{name}: {state}")
        elif state == "running" and done * 100 // total >= self._next_percent.get(name, 0):
            self._next_percent[name] = done * 100 // total // STEP_PERCENT * STEP_PERCENT + STEP_PERCENT
            self.note(line)

    def _wiped(self) -> bool:
        """Take the line that waits off the terminal; say whether there was one."""
        was_there, self._thinking_s = self._thinking_s > 0, 0
        if was_there:
            sys.stderr.write(WIPE)
            sys.stderr.flush()
        return was_there

    def _print_json(self, answer: Answer) -> None:
        from fermix.cli.output import print_json

        print_json(
            {
                "status": "ok" if answer.ok else "error",
                "response": answer.text,
                "session_id": answer.session,
                "message_id": answer.message_id,
                "model": answer.model,
                "outcome": answer.outcome,
                "error": answer.error or None,
                "usage": {"input_tokens": answer.tokens[0], "output_tokens": answer.tokens[1]},
            }
        )


def visible(text: str) -> str:
    """Make control characters visible, so that foreign text cannot drive the terminal; keeps tab and newline."""
    if text.isprintable():
        return text
    return "".join(_symbol(character) for character in text)


def _symbol(character: str) -> str:
    code = ord(character)
    if character in "\n\t" or code >= 0xA0:
        return "\ufffd" if 0xD800 <= code <= 0xDFFF else character
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code >= 0x7F else character


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
