"""What is missing is said with what to do; only a provider can gate."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fermix.agent.providers.local_files import LocalFiles
from fermix.config.load import build
from fermix.config.model import Config
from fermix.config.secret_store import FileStore
from fermix.config.secrets import Secret
from fermix.home import Home
from fermix.setup.readiness import Readiness, check_readiness
from fermix.setup.sections import SECRET_NAMES, SECTIONS

NAMED = '[fermix_core.personalization]\nuser_name = "Ada"\n'
KEY = Secret("sk-canary-0123456789")


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "auth.json")


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return dataclasses.replace(LocalFiles.of(tmp_path), unsupported="")


def configured(text: str, **environ: str) -> Config:
    return build(text, Home(Path("/h")), environ, SECTIONS, SECRET_NAMES)


def keys(readiness: Readiness) -> list[tuple[str, bool]]:
    return [(failure.detail_key, failure.gating) for failure in readiness.found]


def with_model(files: LocalFiles) -> LocalFiles:
    """The same install with everything fetched."""
    fetched = dataclasses.replace(files, engine=None)
    fetched.model_path.touch()
    return fetched


def test_fresh_install_says_that_the_local_model_answers_once_it_is_fetched(
    store: FileStore, files: LocalFiles
) -> None:
    readiness = check_readiness(configured(NAMED), store, dataclasses.replace(files, engine=None))

    assert (readiness.ready, readiness.model) == (False, None)
    assert keys(readiness) == [("local_model_absent", True)]
    assert readiness.failures[0].action == (
        "the local model answers once it is fetched (491 MB): "
        "the first message fetches it, or run `fermix model fetch`, or `fermix setup`"
    )


def test_local_model_that_is_here_answers(store: FileStore, files: LocalFiles) -> None:
    readiness = check_readiness(configured(NAMED), store, with_model(files))

    assert (readiness.ready, readiness.model, readiness.found) == (True, "local/qwen2.5-coder-0.5b", ())


def test_local_model_that_is_primary_answers_before_a_usable_provider(store: FileStore, files: LocalFiles) -> None:
    text = NAMED + "[fermix_core.local_model]\nprimary = true\n[fermix_core.providers.xai]\n"
    config = configured(text, OPENAI_API_KEY=KEY.reveal())

    here = check_readiness(config, store, with_model(files))

    assert (here.ready, here.model) == (True, "local/qwen2.5-coder-0.5b")
    assert [failure.action for failure in here.advice] == ["xAI: its key is missing; the local model answers instead"]
    here_no_longer = with_model(files)
    here_no_longer.model_path.unlink()
    absent = check_readiness(config, store, here_no_longer)
    assert (absent.ready, absent.failures[0].detail_key) == (False, "local_model_absent")


def test_nothing_configured_and_no_local_model_is_setup_required(store: FileStore, files: LocalFiles) -> None:
    off = configured(NAMED + "[fermix_core.local_model]\nenabled = false\n")
    elsewhere = dataclasses.replace(files, unsupported="the local model does not run on vax")

    assert keys(check_readiness(off, store, files)) == [("provider_missing", True)]
    assert keys(check_readiness(configured(NAMED), store, elsewhere)) == [("local_model_failed", True)]
    assert not check_readiness(off, store, files).ready


def test_primary_without_a_key_gates(store: FileStore, files: LocalFiles) -> None:
    readiness = check_readiness(configured(NAMED + "[fermix_core.providers.openai]\nprimary = true\n"), store, files)

    assert (readiness.model, keys(readiness)) == (None, [("provider_unusable", True)])


def test_primary_without_a_key_says_who_answers_instead(store: FileStore, files: LocalFiles) -> None:
    store.put("anthropic", KEY)

    readiness = check_readiness(configured(NAMED + "[fermix_core.providers.openai]\nprimary = true\n"), store, files)

    assert readiness.ready
    assert readiness.model == "anthropic/claude-sonnet-4-6"
    assert readiness.failures == ()
    assert readiness.advice[0].action.endswith("; Anthropic answers instead")


def test_key_of_the_environment_is_enough(store: FileStore, files: LocalFiles) -> None:
    readiness = check_readiness(configured(NAMED, OPENAI_API_KEY=KEY.reveal()), store, files)

    assert (readiness.ready, readiness.found) == (True, ())


def test_two_primaries_are_named(store: FileStore, files: LocalFiles) -> None:
    text = "[fermix_core.providers.openai]\nprimary = true\n[fermix_core.providers.xai]\nprimary = true\n"

    readiness = check_readiness(configured(text), store, files)

    assert keys(readiness) == [("providers_unreadable", True)]
    assert "fermix_core.providers.xai" in readiness.failures[0].action


def test_unnamed_owner_is_advice_only(store: FileStore, files: LocalFiles) -> None:
    readiness = check_readiness(configured("", OPENAI_API_KEY=KEY.reveal()), store, files)

    assert readiness.ready
    assert keys(readiness) == [("user_name_missing", False)]
