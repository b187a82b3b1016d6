"""First run and providers, under real keys."""

from __future__ import annotations

from fermix.errors import ConfigError, ProviderUnavailable
from fermix.tui.screens.setup import SetupScreen
from tests.fakes.daemon import READY, FakeDaemon
from tests.requirements import covers
from tests.tui.conftest import OpenApp, Stage

EMPTY = {**READY, "overall": "setup_required", "model": None, "providers": []}


def is_open(on: Stage) -> bool:
    return isinstance(on.app.screen, SetupScreen)


@covers("tui.setup")
async def test_first_run_offers_three_ways_and_names_the_size(stage: OpenApp):
    """Issue 2: the embedded default is offered beside "paste a key" and "use Ollama", the size shown first."""
    async with stage(FakeDaemon(status=EMPTY)) as on:
        await on.until_seen("The local model")

        assert "downloads 491 MB once" in on.seen
        assert "An API key" in on.seen
        assert "Ollama" in on.seen
        assert on.daemon.sent("model.fetch") == []


async def test_local_model_is_fetched_with_its_progress_and_then_used(stage: OpenApp):
    async with stage(FakeDaemon(status=EMPTY)) as on:
        await on.until_seen("The local model")
        await on.pilot.press("enter")
        await on.daemon.wait_for("model.fetch")
        news = {"name": "qwen", "total_bytes": 491_400_064, "error": ""}
        on.daemon.emit("download", **news, done_bytes=245_700_032, state="running")
        await on.until_seen("246 MB of 491 MB")
        await on.until_seen("50%")
        local = {"name": "qwen", "state": "ready", "total_bytes": 491_400_064, "done_bytes": 491_400_064}
        on.daemon.status |= {"overall": "ready", "model": "local/qwen", "local_model": local}
        on.daemon.emit("download", **news, done_bytes=491_400_064, state="done")
        await on.until(lambda: not is_open(on))
        await on.until_seen("connected · local/qwen")
        await on.until_seen("The local model is ready.")


async def test_model_that_is_here_by_now_closes_the_dialog_at_once(stage: OpenApp):
    """`fermix model fetch` may have brought it meanwhile; no event tells of a download that is not needed."""
    async with stage(FakeDaemon(status=EMPTY)) as on:
        await on.until_seen("The local model")
        local = {"name": "qwen", "state": "ready", "total_bytes": 0, "done_bytes": 0}
        on.daemon.status |= {"overall": "ready", "model": "local/qwen", "local_model": local}
        await on.pilot.press("enter")
        await on.until(lambda: not is_open(on))
        await on.until_seen("connected · local/qwen")

        assert "fetching" not in on.seen


async def test_model_that_is_here_can_be_chosen_although_another_answers(stage: OpenApp):
    """What was done, and what is left to do, is said where it stays."""
    local = {"name": "qwen", "state": "ready", "total_bytes": 0, "done_bytes": 0}
    async with stage(FakeDaemon(status={**READY, "local_model": local})) as on:
        await on.pilot.press("ctrl+p")
        await on.until_seen("already here, needs no key")
        await on.pilot.press("enter")
        await on.until(lambda: not is_open(on))
        await on.until_seen("local is set up.")

        assert on.setup.saved == [("local", "", "")]
        assert on.daemon.sent("model.fetch") == []


async def test_broken_download_says_how_to_go_on(stage: OpenApp):
    async with stage(FakeDaemon(status=EMPTY)) as on:
        await on.until_seen("The local model")
        await on.pilot.press("enter")
        await on.daemon.wait_for("model.fetch")
        on.daemon.emit(
            "download", name="q", done_bytes=9, total_bytes=99, state="failed", error="The network is unreachable."
        )
        await on.until_seen("The network is unreachable. Esc leaves; choose it again")
        await on.pilot.press("escape")
        await on.until(lambda: not is_open(on))


async def test_pasted_key_is_masked_tried_and_stored(stage: OpenApp):
    """Issue 2: the key is masked, probed, never echoed; the daemon reads its configuration again."""
    async with stage(FakeDaemon(status=EMPTY)) as on:
        await on.until_seen("An API key")
        await on.pilot.press("down", "enter")
        await on.until_seen("Whose key is it?")
        await on.pilot.press("down", "enter", *"sk-secret")
        await on.until_seen("•••••••••")
        masked = "sk-secret" not in on.seen
        await on.pilot.press("enter")
        await on.daemon.wait_for("config.reload")
        await on.until(lambda: not is_open(on))

        assert masked
        assert on.setup.saved == [("anthropic", "sk-secret", "https://api.anthropic.com")]


async def test_refused_key_stays_on_the_screen_with_its_reason(stage: OpenApp):
    async with stage(FakeDaemon(status=EMPTY)) as on:
        on.setup.refusal = ProviderUnavailable("401", user_text="OpenAI refuses this key.")
        await on.until_seen("An API key")
        await on.pilot.press("down", "enter", "enter", *"bad", "enter")
        await on.until_seen("OpenAI refuses this key.")

        assert on.daemon.sent("config.reload") == []
        assert is_open(on)


async def test_key_that_was_not_pasted_is_asked_for(stage: OpenApp):
    async with stage(FakeDaemon(status=EMPTY)) as on:
        await on.until_seen("An API key")
        await on.pilot.press("down", "enter", "enter", "enter")
        await on.until_seen("Paste the key first")

        assert on.setup.saved == []


async def test_ollama_needs_no_key(stage: OpenApp):
    async with stage(FakeDaemon(status=EMPTY)) as on:
        await on.until_seen("Ollama")
        await on.pilot.press("down", "down", "enter")
        await on.until_seen("http://127.0.0.1:11434")
        await on.until_seen("The server is asked which models it has")
        await on.pilot.press("enter")
        await on.daemon.wait_for("config.reload")

        assert on.setup.saved == [("ollama", "", "http://127.0.0.1:11434")]


async def test_later_leaves_the_chat_and_is_not_asked_again(stage: OpenApp):
    async with stage(FakeDaemon(status=EMPTY)) as on:
        await on.until(lambda: is_open(on))
        await on.pilot.press("escape")
        await on.until(lambda: not is_open(on))
        on.daemon.emit("service", service="x", state="up", reason="")
        await on.pilot.press(*"hi", "enter")
        await on.daemon.wait_for("message.send")

        assert not is_open(on)


async def test_broken_configuration_is_named_instead_of_an_empty_list(stage: OpenApp):
    async with stage(FakeDaemon(status=EMPTY)) as on:
        on.setup.refused_choices = ConfigError("expected a value", path="config.toml", key="fermix_core")
        await on.until_seen("Ollama")
        await on.pilot.press("down", "down", "enter")
        await on.until_seen("config.toml: fermix_core: expected a value")
