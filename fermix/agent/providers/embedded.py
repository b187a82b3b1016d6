"""The embedded model in the daemon: a Service that fetches it when told and keeps its engine while it is used.

Providers ask for its `endpoint`; the engine is a child that starts then, is ended after a while without calls, and
is swept with the daemon. Its crash is this service's failure: the supervisor brings it back, the next call starts
the engine again. A fetch is a child too (`fermix model fetch --json`), so that it can be stopped and its memory
never counts for the daemon.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from fermix.agent.providers.engine import KEY_VARIABLE
from fermix.agent.providers.local_files import INSTEAD, MODEL_NAME, LocalFiles
from fermix.agent.providers.machine import check_memory, default_threads
from fermix.agent.providers.provider import Endpoint
from fermix.clock import Clock
from fermix.config.model import LocalModelSettings
from fermix.config.secrets import Secret
from fermix.errors import FermixError, NeedsOperator, ServerUnavailable, Unavailable
from fermix.events import DownloadProgress, DownloadState, Events
from fermix.fetch import Artifact
from fermix.native.child import Child, child_environment
from fermix.native.program import own_variables
from fermix.protocol.methods import LocalModel

CONTEXT_TOKENS = 8_192
NEEDED_BYTES = 720 << 20  # measured: 490 MB of weights and 250 MB of working memory, most of it for the context
FETCH_PATIENCE_S = 800.0  # what a turn waits for the first download; it goes on without the turn
LOAD_S = 120.0  # two seconds from a warm cache, a minute from a slow disk
ENGINE_VARIABLES = ("PATH", "HOME", "LANG", "LC_*", "TMPDIR", "FERMIX_*", "XDG_*")
FETCH_VARIABLES = (
    *ENGINE_VARIABLES,
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PIP_*", "VIRTUAL_ENV"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)

State = Literal["absent", "fetching", "ready", "loaded", "failed"]


class EngineGone(ServerUnavailable):
    """The engine ended by itself."""


class _Attempt:
    """One start of the engine, shared by all who wait for it."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.endpoint: Endpoint | None = None
        self.error: FermixError | None = None

    def settle(self, outcome: Endpoint | FermixError) -> None:
        """Tell those who wait; only the first outcome counts."""
        if self.over.is_set():
            return
        if isinstance(outcome, Endpoint):
            self.endpoint = outcome
        else:
            self.error = outcome
        self.over.set()


class _Whole:
    """One download out of the steps of several files, so that who watches sees one bar and one end."""

    def __init__(self, missing: Sequence[Artifact]) -> None:
        self._total_bytes = sum(artifact.size_bytes for artifact in missing)
        self._done_bytes: dict[str, int] = {}

    def add(self, step: DownloadProgress) -> DownloadProgress:
        """Where the whole stands after this step of one file; that a file is done is not yet the end."""
        self._done_bytes[step.name] = step.done_bytes
        return self._standing("verifying" if step.state == "verifying" else "running")

    def end(self, problem: str) -> DownloadProgress:
        return self._standing("failed" if problem else "done", problem)

    def _standing(self, state: DownloadState, error: str = "") -> DownloadProgress:
        return DownloadProgress(MODEL_NAME, sum(self._done_bytes.values()), self._total_bytes, state, error)


class EmbeddedModel:
    """Owns the engine. `program` is the command that starts Fermix itself, e.g. ("/usr/bin/fermix",)."""

    name = "local model"

    def __init__(
        self,
        settings: LocalModelSettings,
        files: LocalFiles,
        program: Sequence[str],
        environ: Mapping[str, str],
        events: Events,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._files = files
        self._program = tuple(program)
        self._environ = environ
        self._events = events
        self._clock = clock
        self._wanted = asyncio.Event()
        self._fetch_wanted = False
        self._attempt: _Attempt | None = None
        self._fetching = False
        self._fetched = asyncio.Event()
        self._progress: DownloadProgress | None = None
        self._problem = ""
        self._calls = 0
        self._last_use = 0.0

    @property
    def status(self) -> LocalModel:
        """How it stands, as `fermix status` shows it."""
        missing = self._files.missing()
        progress = self._progress
        return LocalModel(
            state=self._state(absent=bool(missing)),
            name=MODEL_NAME,
            total_bytes=progress.total_bytes if progress else sum(artifact.size_bytes for artifact in missing),
            done_bytes=progress.done_bytes if progress else self._files.done_bytes(),
            detail=self._problem or self._files.unsupported,
        )

    def fetch(self) -> None:
        """Begin to fetch what is missing; `status` and DownloadProgress events tell how it goes."""
        if self._files.missing() and not self._fetching:
            self._fetched.clear()
            self._fetch_wanted = True
            self._wanted.set()

    async def endpoint(self) -> Endpoint:
        """Give the engine's address, starting it when it does not run.

        Raises: NeedsOperator when it cannot be fetched or there is no memory, Unavailable when it does not start.
        """
        self._last_use = self._clock.monotonic()
        if self._attempt is None:
            await self._bring_files()
        if self._attempt is None:
            self._attempt = _Attempt()
            self._wanted.set()
        attempt = self._attempt
        try:
            async with asyncio.timeout(LOAD_S):
                await attempt.over.wait()
        except TimeoutError:
            raise Unavailable("the local model did not load in time", user_text=SLOW) from None
        if attempt.endpoint is None:
            assert attempt.error is not None
            raise attempt.error
        return attempt.endpoint

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keep the engine loaded while a call runs, however long it takes."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._last_use = self._clock.monotonic()

    async def run(self, started: Callable[[], None]) -> None:
        """Fetch and serve as wanted. Raises: EngineGone after a crash; the supervisor starts it again."""
        started()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._fetch_wanted:
                self._fetch_wanted = False
                await self._fetch()
            if self._attempt is not None:
                await self._serve(self._attempt)

    async def _serve(self, attempt: _Attempt) -> None:
        """Run the engine until nobody has used it for a while."""
        try:
            check_memory(NEEDED_BYTES)
            key = Secret(secrets.token_urlsafe(32))
            environment = self._engine_environment(key)
            async with Child.open(self._engine_argv(), cwd=self._files.folder, env=environment) as child:
                attempt.settle(Endpoint(await _listening(child), key))
                self._problem = ""
                await self._until_idle(child, attempt)
        except NeedsOperator as error:
            self._problem = str(error)
            attempt.settle(error)
        except (OSError, EngineGone) as error:
            self._problem = f"the engine ended: {error}"
            attempt.settle(Unavailable(self._problem, user_text=BROKEN))
            raise
        finally:
            attempt.settle(Unavailable("the daemon stops", user_text="Fermix is stopping."))
            self._forget(attempt)

    async def _until_idle(self, child: Child, attempt: _Attempt) -> None:
        async with asyncio.TaskGroup() as group:
            gone = group.create_task(child.wait())
            idle = group.create_task(self._idle(attempt))
            await asyncio.wait((gone, idle), return_when=asyncio.FIRST_COMPLETED)
            crashed = gone.done()
            gone.cancel()
            idle.cancel()
        if crashed:
            raise EngineGone(_last_words(child))

    async def _idle(self, attempt: _Attempt) -> None:
        while (left_s := self._idle_left_s()) > 0:
            await self._clock.sleep(left_s)
        self._forget(attempt)  # in one step with the check: a call that comes now starts the next engine

    def _forget(self, attempt: _Attempt) -> None:
        if self._attempt is attempt:
            self._attempt = None

    def _idle_left_s(self) -> float:
        used_at = self._clock.monotonic() if self._calls else self._last_use
        return used_at + self._settings.idle_s - self._clock.monotonic()

    async def _fetch(self) -> None:
        mirror = ("--mirror", self._settings.mirror) if self._settings.mirror else ()
        argv = (*self._program, "model", "fetch", "--json", *mirror)
        env = child_environment(self._environ, FETCH_VARIABLES) | own_variables(self._environ)
        self._fetching = True
        self._problem = ""
        whole = _Whole(self._files.missing())
        try:
            async with Child.open(argv, cwd=self._files.folder, env=env) as child:
                async for line in child.lines():
                    self._take(DownloadProgress(**json.loads(line)), whole)
                if await child.wait() != 0:
                    self._problem = self._problem or f"{_last_words(child)}; {INSTEAD}"
        except OSError as error:
            self._problem = f"cannot start {argv[0]}: {error.strerror}; {INSTEAD}"
        finally:
            self._fetching = False
            self._progress = None
            self._fetched.set()
        self._events.emit(whole.end(self._problem))  # only now: who is told may ask for the status at once

    def _take(self, step: DownloadProgress, whole: _Whole) -> None:
        if step.state == "failed":
            self._problem = step.error
            return
        self._progress = whole.add(step)
        self._events.emit(self._progress)

    def _state(self, *, absent: bool) -> State:
        if self._fetching or self._fetch_wanted:
            return "fetching"
        if self._problem or self._files.unsupported:
            return "failed"
        if self._attempt is not None and self._attempt.endpoint is not None:
            return "loaded"
        return "absent" if absent else "ready"

    async def _bring_files(self) -> None:
        """Wait until the files are here; the first use fetches them.

        Raises: NeedsOperator when they cannot be had, Unavailable when a turn cannot wait any longer.
        """
        if self._files.unsupported:
            raise NeedsOperator(self._files.unsupported, advice=INSTEAD)
        if not self._files.missing():
            return
        self.fetch()
        try:
            async with asyncio.timeout(FETCH_PATIENCE_S):
                await self._fetched.wait()
        except TimeoutError:
            status = self.status
            percent = 100 * status["done_bytes"] // max(status["total_bytes"], 1)
            text = f"The local model is still being fetched ({percent} %). Ask again when it is here."
            raise Unavailable(text, user_text=text) from None
        if self._files.missing():
            raise NeedsOperator("the local model is missing", advice=self._problem)  # which says what to do

    def _engine_argv(self) -> tuple[str, ...]:
        folder = self._files.engine_folder
        return (
            *self._program,
            "_engine",
            *("--model", str(self._files.model_path)),
            *(("--folder", str(folder)) if folder else ()),
            *("--threads", str(self._settings.threads or default_threads())),
            *("--context", str(CONTEXT_TOKENS)),
            *("--parent", str(os.getpid())),
        )

    def _engine_environment(self, key: Secret) -> dict[str, str]:
        # Waiting threads that spin would share two busy cores badly: the engine's own default falls to a tenth there.
        added = {KEY_VARIABLE: key.reveal(), "OMP_WAIT_POLICY": "passive", **own_variables(self._environ)}
        return child_environment(self._environ, ENGINE_VARIABLES) | added


BROKEN = "The local model stopped working; it is started again with your next message. `fermix logs` tells more."
SLOW = "The local model took too long to load. Try again, or run `fermix setup` to use a provider's key or Ollama."


async def _listening(child: Child) -> str:
    try:
        async with asyncio.timeout(LOAD_S):
            async for line in child.lines():
                return f"{json.loads(line)['listening']}/v1"
    except TimeoutError:
        raise EngineGone(f"not ready after {LOAD_S:.0f} s") from None
    raise EngineGone(_last_words(child))


def _last_words(child: Child) -> str:
    return child.last_output().strip().rpartition("\n")[2][:300] or "without a word"
