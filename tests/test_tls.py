"""Whom our clients trust: against a real server whose certificate a test authority has signed."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from fermix.config.secrets import Secret
from fermix.errors import NeedsOperator
from fermix.fetch import Artifact, FetchFailed, HttpSource, fetch
from fermix.net import Net, NetFailed, Timeouts
from fermix.setup.probe import probe
from fermix.setup.questions import find_spec
from fermix.tls import client_context, make_context
from tests.fakes.authority import NAME, Authority
from tests.fakes.file_server import FileServer

CONTENT = b"a file"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Generator[FileServer]:
    with FileServer(CONTENT).serve(authority.server_side) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh() -> Generator[None]:  # pyright: ignore[reportUnusedFunction] - pytest
    client_context.cache_clear()
    yield
    client_context.cache_clear()


@pytest.fixture
def trusting(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user names nobody, so the server's authority is a stranger."""
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


def trusted(context: ssl.SSLContext) -> list[str]:
    """The names of those that are trusted."""
    return [dict(part[0] for part in authority["subject"])["commonName"] for authority in context.get_ca_certs()]


def test_the_users_file_counts_first_and_alone(authority: Authority, tmp_path: Path) -> None:
    """PKG-05: `SSL_CERT_FILE` of the user is honoured."""
    context = make_context({"SSL_CERT_FILE": str(authority.file)}, [tmp_path / "none"])

    assert trusted(context) == [NAME]


def test_the_users_folder_counts_alone(authority: Authority, tmp_path: Path) -> None:
    """PKG-05: a folder is read when a server's certificate is checked, so nothing is loaded yet."""
    assert make_context({"SSL_CERT_DIR": str(tmp_path)}, [authority.file]).get_ca_certs() == []


def test_the_machines_store_counts_before_ours(authority: Authority, tmp_path: Path) -> None:
    """PKG-05: wherever the machine keeps it, not where the machine that built us does."""
    (tmp_path / "empty.pem").touch()

    context = make_context({"SSL_CERT_FILE": ""}, [tmp_path / "none", tmp_path / "empty.pem", authority.file])

    assert trusted(context) == [NAME]


def test_a_machine_without_a_store_uses_ours(tmp_path: Path) -> None:
    """PKG-05: the bundled set."""
    assert len(make_context({}, [tmp_path / "none"]).get_ca_certs()) > 50


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_what_the_user_named_and_cannot_be_read_is_said(tmp_path: Path, content: bytes | None) -> None:
    """No fallback: whoever names a file means it."""
    file = tmp_path / "own.pem"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(NeedsOperator, match=r"own\.pem: let SSL_CERT_FILE name"):
        make_context({"SSL_CERT_FILE": str(file)})


async def call(net: Net, url: str) -> int:
    async with asyncio.timeout(5), net.post_stream(url, headers={}, body=b"", timeouts=Timeouts()) as response:
        return response.status


@pytest.mark.usefixtures("trusting")
async def test_the_daemons_client_trusts_the_users_authority(server: FileServer) -> None:
    """PKG-05: the handshake, for real; the server knows no POST."""
    async with Net.open(loopback_only=True) as net:
        assert await call(net, server.base_url) == 501


@pytest.mark.usefixtures("strange")
async def test_the_daemons_client_refuses_a_stranger(server: FileServer) -> None:
    async with Net.open(loopback_only=True) as net:
        with pytest.raises(NetFailed) as caught:
            await call(net, server.base_url)

    assert caught.value.fault == "tls"


async def test_the_daemons_client_says_what_is_wrong_with_the_users_file(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))

    async with Net.open(loopback_only=True) as net:
        with pytest.raises(NetFailed, match=r"none\.pem: let SSL_CERT_FILE name"):
            await call(net, server.base_url)


@pytest.mark.usefixtures("trusting")
async def test_the_authorities_are_read_once_and_beside_the_loop(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five first calls at once, and none waits for a file on the loop's thread."""
    threads: list[int] = []

    def noted() -> object:
        threads.append(threading.get_ident())
        return client_context()

    monkeypatch.setattr("fermix.net.client_context", noted)
    async with Net.open(loopback_only=True) as net, asyncio.TaskGroup() as group:
        calls = [group.create_task(call(net, server.base_url)) for _ in range(5)]

    assert [task.result() for task in calls] == [501] * 5
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


@pytest.mark.usefixtures("trusting")
def test_a_download_trusts_the_users_authority(server: FileServer, tmp_path: Path) -> None:
    path = fetch(artifact(server), tmp_path, [HttpSource(server.base_url)], lambda progress: None)

    assert path.read_bytes() == CONTENT


@pytest.mark.usefixtures("strange")
def test_a_download_refuses_a_stranger(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="certificate verify failed"):
        fetch(artifact(server), tmp_path, [HttpSource(server.base_url)], lambda progress: None)


def artifact(server: FileServer) -> Artifact:
    return Artifact("tiny", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), server.base_url)


@pytest.mark.usefixtures("trusting")
def test_the_probe_trusts_the_users_authority(server: FileServer) -> None:
    assert tried(server) == "OpenAI answered something that is no model API"


@pytest.mark.usefixtures("strange")
def test_the_probe_refuses_a_stranger(server: FileServer) -> None:
    assert "cannot be reached at 127.0.0.1" in tried(server)


def test_the_probe_says_what_is_wrong_with_the_users_file(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))

    assert "let SSL_CERT_FILE name" in tried(server)


def tried(server: FileServer) -> str:
    return probe(find_spec("openai"), server.base_url, Secret("sk-good-0123456789abcdef")).detail
