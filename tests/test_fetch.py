"""Pinned downloads against a real server on loopback: whole, broken off, wrong, without room, two at once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from fermix.errors import NeedsOperator
from fermix.events import DownloadProgress
from fermix.fetch import (
    CHUNK_BYTES,
    AlreadyFetching,
    Artifact,
    FetchFailed,
    FileSource,
    HttpSource,
    fetch,
    load_downloads,
    part_path,
)
from tests.fakes.file_server import FileServer
from tests.requirements import covers

CONTENT = os.urandom(5 * CHUNK_BYTES + 123)


@pytest.fixture
def server() -> Generator[FileServer]:
    with FileServer(CONTENT).serve() as running:
        yield running


@pytest.fixture
def artifact(server: FileServer) -> Artifact:
    return Artifact("tiny.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), f"{server.base_url}/tiny.gguf")


class Reports:
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.seen: list[DownloadProgress] = []

    def __call__(self, progress: DownloadProgress) -> None:
        self.seen.append(progress)


def test_whole_file_becomes_active_and_private(artifact: Artifact, tmp_path: Path) -> None:
    """Progress rises to the pinned size, then says verifying and done; the part file is gone."""
    reports = Reports()

    path = fetch(artifact, tmp_path, [HttpSource(artifact.url)], reports)

    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o600
    assert not part_path(artifact, tmp_path).exists()
    assert [progress.done_bytes for progress in reports.seen] == sorted(p.done_bytes for p in reports.seen)
    assert reports.seen[-2:] == [
        DownloadProgress("tiny.gguf", len(CONTENT), len(CONTENT), "verifying"),
        DownloadProgress("tiny.gguf", len(CONTENT), len(CONTENT), "done"),
    ]


def test_active_file_is_not_fetched_again(artifact: Artifact, server: FileServer, tmp_path: Path) -> None:
    """A second fetch asks nobody."""
    fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())
    fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert server.asked == [None]


def test_download_that_breaks_off_twice_is_resumed_in_one_fetch(
    artifact: Artifact, server: FileServer, tmp_path: Path
) -> None:
    """Each further request asks for the missing bytes only."""
    server.breaks = [CHUNK_BYTES, 2 * CHUNK_BYTES]

    path = fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert path.read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={CHUNK_BYTES}-", f"bytes={3 * CHUNK_BYTES}-"]


def test_part_of_an_earlier_fetch_is_taken_up(artifact: Artifact, server: FileServer, tmp_path: Path) -> None:
    """A fetch that failed keeps its bytes; the next one goes on from them."""
    server.breaks = [2 * CHUNK_BYTES, 0]
    with pytest.raises(FetchFailed, match="broke off at byte 2097152"):
        fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    path = fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert path.read_bytes() == CONTENT
    assert server.asked[-1] == f"bytes={2 * CHUNK_BYTES}-"


def test_failure_without_words_is_told_by_its_kind(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """httpx passes on what the system said of a broken connection, which may be nothing."""

    def break_off(*_: object, **__: object) -> None:
        raise httpx.ReadError("")

    monkeypatch.setattr(httpx.Client, "stream", break_off)

    with pytest.raises(FetchFailed, match=r"cannot be reached \(ReadError\)"):
        fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())


def test_server_without_ranges_sends_everything_again(artifact: Artifact, server: FileServer, tmp_path: Path) -> None:
    """A 200 to a Range request starts the file over instead of appending the start to the middle."""
    server.ranges = False
    server.breaks = [CHUNK_BYTES]

    path = fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert path.read_bytes() == CONTENT


def test_wrong_range_is_not_appended(artifact: Artifact, server: FileServer, tmp_path: Path) -> None:
    """A server that answers with another stretch than asked costs a fresh start, not a broken file."""
    server.breaks = [CHUNK_BYTES]
    server.shift = 7
    part_path(artifact, tmp_path).write_bytes(CONTENT[:100])

    path = fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert path.read_bytes() == CONTENT


@covers("ship.fetch.bad-checksum")
def test_wrong_bytes_are_refused_and_nothing_becomes_active(
    artifact: Artifact, server: FileServer, tmp_path: Path
) -> None:
    """Same size, one other byte: refused, the part is removed, no file is active."""
    server.content = b"x" + CONTENT[1:] if CONTENT[:1] != b"x" else b"y" + CONTENT[1:]

    with pytest.raises(FetchFailed, match="checksum"):
        fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert {path.name for path in tmp_path.glob("*tiny*")} == {".tiny.gguf.lock"}


def test_too_many_bytes_are_refused_before_the_disk_fills(
    artifact: Artifact, server: FileServer, tmp_path: Path
) -> None:
    """A server that sends more than the pinned size is cut off at it."""
    server.content = CONTENT + bytes(8 * CHUNK_BYTES)

    with pytest.raises(FetchFailed, match="more bytes than the pinned"):
        fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert not part_path(artifact, tmp_path).exists()


def test_spoiled_part_costs_one_fresh_start(artifact: Artifact, server: FileServer, tmp_path: Path) -> None:
    """What an earlier fetch left may be rotten; the same source then gets a second, clean try."""
    part_path(artifact, tmp_path).write_bytes(bytes(1000))

    path = fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert path.read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-", None]


def test_part_longer_than_the_file_is_forgotten(artifact: Artifact, server: FileServer, tmp_path: Path) -> None:
    """No request with a range past the end is made."""
    part_path(artifact, tmp_path).write_bytes(bytes(len(CONTENT) + 1))

    path = fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert path.read_bytes() == CONTENT
    assert server.asked == [None]


def test_complete_part_needs_no_request(artifact: Artifact, server: FileServer, tmp_path: Path) -> None:
    """Killed between the last byte and the rename: the next fetch only verifies."""
    part_path(artifact, tmp_path).write_bytes(CONTENT)

    path = fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())

    assert path.read_bytes() == CONTENT
    assert server.asked == []


def test_next_source_takes_over_and_every_failure_is_named(
    artifact: Artifact, server: FileServer, tmp_path: Path
) -> None:
    """A dead mirror does not stop the release; when all fail, the sentence says what was wrong with each."""
    path = fetch(artifact, tmp_path, [HttpSource(_closed_port()), HttpSource(artifact.url)], Reports())
    assert path.read_bytes() == CONTENT

    path.unlink()
    server.status = 404
    missing = tmp_path / "nowhere"
    with pytest.raises(FetchFailed) as caught:
        fetch(artifact, tmp_path, [FileSource(missing), HttpSource(artifact.url)], Reports())

    assert f"{missing}: No such file or directory" in str(caught.value)
    assert "127.0.0.1: answered 404" in str(caught.value)


def test_file_brought_by_the_operator_is_verified_too(artifact: Artifact, tmp_path: Path) -> None:
    """A right file becomes active, a truncated one does not."""
    brought = tmp_path / "brought.gguf"
    brought.write_bytes(CONTENT[:-1])
    with pytest.raises(FetchFailed, match="checksum"):
        fetch(artifact, tmp_path, [FileSource(brought)], Reports())

    brought.write_bytes(CONTENT)

    assert fetch(artifact, tmp_path, [FileSource(brought)], Reports()).read_bytes() == CONTENT


def test_second_fetch_of_the_same_file_is_told_so(artifact: Artifact, server: FileServer, tmp_path: Path) -> None:
    """While one fetch runs, another is refused at once and the first ends well."""
    running, go_on = threading.Event(), threading.Event()

    def hold(_: DownloadProgress) -> None:
        running.set()
        assert go_on.wait(5)

    first = threading.Thread(target=fetch, args=(artifact, tmp_path, [HttpSource(artifact.url)], hold))
    first.start()
    assert running.wait(5)
    try:
        with pytest.raises(AlreadyFetching, match="being fetched already"):
            fetch(artifact, tmp_path, [HttpSource(artifact.url)], Reports())
    finally:
        go_on.set()
        first.join(5)

    assert (tmp_path / "tiny.gguf").read_bytes() == CONTENT


def test_disk_without_room_is_refused_before_the_first_byte(
    artifact: Artifact, server: FileServer, small_disk: Path
) -> None:
    """The sentence gives the size and says what to do; the server is never asked."""
    _fill(small_disk, leave_bytes=8 * CHUNK_BYTES)

    with pytest.raises(NeedsOperator, match=r"5 MB.*No space left.*FERMIX_HOME"):
        fetch(artifact, small_disk, [HttpSource(artifact.url)], Reports())

    assert server.asked == []


def test_disk_that_fills_meanwhile_ends_in_the_same_sentence(artifact: Artifact, small_disk: Path) -> None:
    """What has arrived is kept for the resume; nothing is active."""

    def fill(progress: DownloadProgress) -> None:
        if not (small_disk / "filler").exists():
            _fill(small_disk, leave_bytes=CHUNK_BYTES // 2)

    with pytest.raises(NeedsOperator, match="No space left"):
        fetch(artifact, small_disk, [HttpSource(artifact.url)], fill)

    assert not (small_disk / "tiny.gguf").exists()
    assert part_path(artifact, small_disk).stat().st_size > 0


def test_catalog_is_whole() -> None:
    """Every entry has a checksum, and the packaged parts add up to the model."""
    downloads = load_downloads()

    assert all(len(bytes.fromhex(artifact.sha256)) == 32 for artifact in downloads.artifacts.values())
    parts = downloads.packages["model"]
    assert sum(part.size_bytes for part in parts) == downloads.artifacts["model"].size_bytes


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _fill(disk: Path, *, leave_bytes: int) -> None:
    state = os.statvfs(disk)
    with (disk / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - leave_bytes)


def _closed_port() -> str:
    with FileServer(b"").serve() as server:
        return f"{server.base_url}/gone"
