"""`fermix sandbox`, `grant` and `revoke`: a yes is typed, the same record with and without a daemon, exit codes."""

from __future__ import annotations

import json
import os
import pty
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest

from fermix.cli.main import main
from fermix.home import Home, hold_lock
from tests.fakes.peer import answering, error, result


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home in an own folder, with a folder beside it that is not open."""
    user = tmp_path / "user"
    user.mkdir(exist_ok=True)
    (tmp_path / "shut").mkdir()
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("FERMIX_HOME", str(user / ".fermix"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("TICKETS", "canary-22")
    monkeypatch.chdir(tmp_path)
    return Home(user / ".fermix")


@contextmanager
def typed(text: bytes) -> Iterator[int]:
    """Sit at a terminal and type this; gives the descriptor on which its screen is read."""
    ours, theirs = pty.openpty()
    with (
        os.fdopen(theirs, "r", encoding="utf-8", closefd=False) as stdin,
        os.fdopen(theirs, "w", encoding="utf-8") as screen,
        redirect_stderr(screen),
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr("sys.stdin", stdin)
        os.write(ours, text)
        yield ours
    os.close(ours)


def written(home: Home) -> dict[str, object]:
    return tomllib.loads(home.config.read_text(encoding="utf-8"))["sandbox"]


def test_a_yes_at_the_terminal_opens_a_folder_and_leaves_a_record(home: Home, tmp_path: Path) -> None:
    """Issue 4: one mutation path; what widens asks, each grant leaves a record."""
    with typed(b"yes\n") as screen:
        assert main(["grant", "path", "shut"]) == 0
        shown = os.read(screen, 4096).decode()

    assert written(home) == {"allowed_roots": [str(tmp_path / "shut")]}
    (record,) = home.grants.iterdir()
    kept = json.loads(record.read_text(encoding="utf-8"))
    assert (kept["by"], kept["change"], kept["target"]) == (
        "the owner at a terminal", "GrantPath", str(tmp_path / "shut"),
    )  # fmt: skip
    assert f'opens: "{tmp_path}/shut"' in shown
    assert "Type yes to agree: " in shown


@pytest.mark.parametrize("text", [b"\n", b"y\n", b"no\n", b"yes please\n", b"\x04"])
def test_anything_but_yes_changes_nothing(home: Home, text: bytes) -> None:
    with typed(text):
        assert main(["grant", "path", "shut"]) == 1

    assert not home.config.exists()
    assert list(home.grants.iterdir()) == []


def test_without_a_terminal_nothing_is_opened(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """R-44: no option, no pipe and no script says yes."""
    assert main(["grant", "path", "shut", "--json"]) == 1
    assert main(["grant", "env", "TICKETS"]) == 1
    assert main(["sandbox", "mode", "open"]) == 1

    out = capsys.readouterr()
    assert "needs your yes at a terminal" in json.loads(out.out)["message"]
    assert "needs your yes at a terminal; run it there, or ask in a chat by `/grant`" in out.err
    assert "ask in a chat by `/sandbox`" in out.err
    assert not home.config.exists()


@pytest.mark.parametrize("option", ["--yes", "-y", "--force", "--confirm", "--assume-yes"])
def test_no_option_says_yes(home: Home, option: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["grant", "path", "shut", option])

    assert ended.value.code == 2
    assert not home.config.exists()


def test_what_narrows_is_done_at_once(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.prepare()
    home.config.write_text('[sandbox.env]\nallow = ["TICKETS"]\n', encoding="utf-8")

    assert main(["revoke", "env", "TICKETS", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"status": "ok", "text": '[sandbox]\n- env.allow: "TICKETS"'}
    assert written(home) == {"env": {"allow": []}}
    assert len(list(home.grants.iterdir())) == 1


def test_what_stands_behind_the_dashes_is_a_program(home: Home) -> None:
    with typed(b"yes\n"):
        assert main(["sandbox", "env", "set", "TOKEN", "--", "date", "--json", "-u"]) == 0

    assert written(home)["env"]["TOKEN"]["args"] == ["--json", "-u"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["sandbox", "nonsense"], 2),
        (["sandbox", "mode"], 2),
        (["sandbox", "mode", "loose"], 2),
        (["grant"], 2),
        (["grant", "path"], 2),
        (["revoke", "path", "shut", "other"], 2),
        (["sandbox", "mode", "developer"], 1),
        (["sandbox", "mode", "standard"], 1),
        (["grant", "path", "/etc"], 1),
        (["grant", "env", "LD_PRELOAD"], 1),
        (["sandbox", "env", "get"], 2),
        (["revoke", "path", "shut"], 1),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_wrong_is_told_with_its_exit_code(
    home: Home, argv: list[str], code: int, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reference 4, 7.1: usage 2, errors 1."""
    assert main([*argv, "--json"] if as_json else argv) == code

    out = capsys.readouterr()
    assert json.loads(out.out)["message"] if as_json else out.err.startswith(f"fermix {argv[0]}: ")
    assert not home.config.exists()


def test_the_status_is_told_without_a_daemon(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.prepare()
    home.config.write_text(
        '[sandbox.env]\nallow = ["TICKETS", "GONE"]\n'
        '[sandbox.commands]\nprofile = "extended"\npresets = ["dev_tools"]\n',
        encoding="utf-8",
    )
    assert main(["sandbox"]) == 0
    plain = capsys.readouterr().out
    assert main(["sandbox", "status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)

    assert "variables: TICKETS: from the daemon's environment" in plain
    assert "variables: GONE: has no value: the daemon has none" in plain
    assert "commands: run_git: /usr/bin/git" in plain
    assert status["mode"] == "standard"
    assert status["walls"]
    assert "canary" not in plain + json.dumps(status)


def test_a_path_is_explained_as_it_is_seen_from_here(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = home.root.parent / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    main(["sandbox", "explain", "file", "--json"])
    found = json.loads(capsys.readouterr().out)
    main(["sandbox", "explain"])

    assert (found["path"], found["open"]) == (str(project / "file"), True)
    assert capsys.readouterr().out == f"workspace: {home.workspace}\n"


def test_a_value_is_printed_only_when_that_is_asked_for(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Reference 4, 7.1: `env get` masks unless --unsafe-print."""
    home.prepare()
    config = (
        '[sandbox.env]\nallow = ["TICKETS", "TOKEN", "GONE"]\n[sandbox.env.TOKEN]\ncommand = "date"\nargs = ["+d"]\n'
    )
    home.config.write_text(config, encoding="utf-8")
    codes = [main(["sandbox", "env", "get", *words]) for words in (["TICKETS"], ["TOKEN", "--unsafe-print"])]
    shown = capsys.readouterr().out
    codes += [main(["sandbox", "env", "get", name, "--json"]) for name in ("TICKETS", "GONE", "OTHER")]
    told = capsys.readouterr().out

    assert codes == [0, 0, 0, 1, 1]
    assert shown == "TICKETS has a value of 9 characters; --unsafe-print shows it\nd\n"
    assert "the daemon was started without it" in told
    assert "it is not allowed" in told
    assert "canary" not in told


def test_everything_that_is_set_is_listed(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.prepare()
    text = (
        '[sandbox]\nnetwork = false\nblocked_roots = ["/srv/x"]\n'
        '[sandbox.env]\nallow = ["TICKETS"]\ndeny = ["LANG"]\n'
        '[sandbox.commands]\npresets = ["ai_tools"]\n'
        '[sandbox.commands.tickets]\ncommand = "date"\npass_env = ["GONE"]\n'
    )
    home.config.write_text(text, encoding="utf-8")
    listed: list[list[str]] = []
    for words in ([], ["env"], ["commands"], ["commands", "list"]):
        assert main(["sandbox", *words]) == 0
        listed.append(capsys.readouterr().out.splitlines())

    assert listed[1] == ["mode: selected", "TICKETS: from the daemon's environment", "LANG: denied"]
    assert (
        listed[2]
        == listed[3]
        == [
            "profile: bare",
            "presets: ai_tools",
            "presets are offered once the profile is assistant or extended",
            "run_tickets: /usr/bin/date, gets GONE; needs GONE, which is not allowed",
        ]
    )
    assert {"blocked: /srv/x", "network: closed to every command"} <= set(listed[0])


def test_a_daemon_that_goes_away_is_told(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.prepare()
    with answering(home.daemon_socket, lambda asked: result(asked, protocol=1) if asked["method"] == "hello" else None):
        codes = [main(["sandbox", *words]) for words in ([], ["explain", "/x"], ["env", "get", "X"], ["mode", "open"])]

    assert codes == [1, 1, 1, 1]
    assert capsys.readouterr().err.count("cannot talk to the daemon: the daemon ended") == 4


def test_a_home_that_somebody_holds_is_not_changed(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon that starts or ends holds the lock without an open socket."""
    home.prepare()
    with hold_lock(home):
        assert main(["sandbox", "mode", "strict"]) == 1

    assert "a daemon already runs" in capsys.readouterr().err
    assert not home.config.exists()


def test_a_running_daemon_is_asked_with_the_same_words(home: Home) -> None:
    """What the daemon proposed is what it is told to do."""
    home.prepare()
    results: dict[str, dict[str, object]] = {
        "hello": {"protocol": 1},
        "sandbox.propose": {"seal": "s1", "widens": True, "text": "May I?\n\n```\nopens: x\n```"},
        "sandbox.apply": {"text": "done"},
    }
    with (
        typed(b"yes\n"),
        answering(home.daemon_socket, lambda asked: result(asked, **results[str(asked["method"])])) as peer,
    ):
        assert main(["grant", "path", "/x"]) == 0

    asked = [(request["method"], request["params"]) for request in peer.asked if request["method"] != "hello"]
    assert asked == [
        ("sandbox.propose", {"words": ["grant", "path", "/x"]}),
        ("sandbox.apply", {"words": ["grant", "path", "/x"], "seal": "s1"}),
    ]
    assert not home.config.exists()


@pytest.mark.parametrize(("code", "exit_code"), [(-32602, 2), (-32003, 1), (-32603, 1)])
def test_what_the_daemon_refuses_is_told(
    home: Home, code: int, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    home.prepare()
    with answering(home.daemon_socket, lambda request: error(request, code, "the daemon says no")):
        assert main(["revoke", "path", "/x"]) == exit_code

    assert "the daemon says no" in capsys.readouterr().err
