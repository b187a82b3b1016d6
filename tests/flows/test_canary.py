"""One secret in play, everything going wrong, and the secret nowhere to be read afterwards. SEC-01, R-45 to R-48."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.flows.product import Product, compatible, running, scripted

pytestmark = pytest.mark.slow

CANARY = "canary/5e1f+0123&456789abcdef"
SPELLINGS = tuple(
    form.encode()
    for form in (CANARY, quote(CANARY, safe=""), base64.b64encode(CANARY.encode()).decode().rstrip("="), CANARY[7:])
)
ECHO = f"Incorrect API key provided: {CANARY}. Find it at https://user:{CANARY}@keys.example/?key={quote(CANARY)}"
FAULTS: list[dict[str, object]] = [
    {"status": 401, "raw": f'{{"error": {{"message": "{ECHO}"}}}}', "content_type": "application/json"},
    {"status": 400, "raw": ECHO, "content_type": "text/plain"},
    {"status": 500, "raw": f"<html>{ECHO}</html>", "content_type": "text/html"},
    {"raw": f"data: {ECHO}\n\n"},
    {"text": ECHO, "cut_bytes": 40},
    {
        "calls": [
            {"name": "shell", "arguments": {"command": "env; cat $FERMIX_HOME/auth.json; cat /proc/$PPID/environ"}}
        ]
    },
    {"text": "done"},
]


def files_of(product: Product) -> Iterator[tuple[Path, bytes]]:
    """Everything on disk but the one file that is there to hold the key."""
    for path in product.home.rglob("*"):
        if path.is_file() and path.name != "auth.json":
            yield path, path.read_bytes()


def holds_it(data: bytes) -> bool:
    return any(form in data for form in SPELLINGS)


@pytest.mark.parametrize("place", ["auth.json", "environment", "config.toml"])
def test_key_is_nowhere_to_be_read_after_every_kind_of_failure(tmp_path: Path, place: str) -> None:
    extra = {"OPENAI_API_KEY": CANARY} if place == "environment" else {}
    with scripted(tmp_path, FAULTS) as url:
        config = f'[fermix_web]\nport = 0\n[fermix_core.providers.openai]\nbase_url = "{url}"\nprimary = true\n'
        product = Product(tmp_path, config + (f'api_key = "{CANARY}"\n' if place == "config.toml" else ""), extra)
        product.prepare()
        shown = ""
        if place == "auth.json":
            done = product.run(
                "setup", "--provider", "openai", "--api-key-stdin", "--skip-probe", stdin=CANARY.encode()
            )
            assert done.returncode == 0, done.stderr
            shown += done.stdout + done.stderr
        with running(tmp_path, config, **extra) as product:
            for number in range(len(FAULTS)):
                done = product.run("ask", "--session", f"s{number}", "hello")
                shown += done.stdout + done.stderr
            for verb in ("status", "channels"):
                done = product.run(verb, "--json")
                shown += done.stdout + done.stderr
            assert product.daemon is not None
            arguments = Path(f"/proc/{product.daemon.pid}/cmdline").read_bytes()
            product.stop()

    assert not holds_it(shown.encode())
    assert not holds_it(arguments)
    allowed = {product.home / "config.toml"} if place == "config.toml" else set[Path]()
    assert {path for path, data in files_of(product) if holds_it(data)} <= allowed
    assert "traces" in {path.relative_to(product.home).parts[0] for path, _ in files_of(product)}
    assert product.log() != ""


def test_what_a_helper_tells_a_command_is_nowhere_to_be_read_afterwards(tmp_path: Path) -> None:
    """R-48: the command has the value, and neither model, log, trace, database nor screen has."""
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\necho '{CANARY}'\n", encoding="utf-8")
    helper.chmod(0o700)
    command = 'echo "$TOKEN"; printf %s "$TOKEN" | base64 -w0; exit 3'
    script: list[dict[str, object]] = [
        {"calls": [{"name": "shell", "arguments": {"command": command}}]},
        {"calls": [{"name": "run_seen", "arguments": {"args": ["TOKEN"]}}]},
        {"text": "done"},
    ]
    with scripted(tmp_path, script) as url:
        config = (
            f'[fermix_core.traces]\ncontent = true\n[sandbox.env]\nallow = ["TOKEN"]\n'
            f'[sandbox.env.TOKEN]\ncommand = "{helper}"\n'
            '[sandbox.commands.seen]\ncommand = "printenv"\npass_env = ["TOKEN"]\n'
        )
        with running(tmp_path, compatible(url) + config) as product:
            asked = product.run("ask", "hello")
            history = product.run("ask", "--json", "again")
            shown = "".join(done.stdout + done.stderr for done in (asked, history, product.run("sandbox", "--json")))
            product.stop()

    assert asked.stdout.strip() == "done"
    assert not holds_it(shown.encode())
    assert [path for path, data in files_of(product) if holds_it(data)] == []
    told = b"".join(data for path, data in files_of(product) if "traces" in path.parts)
    assert told.count(b"[redacted]") >= 3
