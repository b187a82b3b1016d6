"""`fermix setup`: flags for scripts, prompts for a person, and a key that is never shown."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Self

import pytest

from fermix.cli.verbs import setup
from fermix.config.secret_store import FileStore
from fermix.config.secrets import Secret
from fermix.errors import NeedsOperator
from fermix.gateway.transcription import VoiceFiles
from fermix.home import Home
from fermix.protocol.methods import PROTOCOL
from tests.fakes.model_list import GOOD_KEY, ModelList, model_list

BAD_KEY = "sk-bad-0123456789abcdef"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "fermix")


@pytest.fixture
def server() -> Generator[ModelList]:
    with model_list() as said:
        yield said


def pipe_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def settings(home: Home) -> str:
    return home.config.read_text(encoding="utf-8") if home.config.exists() else ""


def test_script_saves_a_tried_key(
    home: Home, server: ModelList, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe_in(monkeypatch, GOOD_KEY.encode() + b"\n")

    code = setup.main(["--provider", "openai", "--base-url", server.base_url, "--api-key-stdin", "--json"])

    told = json.loads(capsys.readouterr().out)
    assert (code, told["status"], told["provider"], told["model"]) == (0, "ok", "openai", "gpt-5.5")
    assert (told["key_from"], told["daemon"]) == ("auth.json", "is not running")
    assert told["probe"]["outcome"] == "accepted"
    assert FileStore(home.auth).get("openai") == Secret(GOOD_KEY)
    assert GOOD_KEY not in settings(home) + json.dumps(told)


def test_refused_key_is_not_saved(
    home: Home, server: ModelList, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", BAD_KEY)
    flags = ["--provider", "openai", "--base-url", server.base_url, "--api-key-env", "MY_KEY"]

    assert setup.main(flags) == 1
    assert capsys.readouterr().err == (
        "fermix setup: OpenAI refused the key (HTTP 401); nothing was saved: "
        "check the key, or save it with --skip-probe\n"
    )
    assert (settings(home), home.auth.exists()) == ("", False)

    assert setup.main([*flags, "--skip-probe"]) == 0
    assert FileStore(home.auth).get("openai") == Secret(BAD_KEY)


def test_provider_that_cannot_be_asked_is_saved_with_a_note(
    home: Home, server: ModelList, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.status = 503
    pipe_in(monkeypatch, GOOD_KEY.encode())

    assert setup.main(["--provider", "openai", "--base-url", server.base_url, "--api-key-stdin"]) == 0
    assert "Not tried: OpenAI answered HTTP 503. The first message will show" in capsys.readouterr().out
    assert FileStore(home.auth).get("openai") == Secret(GOOD_KEY)


def test_server_of_ones_own_gets_a_model_that_it_has(home: Home, server: ModelList) -> None:
    server.keyless, server.body = True, b'{"data": [{"id": "tiny:1b"}, {"id": "big:70b"}]}'

    assert setup.main(["--provider", "ollama", "--base-url", server.base_url]) == 0
    assert 'default_model = "tiny:1b"' in settings(home)


def test_server_of_ones_own_that_is_away_is_refused_unless_that_was_asked_for(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with model_list() as gone:
        pass
    flags = ["--provider", "ollama", "--base-url", gone.base_url, "--model", "tiny:1b"]

    assert setup.main(flags) == 1
    assert re.fullmatch(
        r"fermix setup: Ollama cannot be reached at 127\.0\.0\.1 \(ConnectError\); nothing was saved: "
        r"start the server or check --base-url, or save it with --skip-probe\n",
        capsys.readouterr().err,
    )
    assert settings(home) == ""

    assert setup.main([*flags, "--skip-probe"]) == 0
    assert 'default_model = "tiny:1b"' in settings(home)


@pytest.mark.parametrize(("model", "listed"), [("big:70b", True), ("tiny", True), ("absent", False)])
def test_model_that_a_server_does_not_list_is_warned_about(
    home: Home, server: ModelList, model: str, listed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ollama takes a name without its tag for the latest."""
    server.keyless, server.body = True, b'{"data": [{"id": "tiny:latest"}, {"id": "big:70b"}]}'

    assert setup.main(["--provider", "ollama", "--base-url", server.base_url, "--model", model]) == 0

    warning = f"Note: Ollama does not list the model {model}; it has tiny:latest, big:70b.\n"
    assert (warning in capsys.readouterr().out) is not listed


def test_local_model_needs_nothing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main(["--provider", "local"]) == 0
    assert "the local model answers (key: none needed)" in capsys.readouterr().out
    assert settings(home) == "[fermix_core.local_model]\nprimary = true\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", BAD_KEY],
        [f"--api-key={BAD_KEY}"],
        ["--provider", "openai", "--key", BAD_KEY],
        ["--provider", "openai", BAD_KEY],
        ["--provider", "openai", f"--api_key={BAD_KEY}"],
        [BAD_KEY, "--json"],
    ],
)
def test_key_among_the_arguments_is_refused_and_not_repeated(
    home: Home, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup.main(argv) == 2
    shown = capsys.readouterr()
    assert BAD_KEY not in shown.out + shown.err
    assert "every program on this machine" in shown.out + shown.err or "unknown option" in shown.err
    assert settings(home) == ""


@pytest.mark.parametrize(
    ("argv", "stdin", "code", "sentence"),
    [
        ([], b"", 2, "this is no terminal to ask on; say what you want with --provider"),
        (["--json"], b"", 2, "this is no terminal to ask on"),
        (["--model", "x"], b"", 2, "name the provider with --provider"),
        (["--provider", "opnai"], b"", 2, "--provider: unknown provider 'opnai'; choose one of local, openai"),
        (["--provider", "openai"], b"", 2, "--api-key-stdin or --api-key-env: OpenAI needs a key"),
        (["--provider", "openai", "--json"], b"", 2, "--api-key-stdin or --api-key-env: OpenAI needs a key"),
        (["--provider", "openai", "--api-key-stdin"], b"", 2, "--api-key-stdin: a key must not be blank"),
        (["--provider", "openai", "--api-key-stdin"], b"\xff\xfe\x00", 2, "is no key"),
        (["--provider", "openai", "--api-key-stdin"], b"k" * 20_000, 2, "is no key"),
        (["--provider", "openai", "--api-key-stdin"], b"two\nlines", 2, "printable ASCII without spaces"),
        (["--provider", "openai", "--api-key-env", "NO_SUCH"], b"", 2, "the variable NO_SUCH is not set"),
        (["--provider", "openai", "--api-key-env", "BLANK"], b"", 2, "--api-key-env: a key must not be blank"),
        (["--provider", "ollama", "--api-key-stdin"], b"k", 2, "--api-key-stdin or --api-key-env: Ollama takes no key"),
        (["--provider", "ollama", "--base-url", "nonsense"], b"", 2, "--base-url: must be an http:// or https://"),
        (["--provider", "ollama", "--base-url", ""], b"", 2, "--base-url: must be an http:// or https://"),
        (["--provider", "ollama", "--base-url", f"http://{'h' * 2_000}"], b"", 2, "--base-url: must be"),
        (["--provider", "ollama", "--model", " "], b"", 2, "--model: must be one line"),
        (["--provider", "openai_compatible", "--base-url", "http://127.0.0.1:1", "--skip-probe"], b"", 2, "--model: "),
        (["--remove", "opnai"], b"", 2, "--remove: unknown provider 'opnai'"),
        (["--remove", "local"], b"", 2, "--remove: the local model has no key"),
        (["--remove", "openai", "--provider", "xai"], b"", 2, "--remove takes one provider and nothing else"),
        (["--remove", "openai", "--json"], b"", 1, "nothing is saved for OpenAI"),
        (["--provider", "openai", "--api-key-env", "X", "--api-key-stdin"], b"", 2, "give the key one way"),
        (["--provider", "local", "--model", "x"], b"", 2, "the local model takes no key, address or model"),
        (["--provider", "openai_compatible"], b"", 2, "--base-url: OpenAI-compatible server needs an address"),
        (["--wat"], b"", 2, "unknown option --wat"),
    ],
)
def test_wrong_call_is_one_sentence_and_changes_nothing(
    home: Home,
    argv: list[str],
    stdin: bytes,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipe_in(monkeypatch, stdin)
    monkeypatch.setenv("BLANK", " ")

    assert setup.main(argv) == code

    shown = capsys.readouterr()
    assert sentence in shown.out + shown.err
    assert (settings(home), home.auth.exists()) == ("", False)
    if "--json" in argv:
        assert json.loads(shown.out)["status"] == "error"


def test_settings_that_cannot_be_read_are_named_with_their_place(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.prepare()
    home.config.write_text("[fermix_web\n", encoding="utf-8")

    assert setup.main(["--provider", "local"]) == 1
    assert capsys.readouterr().err.endswith("(at line 1, column 12)\n")


def test_state_is_told_and_nothing_is_changed(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.prepare()
    home.config.write_text("[fermix_core.providers.openai]\nprimary = true\n", encoding="utf-8")

    assert setup.main(["--print-state"]) == 0
    assert capsys.readouterr().out == (
        "answers with: nobody yet\nmissing: OpenAI: its key is missing: run `fermix setup`\n"
        "advice: say who you are: user_name in [fermix_core.personalization]\n"
    )
    assert setup.main(["--print-state", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["model"]) == ("setup_required", None)
    assert [(each["component"], each["gating"]) for each in told["failures"]] == [("openai", True)]
    assert [(each["component"], each["gating"]) for each in told["advice"]] == [("personalization", False)]


def test_provider_is_taken_out_again(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.prepare()
    FileStore(home.auth).put("openai", Secret(GOOD_KEY))
    FileStore(home.auth).put("xai", Secret(GOOD_KEY))
    home.config.write_text("[fermix_core.providers.openai]\nprimary = true\n", encoding="utf-8")

    assert setup.main(["--remove", "openai"]) == 0
    assert capsys.readouterr().out == "Removed openai: its section and its key. Answers now: xai/grok-4.3.\n"
    assert (settings(home), FileStore(home.auth).get("openai")) == ("", None)

    assert setup.main(["--remove", "xai", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["provider"], told["model"]) == ("ok", "xai", None)
    assert told["notes"][0].startswith("the local model answers once it is fetched")
    assert told["daemon"] == "is not running"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"result": {}}, "The running daemon uses it now."),
        (
            {"result": {"restart_required": ["fermix_core"]}},
            "The running daemon uses it now, some of it only after a restart.",
        ),
        (
            {"error": {"code": -32603, "message": "config.toml: wrong"}},
            "The running daemon kept its old settings: config.toml: wrong. Restart it to use the new ones.",
        ),
    ],
)
def test_running_daemon_is_told(
    home: Home, answer: dict[str, object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home.prepare()
    asked: list[str] = []

    def daemon(listening: socket.socket) -> None:
        with listening.accept()[0] as peer, peer.makefile("rwb") as lines:
            for line in lines:
                request = json.loads(line)
                asked.append(request["method"])
                reply = {"result": {"protocol": PROTOCOL}} if request["method"] == "hello" else answer
                lines.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}).encode() + b"\n")
                lines.flush()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home.daemon_socket))
        listening.listen()
        listening.settimeout(5)
        thread = threading.Thread(target=daemon, args=(listening,))
        thread.start()
        assert setup.main(["--provider", "local"]) == 0
        thread.join(5)

    assert asked == ["hello", "config.reload"]
    assert capsys.readouterr().out.endswith(told + "\n")


class Terminal:
    """A person at a real terminal: waits for a text, then types. Leaving ends the program if it still runs."""

    def __init__(self, argv: list[str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fermix", *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C reaches whom the terminal controls
        )
        os.close(slave)
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(5)
        os.close(self._master)

    def wait_for(self, text: str, *, within_s: float = 30.0) -> None:
        until = time.monotonic() + within_s
        while text not in self.seen:
            assert select.select([self._master], [], [], until - time.monotonic())[0], self.seen
            try:
                self.seen += os.read(self._master, 65_536).decode()
            except OSError:  # the other end is closed
                assert text in self.seen, self.seen

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def exit_code(self) -> int:
        return self.process.wait(30)


@pytest.mark.slow
def test_person_is_led_through_and_the_key_is_never_echoed(home: Home, server: ModelList) -> None:
    with Terminal(["setup"]) as terminal:
        terminal.wait_for("Who should answer? [local]: ")
        terminal.type("nobody\r")
        terminal.wait_for("provider: choose one of local, openai")
        terminal.type("openai_compatible\r")
        terminal.wait_for("Address of OpenAI-compatible server: ")
        terminal.type(server.base_url + "\r")
        terminal.wait_for("Key for OpenAI-compatible server (blank when it needs none): ")
        terminal.type(BAD_KEY + "\r")
        terminal.wait_for("refused the key (HTTP 401)")
        terminal.wait_for("Address of OpenAI-compatible server: ")
        terminal.seen = ""
        terminal.type(server.base_url + "\r")
        terminal.wait_for("Key for")
        terminal.type(GOOD_KEY + "\r")
        terminal.wait_for("3. house-special")
        terminal.wait_for("Model [gpt-5.5]: ")
        terminal.type("3\r")
        terminal.wait_for("openai_compatible/house-special answers (key: auth.json)")
        terminal.wait_for("1. As it is  (nobody yet)")
        terminal.wait_for("Who should turn voice notes into text? [keep]: ")
        terminal.type("\r")

        assert terminal.exit_code() == 0
    assert GOOD_KEY not in terminal.seen
    assert BAD_KEY not in terminal.seen
    assert 'default_model = "house-special"' in settings(home)
    assert FileStore(home.auth).get("openai_compatible") == Secret(GOOD_KEY)


@pytest.mark.slow
def test_person_is_asked_again_for_a_server_that_is_away(home: Home) -> None:
    with model_list() as gone:
        pass
    with Terminal(["setup"]) as terminal:
        terminal.wait_for("Who should answer? [local]: ")
        terminal.type("ollama\r")
        for _ in range(3):
            terminal.wait_for("Address of Ollama [http://localhost:11434/v1]: ")
            terminal.seen = ""
            terminal.type(gone.base_url + "\r")
            terminal.wait_for("Ollama cannot be reached at 127.0.0.1 (ConnectError).")
        terminal.wait_for("3 tries at Ollama failed; nothing was saved")

        assert terminal.exit_code() == 1
    assert settings(home) == ""


@pytest.mark.slow
@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_leaving_saves_nothing(home: Home, key: str) -> None:
    with Terminal(["setup"]) as terminal:
        terminal.wait_for("Who should answer? [local]: ")
        terminal.type("2\r")
        terminal.wait_for("Key for OpenAI: ")
        terminal.type(key)
        terminal.wait_for("Nothing was saved.")

        assert terminal.exit_code() == 130
    assert (settings(home), home.auth.exists()) == ("", False)


def test_script_chooses_who_listens(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe_in(monkeypatch, GOOD_KEY.encode() + b"\n")

    code = setup.main(["--transcription-backend", "deepgram", "--api-key-stdin", "--json"])

    told = json.loads(capsys.readouterr().out)
    assert (code, told["status"], told["voice"], told["daemon"]) == (0, "ok", "deepgram", "is not running")
    assert settings(home) == '[fermix_core.transcription]\nbackend = "deepgram"\n'
    assert FileStore(home.auth).get("transcription.deepgram") == Secret(GOOD_KEY)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--transcription-backend", "siri"], "--transcription-backend: unknown backend 'siri'"),
        (["--transcription-backend", "xai"], "--api-key-stdin or --api-key-env: xAI needs a key"),
        (["--transcription-backend", "xai", "--provider", "xai"], "takes a key and nothing else"),
        (["--transcription-backend", "xai", "--model", "m"], "takes a key and nothing else"),
    ],
)
def test_wrong_choice_of_who_listens_changes_nothing(
    flags: list[str], told: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup.main(flags) == 2
    assert told in capsys.readouterr().err
    assert settings(home) == ""


def test_choosing_the_local_one_fetches_it_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Setup leads to what works: nothing else has to be run, and nothing was fetched before it was asked for."""
    fetched: list[str] = []
    monkeypatch.setattr(VoiceFiles, "of", lambda models: _Files(models, fetched))

    assert setup.main(["--transcription-backend", "local"]) == 0

    assert fetched == ["fetched"]
    assert capsys.readouterr().out == "Voice notes: the local model listens.\n"


def test_local_one_that_cannot_be_fetched_is_not_chosen(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise NeedsOperator("model.bin could not be fetched", advice="bring the files")

    files = _Files(home.models, [])
    files.fetch = fail
    monkeypatch.setattr(VoiceFiles, "of", lambda _: files)

    assert setup.main(["--transcription-backend", "local"]) == 1
    assert capsys.readouterr().err == "fermix setup: model.bin could not be fetched: bring the files\n"
    assert settings(home) == ""


class _Files:
    """What listening needs, fetched in no time."""

    unsupported = ""

    def __init__(self, _: Path, fetched: list[str]) -> None:
        self._fetched = fetched

    @property
    def ready(self) -> bool:
        return bool(self._fetched)

    def fetch(self, *_: object) -> None:
        self._fetched.append("fetched")
