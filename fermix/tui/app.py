"""The terminal UI: a client of the daemon that is ready for keys before the daemon is.

`run_tui` is called by `fermix` without a verb. It refuses in one line where no screen can be drawn, and gives
the terminal back as it was on every way out that a program can catch.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.theme import Theme

from fermix.clock import Clock, SystemClock
from fermix.home import PRIVATE_DIR, Home, write_atomic
from fermix.tui import collector
from fermix.tui.desk import Desk, SetupDesk
from fermix.tui.link import Connect, StartDaemon
from fermix.tui.screens.catalog import SCREENS, chat
from fermix.tui.screens.chat import ChatScreen
from fermix.tui.terminal import GONE, TerminalDriver, watched
from fermix.tui.widgets.transcript import load_reply

MIN_COLUMNS, MIN_LINES = 32, 10
QUIT_AGAIN_S = 2.0
IDLE_LOOK_S = 5.0
NO_SCREEN = 2
THEME = Theme(
    name="fermix",
    primary="#e8955a",
    secondary="#6fb3b8",
    accent="#e8c15a",
    success="#7fb069",
    warning="#e8c15a",
    error="#e06c75",
    foreground="#d8d4cf",
    background="#16181d",
    surface="#1e2128",
    panel="#2c313b",
    variables={"text-muted": "#8f949e", "text-disabled": "#666c77", "text": "#d8d4cf"},
)


class FermixApp(App[int]):
    """Owns the desk and the stack of screens."""

    TITLE = "Fermix"
    CSS_PATH = "screens/chat.tcss"  # the screen at the bottom of the stack cannot bring its own
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "new_conversation", "New conversation", priority=True),
        *(Binding(each.keys, f"show_screen({each.name!r})", each.title, priority=True) for each in SCREENS),
    ]

    def __init__(
        self,
        home: Home,
        *,
        connect: Connect,
        start_daemon: StartDaemon | None,
        setup: SetupDesk | None,
        clock: Clock,
        cwd: Path,
        home_label: str,
    ) -> None:
        super().__init__(driver_class=TerminalDriver)
        self.desk = Desk(connect, start_daemon, setup, clock, cwd)
        self._home = home
        self._chat = chat(self.desk, home_label)
        self._quit_armed = False
        self._asked_for_setup = False

    def get_default_screen(self) -> ChatScreen:
        return self._chat

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        self.desk.changed = self._changed
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """The first frame is out: connect, and load the parser that the first reply needs."""
        self.run_worker(self.desk.run())
        load_reply()
        collector.begin()
        self.set_interval(IDLE_LOOK_S, self._collect)

    def _collect(self) -> None:
        if self._chat.is_quiet:
            collector.collect_when_idle()

    def _changed(self) -> None:
        self._chat.draw_soon()
        if self.desk.setup_required and not self._asked_for_setup:
            self._asked_for_setup = True
            self.run_worker(self.action_show_screen("setup"))

    async def action_show_screen(self, name: str) -> None:
        opened = next(each for each in SCREENS if each.name == name)
        if len(self.screen_stack) == 1:
            await self.push_screen(opened.make(self.desk), self._screen_closed)

    async def action_new_conversation(self) -> None:
        if len(self.screen_stack) == 1:
            await self.desk.open_new()

    def action_help_quit(self) -> None:
        """Ctrl+C: the second press within two seconds quits."""
        if self._quit_armed:
            self.exit(0)
            return
        self._quit_armed = True
        self.set_timer(QUIT_AGAIN_S, self._disarm)
        self.notify("Press Ctrl+C again to leave. The daemon keeps running.", timeout=QUIT_AGAIN_S, markup=False)

    def _disarm(self) -> None:
        self._quit_armed = False

    async def _screen_closed(self, session: str | None) -> None:
        if session is not None:
            await self.desk.open(session)
            self._chat.recall_from(self.desk.conversation)

    def _fatal_error(self) -> None:
        """Keep the traceback in the log folder; the owner reads one sentence."""
        crash = self._home.logs / "tui-crash.log"
        try:
            crash.parent.mkdir(PRIVATE_DIR, parents=True, exist_ok=True)
            write_atomic(crash, traceback.format_exc().encode("utf-8", "replace"))
            where = f"details are in {crash}"
        except OSError as error:
            where = f"its details could not be written: {error.strerror}"
        self.panic(f"The screen failed and closed; {where}. The daemon still runs: type `fermix` to come back.")


def run_tui(
    home: Home, *, connect: Connect, start_daemon: StartDaemon | None = None, setup: SetupDesk | None = None
) -> int:
    """Show the terminal UI until the owner leaves; returns the exit code."""
    if reason := _no_screen(os.environ):
        print(f'{reason}. For one question without a screen: fermix ask "…"', file=sys.stderr)
        return NO_SCREEN
    app = FermixApp(
        home,
        connect=connect,
        start_daemon=start_daemon,
        setup=setup,
        clock=SystemClock(),
        cwd=Path.cwd(),
        home_label=_short(home.root),
    )
    asyncio.run(_run(app))
    return app.return_code or 0


async def _run(app: FermixApp) -> None:
    with _leaving_on_signals(app), _leaving_without_terminal(app):
        await app.run_async()


@contextmanager
def _leaving_without_terminal(app: FermixApp) -> Generator[None]:
    loop = asyncio.get_running_loop()
    streams = {stream.fileno() for stream in (sys.__stdin__, sys.__stderr__) if stream is not None}  # Textual's own
    with watched(tuple(streams), lambda: loop.call_soon_threadsafe(app.exit, GONE, GONE)):
        yield


@contextmanager
def _leaving_on_signals(app: FermixApp) -> Generator[None]:
    """Leave through the app, which restores the terminal, when we are told to end."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    for signum in signals:
        loop.add_signal_handler(signum, lambda code=128 + signum: app.exit(code, return_code=code))
    try:
        yield
    finally:
        for signum in signals:
            loop.remove_signal_handler(signum)


def _no_screen(environ: Mapping[str, str]) -> str:
    """Why no screen can be drawn here, "" when one can."""
    if not all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        return "The terminal UI needs a terminal"
    if environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return "This terminal (TERM=dumb) cannot draw a screen"
    size = shutil.get_terminal_size()
    if size.columns < MIN_COLUMNS or size.lines < MIN_LINES:
        return f"The terminal is too small ({size.columns} x {size.lines}; at least {MIN_COLUMNS} x {MIN_LINES})"
    return ""


def _short(home: Path) -> str:
    own = Path.home()
    return f"~/{home.relative_to(own)}" if home.is_relative_to(own) else str(home)
