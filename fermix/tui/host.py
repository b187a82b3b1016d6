"""The running app as widgets may use it: batching, clipboard, size. Never our own app class."""

from __future__ import annotations

from textual.app import App
from textual.dom import DOMNode


def host_of(node: DOMNode) -> App[object]:
    return node.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - Textual leaves App's parameter open
