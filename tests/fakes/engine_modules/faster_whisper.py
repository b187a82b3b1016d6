"""Stands in for faster-whisper: says the bytes of the sound; "file" and "socket" try to get out instead."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

print("a library that prints to standard output")


class WhisperModel:
    def __init__(self, path: str, **_: object) -> None:
        self._path = path

    def transcribe(self, samples: Any, **_: object) -> tuple[Iterator[SimpleNamespace], None]:
        return iter([SimpleNamespace(text=f" {_said(samples.data)} ")]), None


def _said(data: bytes) -> str:
    try:
        if data.startswith(b"file"):
            Path(__file__).open("rb").close()
        if data.startswith(b"socket"):
            socket.socket().close()
    except OSError as error:
        return error.strerror or "failed"
    return data.strip(b"\0").decode("ascii", "replace")
