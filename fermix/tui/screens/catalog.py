"""Every screen, one line each. The chat loads with the app, the others when they are opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.screen import Screen

from fermix.tui.desk import Desk
from fermix.tui.screens.chat import ChatScreen


def _sessions(desk: Desk) -> Screen[str | None]:
    from fermix.tui.screens.sessions import SessionsScreen

    return SessionsScreen(desk)


def _setup(desk: Desk) -> Screen[str | None]:
    from fermix.tui.screens.setup import SetupScreen

    return SetupScreen(desk)


@dataclass(frozen=True, slots=True)
class ScreenSpec:
    """A screen over the chat; its result goes to the app."""

    name: str
    keys: str
    title: str
    make: Callable[[Desk], Screen[str | None]]


SCREENS = (
    ScreenSpec("conversations", "ctrl+r", "Conversations", _sessions),
    ScreenSpec("setup", "ctrl+p", "Providers", _setup),
)


def chat(desk: Desk, home: str) -> ChatScreen:
    """The screen at the bottom of the stack."""
    return ChatScreen(desk, home)
