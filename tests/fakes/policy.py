"""A real sandbox policy over a home of its own, for tests that speak to the gateway."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fermix.agent.sandbox import Policy, Sandbox, SandboxSettings
from fermix.clock import Clock
from fermix.home import Home
from fermix.setup.sections import SECTIONS
from fermix.workers import Workers


@contextmanager
def policy_in(
    folder: Path, clock: Clock, settings: SandboxSettings | None = None, environ: Mapping[str, str] | None = None
) -> Generator[Policy]:
    """The user's home is `folder`/user; what lies beside it is not open."""
    home = Home(folder / "user/.fermix")
    home.prepare()
    workers = Workers()
    sandbox = Sandbox(settings or SandboxSettings(), home, folder, folder / "user", environ or {})
    try:
        yield Policy(sandbox, home, SECTIONS, workers, clock)
    finally:
        workers.close()
