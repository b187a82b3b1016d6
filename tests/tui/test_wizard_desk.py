"""The real wizard behind the setup screen, against a provider on loopback."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator, Unusable
from fermix.home import Home
from fermix.tui.desk import ProviderChoice
from fermix.tui.wizard_desk import WizardDesk
from fermix.workers import Workers


@contextmanager
def provider(status: int) -> Generator[str]:
    """A model API that lists one model, or refuses."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"data": [{"id": "tiny-model"}]}'
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join(5)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "fermix")


@pytest.fixture
def desk(home: Home) -> Generator[WizardDesk]:
    workers = Workers(max_threads=1)
    yield WizardDesk(home, {}, workers)
    workers.close()


async def test_providers_with_a_key_come_before_servers_of_ones_own(desk: WizardDesk):
    choices = await desk.choices()

    assert choices[0] == ProviderChoice("openai", "OpenAI", "required", "https://api.openai.com/v1")
    assert [choice.key for choice in choices if choice.id in ("ollama", "openai_compatible")] == ["none", "optional"]


async def test_key_that_works_is_kept_in_the_private_file(desk: WizardDesk, home: Home):
    with provider(200) as base_url:
        said = await desk.save("openai_compatible", key="sk-works", base_url=base_url)

    assert said == "OpenAI-compatible server answers with tiny-model."
    assert "sk-works" in home.auth.read_text(encoding="utf-8")
    assert "sk-works" not in home.config.read_text(encoding="utf-8")
    assert home.auth.stat().st_mode & 0o777 == 0o600


async def test_local_model_takes_the_place_of_a_provider(desk: WizardDesk, home: Home):
    with provider(200) as base_url:
        await desk.save("openai_compatible", key="sk-works", base_url=base_url)

    said = await desk.save("local", key="", base_url="")

    assert said.startswith(
        "The local model answers as soon as it is fetched. OpenAI-compatible server stays configured and stands in"
    )
    assert "[fermix_core.local_model]\nprimary = true" in home.config.read_text(encoding="utf-8")


async def test_refused_key_is_not_kept(desk: WizardDesk, home: Home):
    with provider(401) as base_url, pytest.raises(NeedsOperator, match="refused the key"):
        await desk.save("openai", key="sk-wrong", base_url=base_url)

    assert not home.config.exists()


async def test_server_that_is_away_says_what_to_do(desk: WizardDesk):
    with provider(200) as base_url:
        pass
    with pytest.raises(NeedsOperator, match=r"cannot be reached.*start the server"):
        await desk.save("ollama", key="", base_url=base_url)


async def test_what_cannot_be_a_key_is_a_sentence(desk: WizardDesk):
    with pytest.raises(Unusable):
        await desk.save("openai", key="two\nlines", base_url="")


async def test_address_that_is_none_is_named(desk: WizardDesk):
    with pytest.raises(Unusable, match="The address must be an http:// or https:// address"):
        await desk.save("ollama", key="", base_url="my-server")


async def test_local_model_can_be_chosen_here_too(desk: WizardDesk):
    """The screen fetches it at once, so it does not tell how to."""
    assert await desk.save("local", key="", base_url="") == "The local model answers as soon as it is fetched."
