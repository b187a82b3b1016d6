"""Whatever a provider, a tool or a disk does: one clear sentence, no traceback, nothing half written, and the next
message works. One daemon for the whole file."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fermix.gateway.gateway import RESTARTING
from fermix.protocol.ask import Connection
from tests.canary_scan import KEY
from tests.fakes.provider import Answer, Call, failure
from tests.fakes.stage import Stage, staged
from tests.flows.product import Product, compatible, running
from tests.requirements import covers

pytestmark = pytest.mark.slow

ROUTE = "openai_compatible/scripted"
HTML = b"<!DOCTYPE html><html><body><h1>It works!</h1></body></html>"
CUT_CHARACTER = b'data: {"choices": [{"index": 0, "delta": {"content": "ab\xff\xfe cd"}}]}\n\n'
GOOD_END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@dataclass
class Play:
    product: Product
    stage: Stage

    def ask(self, *argv: str, session: str = "cli") -> tuple[int, dict[str, object]]:
        """Ask with --json; exit code and object. No traceback may be seen anywhere."""
        done = self.product.run("ask", "--json", "--session", session, *argv)
        assert "Traceback" not in done.stdout + done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return done.returncode, answer

    def history(self, session: str) -> list[tuple[object, object]]:
        connection = Connection(str(self.product.home / "daemon.sock"), client="test")
        entries = connection.request("conversation.history", {"session": session, "limit": 50})["entries"]
        connection.close()
        assert isinstance(entries, list)
        return [(entry["role"], entry["text"]) for entry in entries]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Generator[Play]:
    with staged() as stage, running(tmp_path_factory.mktemp("failures"), compatible(stage.base_url)) as product:
        yield Play(product, stage)


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("401", failure(401, "Incorrect API key provided: sk-123"), f"{ROUTE} refused the key"),
        ("429", failure(429, "slow down", headers={"Retry-After": "3600"}), "Try again in about 60 minutes"),
        ("500", failure(500, "internal"), "is not available at the moment"),
        ("404", failure(404, "model not found", code="model_not_found"), "has no model named scripted"),
        ("html", Answer(raw=HTML, content_type="text/html"), "is not an answer of a model"),
        ("sse", Answer(raw=b"data: {broken\n\n"), "is not an answer of a model"),
        ("nothing", Answer(raw=b""), "The connection to openai_compatible failed"),
        ("empty", Answer(text=""), "ended its turn without a reply"),
        ("cut", Answer(text="half of a longer answer", cut_bytes=400), "broke off in the middle"),
        ("cut-first", Answer(text="never seen", cut_bytes=10), "The connection to openai_compatible failed"),
    ],
)
def test_a_provider_that_fails_is_told_in_one_sentence_and_the_turn_is_closed(
    play: Play, name: str, answer: Answer, says: str
) -> None:
    play.stage.play(answer)
    session = f"provider-{name}"
    code, told = play.ask("first question", session=session)

    assert (code, told["status"], told["outcome"]) == (1, "error", "failed")
    assert says in str(told["error"])
    assert "sk-123" not in str(told)
    assert "\n" not in str(told["error"])
    assert [role for role, _ in play.history(session)] == ["user", "note"]

    play.stage.play(Answer(text="fine again"))
    assert play.ask("second question", session=session)[1]["response"] == "fine again"
    assert play.stage.asked[0].last_user_text.endswith("second question")


def test_a_429_with_a_short_retry_after_is_tried_again_by_itself(play: Play) -> None:
    play.stage.play(failure(429, "slow down", headers={"Retry-After": "1"}), Answer(text="second time"))

    assert play.ask("hi", session="retry")[1]["response"] == "second time"
    assert len(play.stage.asked) == 2


def test_a_500_is_tried_again_by_itself(play: Play) -> None:
    play.stage.play(failure(500, "internal"), Answer(text="second time"))

    assert play.ask("hi", session="retry-500")[1]["response"] == "second time"


@pytest.mark.parametrize(
    ("name", "call", "says"),
    [
        ("unknown", Call("launch_rockets", {}), "unknown or unavailable tool"),
        ("broken", Call("shell", '{"command": "ls'), "JSON"),
        ("list", Call("shell", "[1, 2]"), "arguments"),
        ("wrong", Call("shell", {"cmd": "ls"}), "command"),
    ],
)
def test_a_tool_call_that_cannot_be_run_is_answered_to_the_model(play: Play, name: str, call: Call, says: str) -> None:
    """Every call has exactly one result, so that the conversation can go on."""
    play.stage.play(Answer(calls=(call,)), Answer(text="I see."))
    code, told = play.ask("do it", session=f"tool-{name}")
    results = [item for item in play.stage.asked[1].body["messages"] if item["role"] == "tool"]

    assert (code, told["response"]) == (0, "I see.")
    assert len(results) == 1
    assert says in str(results[0]["content"])


def test_invalid_utf_8_from_a_tool_reaches_model_and_history_as_text(play: Play) -> None:
    command = r"printf 'caf\303 \377\376 end'"
    play.stage.play(Answer(calls=(Call("shell", {"command": command}),)), Answer(text="Seen."))
    assert play.ask("run it", session="tool-bytes")[1]["response"] == "Seen."
    (result,) = [item["content"] for item in play.stage.asked[1].body["messages"] if item["role"] == "tool"]

    assert "caf\ufffd \ufffd\ufffd end" in str(result)
    assert [role for role, _ in play.history("tool-bytes")] == ["user", "tool", "assistant"]


def test_invalid_utf_8_from_a_provider_ends_in_text_or_one_sentence(play: Play) -> None:
    play.stage.play(Answer(raw=CUT_CHARACTER + GOOD_END))
    code, told = play.ask("hi", session="provider-bytes")

    assert (code, told["response"]) in ((0, "ab\ufffd\ufffd cd"), (1, told["error"]))


def test_no_key_is_seen_in_the_list_of_processes_or_in_a_command(play: Play) -> None:
    """SEC: a command that looks at everything its user may see finds no key of ours, whatever its place."""
    look = "tr '\\0' ' ' < /proc/$PPID/cmdline; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; env"
    config = play.product.home / "config.toml"
    before = config.read_text(encoding="utf-8")
    config.write_text(before.replace(KEY, "canary-0123456789abcdef"), encoding="utf-8")
    connection = Connection(str(play.product.home / "daemon.sock"), client="test")
    try:
        connection.request("config.reload", {})
        play.stage.play(Answer(calls=(Call("shell", {"command": look}),)), Answer(text="looked"))
        assert play.ask("look", session="processes")[1]["response"] == "looked"
    finally:
        config.write_text(before, encoding="utf-8")
        connection.request("config.reload", {})
        connection.close()
    (result,) = [item["content"] for item in play.stage.asked[1].body["messages"] if item["role"] == "tool"]

    assert play.stage.asked[1].headers["authorization"] == "Bearer canary-0123456789abcdef"
    assert "fermix" in str(result)
    assert "canary" not in str(result)


def test_stop_ends_the_running_turn_and_the_queue_behind_it_in_order(play: Play) -> None:
    """`/stop` over the real socket: what runs is cancelled, what waits is dropped, what comes later runs."""
    play.stage.play(Answer(text="late", delay_s=30), Answer(text="after the stop"))
    connection = Connection(str(play.product.home / "daemon.sock"), client="test")
    connection.request("events.subscribe", {"sessions": ["queue"], "services": False})
    for number, text in enumerate(("first", "second", "third")):
        connection.request("message.send", {"id": f"q{number}", "session": "queue", "text": text})
    events = connection.events()
    queue = next(params for name, params in events if name == "queue.changed" and len(_list(params["waiting"])) == 2)
    assert (queue["running"], [row["text"] for row in _list(queue["waiting"])]) == ("q0", ["second", "third"])

    _until(lambda: bool(play.stage.asked))
    connection.request("message.send", {"id": "stop", "session": "queue", "text": "/stop"})
    connection.request("message.send", {"id": "q3", "session": "queue", "text": "fourth"})
    ended: dict[str, object] = {}
    texts: list[object] = []
    for name, params in events:
        if name == "reply":
            texts.append(params["text"])
        if name == "turn.ended":
            ended[str(params["message_id"])] = params["outcome"]
        if len(ended) == 5:
            break
    connection.close()

    assert ended == {"q0": "cancelled", "q1": "cancelled", "q2": "cancelled", "stop": "handled", "q3": "completed"}
    assert texts == ["Stopped. 2 waiting messages were dropped.", "after the stop"]
    assert [role for role, _ in play.history("queue")] == ["user", "note", "user", "assistant"]


def _list(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


@covers("traces.best-effort")
def test_traces_that_cannot_be_written_change_no_reply_and_are_said_once(play: Play) -> None:
    """A design 160: a failed trace write is logged and changes no reply."""
    traces = play.product.home / "traces"
    traces.rename(traces.with_name("traces.away"))
    traces.write_text("in the way", encoding="utf-8")
    play.stage.play(Answer(text="all the same"))
    try:
        replies = [play.ask("hi", session="traces")[1]["response"] for _ in range(2)]
        _until(lambda: "traces cannot be written" in play.product.log())
    finally:
        traces.unlink()
        traces.with_name("traces.away").rename(traces)

    assert replies == ["all the same", "all the same"]
    assert play.product.log().count("traces cannot be written") == 1


@covers("turn.snapshot")
def test_a_reload_during_a_turn_reaches_only_the_next_one(play: Play) -> None:
    """A flow 74: a turn runs to its end on what it began with; its later steps ask the same model the same way."""
    config = play.product.home / "config.toml"
    before = config.read_text(encoding="utf-8")
    play.stage.play(Answer(calls=(Call("shell", {"command": "sleep 1"}),)), Answer(text="to the end"))
    client = play.product.spawn("ask", "--json", "--session", "snapshot", "hi")
    connection = Connection(str(play.product.home / "daemon.sock"), client="test")
    connection.request("events.subscribe", {"sessions": ["snapshot"], "services": False})
    try:
        if not any(entry[0] == "tool" for entry in play.history("snapshot")):
            next(name for name, _ in connection.events() if name == "tool.started")
        config.write_text(before.replace('"scripted"', '"changed"'), encoding="utf-8")
        reloaded = connection.request("config.reload", {})
        out, _ = client.communicate(timeout=20)
        first = [asked.body["model"] for asked in play.stage.asked]
        play.stage.play(Answer(text="afresh"))
        assert play.ask("again", session="snapshot")[1]["model"] == "openai_compatible/changed"
    finally:
        config.write_text(before, encoding="utf-8")
        connection.request("config.reload", {})
        connection.close()

    assert reloaded == {"model": "openai_compatible/changed", "restart_required": []}
    assert json.loads(out)["model"] == ROUTE
    assert first == ["scripted", "scripted"]


@contextmanager
def mounted(folder: Path, options: str) -> Generator[None]:
    """A small file system of its own."""
    folder.mkdir(mode=0o700)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Take every free byte."""
    try:
        with (folder / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
    except OSError:
        return


@pytest.mark.parametrize("verb", [("--daemon",), ("start",)])
def test_a_home_on_a_read_only_disk_is_said_with_what_to_do(tmp_path: Path, verb: tuple[str, ...]) -> None:
    product = Product(tmp_path, "[fermix_web]\nport = 0\n")
    product.user_home.mkdir(exist_ok=True)
    with mounted(product.home, "size=4m"):
        product.prepare()
        subprocess.run(["mount", "-o", "remount,ro", str(product.home)], check=True)
        for _ in range(2):
            done = product.run(*verb)
            assert (done.returncode, done.stdout) == (1, "")
            assert "Read-only file system" in done.stderr
            assert "FERMIX_HOME" in done.stderr
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", [("--daemon",), ("start",)])
def test_a_whole_home_that_became_read_only_is_said_too(tmp_path: Path, verb: tuple[str, ...]) -> None:
    product = Product(tmp_path, "[fermix_web]\nport = 0\n")
    product.user_home.mkdir(exist_ok=True)
    with mounted(product.home, "size=16m"):
        with running(tmp_path, "[fermix_web]\nport = 0\n") as first:
            assert first.stop() == 0
        subprocess.run(["mount", "-o", "remount,ro", str(product.home)], check=True)
        done = product.run(*verb)

    assert (done.returncode, done.stdout) == (1, "")
    assert "Read-only file system" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("verb", "says"), [("--daemon", "space"), ("start", "run `fermix --daemon` to see why")])
def test_a_full_disk_before_the_first_start_is_said_with_what_to_do(tmp_path: Path, verb: str, says: str) -> None:
    product = Product(tmp_path, "[fermix_web]\nport = 0\n")
    product.user_home.mkdir(exist_ok=True)
    with mounted(product.home, "size=256k"):
        product.prepare()
        fill(product.home)
        done = product.run(verb)
        left = product.home / "memory.db"
        half = left.exists() and left.stat().st_size > 0

    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not half


def test_a_database_that_breaks_under_a_running_daemon_ends_each_message_with_a_sentence(
    tmp_path: Path, play: Play
) -> None:
    """Issue 2, bad input: a broken `memory.db`; nobody waits for an answer that cannot come."""
    with running(tmp_path, compatible(play.stage.base_url)) as product:
        for suffix in ("", "-wal", "-shm"):
            (product.home / f"memory.db{suffix}").write_bytes(b"this is no database" * 500)
        asked = product.run("ask", "--timeout", "10", "hello")
        command = product.run("ask", "--timeout", "10", "/new")

    assert (asked.returncode, command.returncode) == (1, 1)
    assert "memory.db is damaged" in asked.stderr
    assert "memory.db is damaged" in command.stderr
    assert (asked.stdout, command.stdout) == ("", "")
    assert "Traceback" not in asked.stderr + command.stderr


def test_a_disk_that_fills_up_takes_no_message_and_is_said_until_there_is_room(tmp_path: Path, play: Play) -> None:
    """A message that cannot be written down is refused at once; `fermix status` says so until one is taken again."""
    product = Product(tmp_path)
    product.user_home.mkdir(exist_ok=True)
    play.stage.play(Answer(text="answered"))
    with mounted(product.home, "size=4m"), running(tmp_path, compatible(play.stage.base_url)) as product:
        assert product.run("ask", "with room").returncode == 0
        fill(product.home)
        full = [product.run("ask", "--session", f"s{at}", "--stdin", stdin=b"x" * 200_000) for at in range(3)]
        _until(lambda: product.status()["overall"] == "degraded")
        failures = str(product.status()["failures"])
        (product.home / "ballast").unlink()
        again = product.run("ask", "--session", "later", "with room again")
        assert product.status()["overall"] == "ready"
        assert product.stop() == 0
        product.start()
        later = Play(product, play.stage).history("later")

    assert [(done.returncode, done.stdout) for done in full] == [(1, "")] * 3
    assert all("full" in done.stderr for done in full)
    assert "ledger: " in failures
    assert "full" in failures
    assert "Traceback" not in failures
    assert again.returncode == 0
    assert later == [("user", "with room again"), ("assistant", "answered")]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"


@covers("enqueue.agent-not-ready")
def test_a_question_to_a_daemon_that_is_stopping_is_told_to_come_again(tmp_path: Path, play: Play) -> None:
    """I pipeline 25: the sentence instead of silence, and a reply that is under way is still finished."""
    play.stage.play(Answer(text="finished", delay_s=3))
    with running(tmp_path, compatible(play.stage.base_url)) as product:
        slow = product.spawn("ask", "--session", "slow", "hi")
        _until(lambda: product.status()["turns_running"] == 1)
        assert product.daemon is not None
        product.daemon.terminate()
        late: list[subprocess.CompletedProcess[str]] = []
        _until(lambda: late.append(product.run("ask", "--session", "late", "hi")) or "restarting" in late[-1].stderr)
        out, _ = slow.communicate(timeout=20)
        assert product.daemon.wait(20) == 0

    assert (late[-1].returncode, late[-1].stdout, late[-1].stderr) == (1, "", f"fermix ask: {RESTARTING}\n")
    assert out == "finished\n"


def test_a_killed_daemon_takes_its_commands_along(tmp_path: Path, play: Play) -> None:
    """EXE: not even a session of its own and an ignored signal keep a command alive."""
    mark = f"mark-{uuid.uuid4().hex}"
    command = f"(setsid sh -c 'trap \"\" TERM HUP; sleep 60; : {mark}' &); sleep 60; : {mark}"
    play.stage.play(Answer(calls=(Call("shell", {"command": command}),)))
    with running(tmp_path, compatible(play.stage.base_url)) as product:
        client = product.spawn("ask", "run it")
        _until(lambda: len(_processes_with(mark)) >= 4)
        product.kill()
        client.communicate(timeout=20)
        _until(lambda: not _processes_with(mark))


def _processes_with(mark: str) -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [path.parent.name] if mark in path.read_text(encoding="utf-8", errors="replace") else []
    return found


def test_a_second_daemon_leaves_the_first_one_alone(play: Play) -> None:
    play.stage.play(Answer(text="still here"))
    assert play.product.run("--daemon").returncode == 1

    assert play.ask("hi", session="two")[1]["response"] == "still here"
