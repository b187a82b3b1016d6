"""Setup beside a running daemon: what is saved is used at once, what is wrong leaves the old settings in use."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from fermix.protocol.ask import Connection, RequestFailed
from tests.flows.product import Product, compatible, running, scripted

pytestmark = pytest.mark.slow

NOBODY = "# mine\n[fermix_web]\nport = 0\n[fermix_core.local_model]\nenabled = false\n"


def reload(product: Product) -> str:
    """Ask the daemon to read its settings again; the sentence it answers with, "" when it took them."""
    connection = Connection(str(product.home / "daemon.sock"), client="test")
    try:
        connection.request("config.reload", {})
    except RequestFailed as error:
        return str(error)
    finally:
        connection.close()
    return ""


def settings(product: Product) -> str:
    return (product.home / "config.toml").read_text(encoding="utf-8")


def test_provider_that_is_set_up_answers_the_next_question(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"text": "hello"}]) as url, running(tmp_path, NOBODY) as product:
        assert product.status()["overall"] == "setup_required"
        assert product.run("ask", "hi").returncode == 1

        done = product.run("setup", "--provider", "openai_compatible", "--base-url", url, "--model", "scripted")

        assert done.returncode == 0, done.stderr
        assert "openai_compatible/scripted answers (key: none needed)" in done.stdout
        assert done.stdout.endswith("The running daemon uses it now.\n")
        assert product.run("ask", "hi").stdout == "hello\n"
        assert product.status()["overall"] == "ready"
        written = settings(product)
        assert written.startswith(NOBODY)
        assert tomllib.loads(written)["fermix_core"]["providers"]["openai_compatible"]["primary"] is True


def test_choice_of_the_local_model_is_taken_at_once_and_so_is_the_way_back(tmp_path: Path) -> None:
    """Status, health and setup judge alike, before the model was fetched too."""
    with scripted(tmp_path, [{"text": "hello"}]) as url, running(tmp_path, compatible(url)) as product:
        local = product.run("setup", "--provider", "local")

        assert local.stdout.endswith("The running daemon uses it now.\n")
        status, health = product.status(), product.get("/health/ready")
        state = json.loads(product.run("setup", "--print-state", "--json").stdout)
        assert (status["overall"], health[0], state["status"]) == ("setup_required", 503, "setup_required")
        failures = [failure["action"] for failure in state["failures"]]
        assert status["failures"] == health[1]["failures"] == failures
        assert failures[0].startswith("the local model answers once it is fetched (")
        assert "qwen2.5-coder-0.5b: absent, primary" in product.run("status").stdout

        back = product.run("setup", "--provider", "openai_compatible")

        assert back.returncode == 0, back.stderr
        assert product.run("ask", "hi").stdout == "hello\n"
        assert "primary" not in tomllib.loads(settings(product))["fermix_core"]["local_model"]


def test_provider_that_is_taken_out_no_longer_answers(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"text": "hello"}]) as url, running(tmp_path, compatible(url)) as product:
        done = product.run("setup", "--remove", "openai_compatible", "--json")

        assert json.loads(done.stdout)["daemon"] == "uses it"
        assert (product.status()["providers"], product.status()["model"]) == ([], None)


def test_start_says_as_json_what_is_wrong_with_the_settings(tmp_path: Path) -> None:
    product = Product(tmp_path, "[fermix_web]\nprot = 4030\n")
    product.prepare()

    done = product.run("start", "--json", timeout_s=30)

    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr, told["status"]) == (1, "", "error")
    assert "fermix_web.prot: line 2: unknown key" in told["message"]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("[fermix_web\n", "(at line 1, column 12)"),
        ("[fermix_web]\nprot = 1\n", "fermix_web.prot: line 2: unknown key; did you mean 'port'?"),
        ("\x00", "(at line 1, column 1)"),
    ],
)
def test_settings_broken_by_hand_leave_the_daemon_as_it_was(tmp_path: Path, damage: str, sentence: str) -> None:
    """CFG-09: a reload validates first and keeps the old settings on an error."""
    with scripted(tmp_path, [{"text": "still here"}]) as url, running(tmp_path, compatible(url)) as product:
        (product.home / "config.toml").write_text(damage, encoding="utf-8")

        assert sentence in reload(product)
        assert product.run("ask", "hi").stdout == "still here\n"

        (product.home / "config.toml").write_text(compatible(url), encoding="utf-8")
        assert reload(product) == ""
        assert product.run("ask", "hi").stdout == "still here\n"


def test_open_auth_file_keeps_the_daemon_from_starting_and_says_what_to_type(tmp_path: Path) -> None:
    product = Product(tmp_path, NOBODY)
    product.prepare()
    (product.home / "auth.json").write_text('{"version": 1, "providers": {}}', encoding="utf-8")
    (product.home / "auth.json").chmod(0o644)

    done = product.run("--daemon", timeout_s=30)

    assert done.returncode == 1
    assert f"run `chmod 600 {product.home / 'auth.json'}`" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_settings_keep_the_daemon_from_starting_in_one_line(tmp_path: Path) -> None:
    """CFG-03"""
    product = Product(tmp_path, "[fermix_web]\nprot = 4030\n")
    product.prepare()

    done = product.run("--daemon", timeout_s=30)

    assert done.returncode == 1
    assert done.stderr == (
        f"fermix: {product.home / 'config.toml'}: fermix_web.prot: line 2: unknown key; did you mean 'port'?\n"
    )
    assert (product.home / "config.toml").read_text(encoding="utf-8") == "[fermix_web]\nprot = 4030\n"
