"""The daemon as a process: one home and one daemon, health, stopping, starting again, broken surroundings."""

from __future__ import annotations

import json
import signal
import socket
import stat
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from fermix.protocol.ask import Connection
from tests.flows.product import WAIT_S, Product, compatible, running, scripted
from tests.requirements import covers

pytestmark = pytest.mark.slow


@pytest.fixture
def product(tmp_path: Path) -> Generator[Product]:
    with scripted(tmp_path, [{"text": "fine"}]) as url, running(tmp_path, compatible(url)) as product:
        yield product


@covers("daemon.aiohttp.health")
def test_health_answers_as_json(product: Product) -> None:
    live, ready = product.get("/health/live"), product.get("/health/ready")

    assert (live[0], live[1]["status"], live[1]["app"]) == (200, "ok", "fermix")
    assert (ready[0], ready[1]["status"], ready[1]["failures"]) == (200, "ready", [])
    assert product.get("/health")[1].keys() == ready[1].keys()
    assert product.get("/health/live", {"Host": "evil.example"})[0] == 421


def test_a_second_daemon_says_which_one_runs(product: Product) -> None:
    assert product.daemon is not None
    second = product.run("--daemon")

    assert second.returncode == 1
    assert f"pid {product.daemon.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert product.run("ask", "still there?").returncode == 0


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    product = Product(tmp_path, "[fermix_web]\nport = 0\n")
    product.prepare()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(product.home / "daemon.sock"))
    with running(tmp_path, "") as restarted:
        assert restarted.status()["pid"] == restarted.daemon.pid if restarted.daemon else False


@covers("home.daemon-socket", "home.root")
def test_the_home_and_what_is_in_it_are_private(product: Product) -> None:
    product.run("ask", "hi")
    loose = [
        path.relative_to(product.home)
        for path in (product.home, *product.home.rglob("*"))
        if stat.S_IMODE(path.lstat().st_mode) & 0o077 and not path.is_symlink() and path.name != "config.toml"
    ]

    assert loose == []
    assert stat.S_IMODE((product.home / "daemon.sock").stat().st_mode) == 0o600


def test_sigterm_lets_a_running_turn_end_and_exits_0_in_time(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"text": "drained", "delay_s": 1}]) as url, running(tmp_path, compatible(url)) as product:
        client = product.spawn("ask", "hi")
        _until_running(product)
        began = time.monotonic()
        code = product.stop()
        out, _ = client.communicate(timeout=5)

        assert code == 0
        assert out == "drained\n"
        assert time.monotonic() - began < 10
        assert not (product.home / "daemon.sock").exists()


def test_sigterm_stops_a_turn_that_will_not_end(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"text": "late", "delay_s": 60}]) as url, running(tmp_path, compatible(url)) as product:
        client = product.spawn("ask", "hi")
        _until_running(product)
        began = time.monotonic()

        assert product.stop() == 0
        assert time.monotonic() - began < 10
        client.communicate(timeout=5)
        assert client.returncode == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_daemon_in_order(product: Product, signum: signal.Signals) -> None:
    """Also the one of a terminal that is closed over it."""
    assert product.daemon is not None
    product.daemon.send_signal(signum)
    assert product.daemon.wait(WAIT_S) == 0
    assert not (product.home / "daemon.sock").exists()


def test_stop_ends_the_daemon(product: Product) -> None:
    assert product.run("stop").stdout == "daemon stopped\n"
    assert product.daemon is not None
    assert product.daemon.wait(WAIT_S) == 0


def test_start_starts_one_that_outlives_it_and_finds_it_again(tmp_path: Path) -> None:
    product = Product(tmp_path, "[fermix_web]\nport = 0\n")
    product.prepare()
    try:
        first, second = product.run("start", "--json"), product.run("start", "--json")

        assert json.loads(first.stdout)["started"] is True
        assert json.loads(second.stdout) == {**json.loads(first.stdout), "started": False}
    finally:
        product.run("stop")


def test_nothing_that_lies_in_the_folder_it_is_started_from_is_run(tmp_path: Path) -> None:
    """A folder that somebody sent may hold a module of any name; starting there must not be running it."""
    product = Product(tmp_path, "[fermix_web]\nport = 0\n")
    product.prepare()
    trap = f"open({str(tmp_path / 'ran')!r}, 'a')"
    for name in ("json.py", "asyncio.py", "fermix/__init__.py", "fermix/__main__.py"):
        path = product.user_home / "unpacked" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(trap, encoding="utf-8")
    try:
        started = product.run("start", "--json", cwd=product.user_home / "unpacked")

        assert (json.loads(started.stdout)["started"], started.stderr) == (True, "")
    finally:
        product.run("stop")
    assert not (tmp_path / "ran").exists()


@covers("history.restored", "history.write-through")
def test_a_restart_finds_the_conversation_again(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"echo": True}]) as url, running(tmp_path, compatible(url)) as product:
        product.run("ask", "my name is Jo")
        assert product.stop() == 0
        product.start()
        history = _history(product)

    assert [(entry["role"], entry["text"]) for entry in history] == [
        ("user", "my name is Jo"),
        ("assistant", "echo: my name is Jo"),
    ]


def test_a_turn_killed_with_the_daemon_is_answered_by_the_next_one(tmp_path: Path) -> None:
    answers: list[dict[str, object]] = [{"text": "late", "delay_s": 30}, {"text": "here I am"}]
    with scripted(tmp_path, answers) as url, running(tmp_path, compatible(url)) as product:
        client = product.spawn("ask", "kill me")
        _until_running(product)
        product.kill()
        client.communicate(timeout=10)
        product.start()
        deadline = time.monotonic() + 10
        while len(_history(product)) < 2:
            assert time.monotonic() < deadline
        history = _history(product)

    assert [(entry["role"], entry["text"]) for entry in history] == [("user", "kill me"), ("assistant", "here I am")]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("[fermix_web]\nport = = 1\n", "line 2, column 8"),
        ("[fermix_web]\nprot = 4030\n", "fermix_web.prot"),
        ('[fermix_web]\nport = "4030"\n', "fermix_web.port"),
        ("[fermix_weeb]\nport = 4030\n", "fermix_weeb"),
    ],
)
def test_a_wrong_config_is_refused_with_file_and_place(tmp_path: Path, config: str, says: str) -> None:
    """CFG-03 and CFG-05: one clear line, never a traceback, nothing corrected."""
    product = Product(tmp_path, config)
    product.prepare()
    for argv in (("--daemon",), ("start",)):
        done = product.run(*argv)
        assert done.returncode == 1
        assert says in done.stderr
        assert "config.toml" in done.stderr
        assert "Traceback" not in done.stderr
    assert (product.home / "config.toml").read_text(encoding="utf-8") == config


def test_a_broken_database_is_named_and_left_alone(tmp_path: Path) -> None:
    product = Product(tmp_path, "[fermix_web]\nport = 0\n")
    product.prepare()
    (product.home / "memory.db").write_bytes(b"this is no database" * 100)
    done = product.run("--daemon")

    assert done.returncode == 1
    assert "memory.db" in done.stderr
    assert "Traceback" not in done.stderr
    assert (product.home / "memory.db").read_bytes() == b"this is no database" * 100


def test_a_port_that_is_taken_degrades_health_and_stops_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, scripted(tmp_path, [{"text": "fine"}]) as url:
        port = taken.getsockname()[1]
        config = compatible(url).replace("port = 0", f"port = {port}")
        with running(tmp_path, config) as product:
            status = product.status()

            assert status["overall"] == "degraded"
            assert f"cannot listen on 127.0.0.1:{port}" in str(status["failures"])
            assert product.run("ask", "hi").returncode == 0


def test_a_setting_that_waits_for_a_restart_is_told_until_it_is_undone(product: Product) -> None:
    """Reference 3, section 11.1: restart_required? and its reasons."""
    config = product.home / "config.toml"
    before = config.read_text(encoding="utf-8")
    connection = Connection(str(product.home / "daemon.sock"), client="test")
    config.write_text(f"{before}\n[fermix_core.traces]\ncontent = true\n", encoding="utf-8")
    told = [connection.request("config.reload", {})["restart_required"] for _ in range(2)]
    waiting = product.get("/health/ready")[1]
    config.write_text(before, encoding="utf-8")
    undone = connection.request("config.reload", {})["restart_required"]
    connection.close()
    quiet = product.get("/health/ready")[1]

    assert (told, undone) == ([["fermix_core.traces"], ["fermix_core.traces"]], [])
    assert (waiting["restart_required?"], waiting["restart_reasons"]) == (True, ["[fermix_core.traces] was changed"])
    assert (quiet["restart_required?"], quiet["restart_reasons"]) == (False, [])


def test_the_log_follows_and_shows_the_last_lines(product: Product) -> None:
    done = product.run("logs", "-n", "1")

    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1


@covers("child.shutdown.kills-group")
def test_no_process_is_left_after_a_stop(product: Product) -> None:
    product.run("ask", "hi")
    product.stop()

    assert _processes_of(product) == []


def _processes_of(product: Product) -> list[str]:
    """Every process that was started for this home, the scripted model aside."""
    mark = f"FERMIX_HOME={product.home}".encode()
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_text(encoding="utf-8"))
        except OSError:
            continue  # it ended while we looked
    return found


def _history(product: Product) -> list[dict[str, object]]:
    from fermix.protocol.ask import Connection

    connection = Connection(str(product.home / "daemon.sock"), client="test")
    entries = connection.request("conversation.history", {"session": "cli", "limit": 50})["entries"]
    connection.close()
    assert isinstance(entries, list)
    return entries


def _until_running(product: Product) -> None:
    deadline = time.monotonic() + 10
    while product.status()["turns_running"] != 1:
        assert time.monotonic() < deadline
