"""The whole product as a user meets it: a home, a real daemon process, the real command line.

`FERMIX_PROGRAM` names a built file to test instead of the source (`make smoke` sets it).
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.canary_scan import KEY, TOKEN

REPO = Path(__file__).parent.parent.parent
WAIT_S = 20.0


def program() -> list[str]:
    return shlex.split(os.environ["FERMIX_PROGRAM"]) if is_frozen() else [sys.executable, "-P", "-m", "fermix"]


def is_frozen() -> bool:
    """A built file is tested: what it fetches cannot be an installed package."""
    return "FERMIX_PROGRAM" in os.environ


@dataclass
class Product:
    """One install. `config` is written before the daemon starts."""

    root: Path
    config: str = ""
    extra: dict[str, str] = field(default_factory=dict[str, str])
    daemon: subprocess.Popen[str] | None = None

    @property
    def home(self) -> Path:
        return self.root / "fermix"

    @property
    def user_home(self) -> Path:
        return self.root / "user"

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "XDG_CACHE_HOME") if name in os.environ}
        places = {"FERMIX_HOME": str(self.home), "HOME": str(self.user_home), "PYTHONPATH": str(REPO)}
        return {**kept, **places, "LC_ALL": "C.UTF-8", "COMPANY_TOKEN": TOKEN, **self.extra}

    def prepare(self) -> None:
        for folder in (self.home, self.user_home):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.home / "config.toml").exists():
            (self.home / "config.toml").write_text(self.config, encoding="utf-8")

    def run(
        self, *argv: str, stdin: bytes = b"", timeout_s: float = 60.0, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        done = subprocess.run(
            [*program(), *argv],
            input=stdin,
            capture_output=True,
            env=self.environ,
            cwd=cwd or self.user_home,
            timeout=timeout_s,
            check=False,
        )
        out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def spawn(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*program(), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
            cwd=self.user_home,
            text=True,
            encoding="utf-8",
        )

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        self.prepare()
        self.daemon = self.spawn("--daemon")
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if self.daemon.poll() is not None:
                raise AssertionError(f"the daemon ended: {self.daemon.communicate()}")
            if self.run("status", "--json").returncode in (0, 1):
                return
        raise AssertionError("the daemon does not answer")

    def stop(self) -> int:
        """SIGTERM, then its exit code."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.communicate(timeout=WAIT_S)
        code, self.daemon = self.daemon.returncode, None
        return code

    def kill(self) -> None:
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.communicate(timeout=WAIT_S)
        self.daemon = None

    def status(self) -> dict[str, object]:
        value: dict[str, object] = json.loads(self.run("status", "--json").stdout)
        return value

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, dict[str, object]]:
        """GET from the daemon's HTTP server: status and JSON body."""
        request = urllib.request.Request(f"http://{self.status()['http']}{path}", headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def log(self) -> str:
        return (self.home / "logs" / "fermix.log").read_text(encoding="utf-8")


@contextmanager
def running(root: Path, config: str, **extra: str) -> Generator[Product]:
    """A product with a running daemon; whatever happens, none is left behind."""
    product = Product(root, config, extra)
    try:
        product.start()
        yield product
    finally:
        if product.daemon is not None:
            product.daemon.kill()
            product.daemon.communicate(timeout=WAIT_S)


@contextmanager
def scripted(tmp_path: Path, answers: list[dict[str, object]], *, repeat: bool = True) -> Generator[str]:
    """The scripted model server in a process of its own; yields its base URL."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"answers": answers, "repeat": repeat}), encoding="utf-8")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.provider", "--port", "0", "--script", str(script)],
        stdout=subprocess.PIPE,
        cwd=REPO,
        env={name: value for name, value in os.environ.items() if name != "FERMIX_HOME"},
        text=True,
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.communicate(timeout=WAIT_S)


def compatible(base_url: str) -> str:
    """The config of an install whose model is a server at this address."""
    return (
        "[fermix_web]\nport = 0\n\n"
        "[fermix_core.providers.openai_compatible]\n"
        f'base_url = "{base_url}"\ndefault_model = "scripted"\nprimary = true\napi_key = "{KEY}"\n'
    )
