"""Stands in for PyAV: a recording is its own sound, and "hang" and "crash" in it happen while it is decoded."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any, BinaryIO


class FFmpegError(Exception):
    pass


class Frame:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def to_ndarray(self) -> Frame:
        return self

    def tobytes(self) -> bytes:
        return self._data


class AudioResampler:
    def __init__(self, *_: object) -> None:
        pass

    def resample(self, frame: Frame | None) -> list[Frame]:
        return [] if frame is None else [frame]


class Container:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.streams: Any = self
        self.audio = [] if data.startswith(b"video") else [1]

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def decode(self, *, audio: int) -> Iterator[Frame]:
        if self._data.startswith(b"crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._data.startswith(b"hang"):
            signal.pause()
        if self._data.startswith(b"memory"):
            bytearray(8 << 30)
        if self._data.startswith(b"endless"):
            while True:
                yield Frame(bytes(1 << 20))
        yield Frame(self._data)


def open(file: BinaryIO, mode: str, *, metadata_errors: str) -> Container:
    data = file.read()
    if data.startswith(b"noise"):
        raise FFmpegError("Invalid data found when processing input")
    return Container(data)
