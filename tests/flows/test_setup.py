"""Setup beside a running daemon: what is saved is used at once, what is wrong leaves the old settings in use."""

from __future__ import annotations

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
        written = (product.home / "config.toml").read_text(encoding="utf-8")
        assert written.startswith(NOBODY)
        assert tomllib.loads(written)["fermix_core"]["providers"]["openai_compatible"]["primary"] is True


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
