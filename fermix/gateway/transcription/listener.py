"""The code of the listening child: faster-whisper and FFmpeg's decoders in their own process, for `local.py`.

Run by the hidden verb `fermix _listen`, never in the daemon. It prints one line of JSON once the model is loaded, then
reads recordings from its standard input, each as eight bytes of length and the bytes, and answers each with one line:
`{"text": …}` or `{"problem": …}`. What must stay true: a recording is held in memory only; whatever decodes it can open
no file and no connection, take no more memory than was set aside, and outlive neither its time nor the daemon.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from fermix.native.sweep import die_with_parent

HEADER = struct.Struct("!Q")
RATE_HZ = 16_000
SAMPLE_BYTES = 2
MAX_AUDIO_S = 1_800
PIECE_S = 28  # what is listened to at once: the model hears 30 s, and cuts longer sound in the middle of a sentence
QUIET_S = 15  # a piece is cut at the quietest moment of its last seconds
STEP = RATE_HZ // 10
SPARE_BYTES = 1 << 30  # beyond what the loaded model has: a piece takes 150 MB, half an hour of sound 60
SILENCE = struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", 3_236, b"WAVEfmt ", 16, 1, 1, RATE_HZ, 2 * RATE_HZ, 2, 16, b"data",
                      3_200) + bytes(3_200)  # fmt: skip
"""A tenth of a second of nothing, as a WAV file."""


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """What the daemon decides. `engine` is the folder of an unpacked engine, None means an installed one."""

    model: Path
    engine: Path | None
    threads: int
    parent_pid: int


class Unreadable(Exception):
    """The recording cannot be listened to; the text says why."""


class _Samples(Protocol):
    """The part of numpy's arrays that is used here; the engine brings numpy, and Fermix has none."""

    @property
    def size(self) -> int: ...
    def __getitem__(self, key: slice) -> _Samples: ...
    def __truediv__(self, divisor: float) -> _Samples: ...
    def astype(self, kind: str) -> _Samples: ...
    def reshape(self, rows: int, columns: int) -> _Samples: ...
    def max(self, axis: int) -> _Samples: ...
    def argmin(self) -> int: ...
    def tobytes(self) -> bytes: ...


class _Numpy(Protocol):
    def frombuffer(self, data: bytearray, kind: str) -> _Samples: ...
    def abs(self, samples: _Samples) -> _Samples: ...


class _Frame(Protocol):
    def to_ndarray(self) -> _Samples: ...


class _Resampler(Protocol):
    def resample(self, frame: _Frame | None) -> Sequence[_Frame]: ...


class _Streams(Protocol):
    audio: Sequence[object]


class _Container(Protocol):
    streams: _Streams

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def decode(self, *, audio: int) -> Iterator[_Frame]: ...


class _Av(Protocol):
    FFmpegError: type[Exception]

    def open(self, file: BinaryIO, mode: str, *, metadata_errors: str) -> _Container: ...
    def AudioResampler(self, kind: str, layout: str, rate: int) -> _Resampler: ...  # noqa: N802 - its name over there


class _Segment(Protocol):
    text: str


class _Model(Protocol):
    def transcribe(
        self,
        audio: _Samples,
        *,
        language: str,
        beam_size: int,
        temperature: float,
        vad_filter: bool,
        condition_on_previous_text: bool,
    ) -> tuple[Iterable[_Segment], object]: ...


class _Engine(Protocol):
    def WhisperModel(  # noqa: N802
        self, path: str, *, device: str, compute_type: str, cpu_threads: int, local_files_only: bool
    ) -> _Model: ...


def serve(options: ListenerOptions) -> int:
    """Load, say so, listen until standard input ends; give the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is meant for the daemon, which ends us
    _end_with(options.parent_pid)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is for the log, not for the daemon
    if options.engine is not None:
        sys.path.insert(0, str(options.engine))
    ears = Ears.load(options.model, options.threads)
    for sound in (SILENCE, b""):
        _answer(ears, sound)  # what is loaded late is loaded now
    confine(SPARE_BYTES)
    _say(answers, {"ready": True})
    while (audio := read_recording(sys.stdin.buffer)) is not None:
        _say(answers, _answer(ears, audio))
    return 0


def read_recording(source: BinaryIO) -> bytes | None:
    """Return the next recording; None at the end, also when it comes in the middle of one."""
    header = source.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    audio = source.read(length)
    return audio if len(audio) == length else None


def confine(spare_bytes: int) -> None:
    """From here on: so much more memory, no new file or connection, no core dump that would hold what was said."""
    size = Path("/proc/self/statm")
    if size.exists():  # macOS neither tells nor heeds it
        most = int(size.read_text(encoding="ascii").split()[0]) * resource.getpagesize() + spare_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        resource.setrlimit(limit, (0, 0))


class Ears:
    """The loaded model with its decoders."""

    def __init__(self, model: _Model, av: _Av, numpy: _Numpy) -> None:
        self._model = model
        self._av = av
        self._numpy = numpy

    @classmethod
    def load(cls, model: Path, threads: int) -> Ears:
        engine: _Engine = importlib.import_module("faster_whisper")  # pyright: ignore[reportAssignmentType] - untyped
        av: _Av = importlib.import_module("av")  # pyright: ignore[reportAssignmentType] - may be absent
        numpy: _Numpy = importlib.import_module("numpy")  # pyright: ignore[reportAssignmentType] - may be absent
        loaded = engine.WhisperModel(
            str(model), device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
        )
        return cls(loaded, av, numpy)

    def listen(self, audio: bytes) -> str:
        """Return what is said, "" when nothing is. Raises: Unreadable."""
        samples = self._numpy.frombuffer(self._decode(audio), "int16")
        return " ".join(words for piece in self._pieces(samples) if (words := self._hear(piece)))

    def _hear(self, piece: _Samples) -> str:
        segments, _ = self._model.transcribe(
            piece.astype("float32") / 32_768.0,
            language="en",
            beam_size=5,
            temperature=0.0,  # it draws lots for what it hears badly otherwise, and repeats words that nobody said
            vad_filter=True,  # in silence the model hears words that nobody said
            condition_on_previous_text=False,  # or one phrase is repeated to the end
        )
        return " ".join(segment.text.strip() for segment in segments).strip()

    def _decode(self, audio: bytes) -> bytearray:
        """Return the sound as mono samples of 16 bits. Raises: Unreadable."""
        try:
            with self._av.open(io.BytesIO(audio), "r", metadata_errors="ignore") as container:
                return self._samples(container)
        except self._av.FFmpegError as error:
            raise Unreadable(f"it cannot be decoded ({type(error).__name__})") from error

    def _samples(self, container: _Container) -> bytearray:
        if not container.streams.audio:
            raise Unreadable("it holds no sound")
        sound = bytearray()
        resampler = self._av.AudioResampler("s16", "mono", RATE_HZ)
        for frame in self._frames(container):
            for resampled in resampler.resample(frame):
                sound += resampled.to_ndarray().tobytes()
            if len(sound) > MAX_AUDIO_S * RATE_HZ * SAMPLE_BYTES:
                raise Unreadable(f"it is longer than {MAX_AUDIO_S // 60} minutes")
        return sound

    def _frames(self, container: _Container) -> Iterator[_Frame | None]:
        """Give the frames, and None at the end, which draws the last samples out of a resampler."""
        yield from container.decode(audio=0)
        yield None

    def _pieces(self, samples: _Samples) -> Iterator[_Samples]:
        while samples.size > PIECE_S * RATE_HZ:
            end = self._quietest(samples)
            yield samples[:end]
            samples = samples[end:]
        if samples.size:
            yield samples

    def _quietest(self, samples: _Samples) -> int:
        """Return where a piece can end without cutting a word."""
        first = (PIECE_S - QUIET_S) * RATE_HZ
        steps = self._numpy.abs(samples[first : PIECE_S * RATE_HZ].astype("int32"))
        return first + int(steps.reshape(-1, STEP).max(1).argmin()) * STEP + STEP // 2


def _answer(ears: Ears, audio: bytes) -> dict[str, str]:
    try:
        return {"text": ears.listen(audio)}
    except Unreadable as error:
        return {"problem": str(error)}
    except MemoryError:
        return {"problem": "it takes too much memory"}


def _say(answers: io.TextIOWrapper, line: object) -> None:
    answers.write(json.dumps(line) + "\n")
    answers.flush()


def _end_with(parent_pid: int) -> None:
    """Without this, one that is busy would go on after a daemon that was killed."""
    try:
        die_with_parent(parent_pid)
    except OSError as error:
        if error.errno == errno.ESRCH:
            raise SystemExit(0) from error
        if error.errno != errno.ENOSYS:
            raise
