"""What setup asks, and how an answer is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.agent.providers.catalog import PROVIDERS
from fermix.agent.providers.local_files import LocalFiles
from fermix.setup.questions import (
    Kept,
    Question,
    ask_connection,
    ask_model,
    ask_provider,
    find_spec,
    read_answer,
)

NOTHING = Kept()


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles.of(tmp_path)


def test_local_model_keys_and_ollama_are_offered_in_that_order_with_the_size(files: LocalFiles) -> None:
    question = ask_provider(files, None)

    values = [option.value for option in question.options]
    keyed = [spec.id for spec in PROVIDERS if spec.needs_key]
    assert values == ["local", *keyed, "ollama", "openai_compatible"]
    assert question.default == "local"
    megabytes = sum(artifact.size_bytes for artifact in files.missing()) / 1e6
    assert f"downloads {megabytes:.0f} MB once" in question.options[0].note


def test_local_model_that_is_here_is_not_downloaded_again(files: LocalFiles) -> None:
    files.model_path.write_bytes(b"weights")
    if files.engine_folder is not None:
        files.engine_folder.mkdir()

    assert ask_provider(files, "openai").options[0].note == "free, private, small; is here"
    assert ask_provider(files, "openai").default == "openai"


@pytest.mark.parametrize(
    ("provider", "kept", "fields"),
    [
        ("openai", NOTHING, [("key", False)]),
        ("openai", Kept(key_from="auth.json"), [("key", True)]),
        ("ollama", NOTHING, [("base_url", False)]),
        ("openai_compatible", NOTHING, [("base_url", False), ("key", True)]),
    ],
)
def test_only_what_a_provider_needs_is_asked(provider: str, kept: Kept, fields: list[tuple[str, bool]]) -> None:
    questions = ask_connection(find_spec(provider), kept)

    assert [(question.field, question.optional) for question in questions] == fields
    assert all(question.secret == (question.field == "key") for question in questions)


def test_key_that_only_the_environment_has_is_named_as_such() -> None:
    (question,) = ask_connection(find_spec("openai"), Kept(key_from="OPENAI_API_KEY"))

    assert question.text == "Key for OpenAI (the one from OPENAI_API_KEY is used when you leave this blank)"
    assert read_answer(question, "") == ""


def test_models_of_the_catalog_come_first_when_the_provider_has_them() -> None:
    spec = find_spec("openai")

    assert ask_model(spec, NOTHING, ()).default == spec.default_model
    assert ask_model(spec, NOTHING, ["zzz", "gpt-5.4-mini"]).default == "gpt-5.4-mini"
    assert ask_model(spec, Kept(model="mine"), ["zzz"]).default == "mine"
    assert [option.value for option in ask_model(find_spec("ollama"), NOTHING, ["tiny:1b"]).options] == ["tiny:1b"]
    assert ask_model(find_spec("openai_compatible"), NOTHING, ()).default is None
    assert len(ask_model(spec, NOTHING, [f"m{number}" for number in range(400)]).options) == 12


@pytest.mark.parametrize(
    ("text", "meant"),
    [("", "local"), ("1", "local"), (" 2 ", "openai"), ("anthropic", "anthropic"), ("8", "openai_compatible")],
)
def test_provider_is_chosen_by_number_or_name(files: LocalFiles, text: str, meant: str) -> None:
    assert read_answer(ask_provider(files, None), text) == meant


@pytest.mark.parametrize(
    ("question", "text", "sentence"),
    [
        (Question("model", "Model"), " ", "please answer"),
        (Question("model", "Model"), "a\x07b", "one line of printable text"),
        (Question("base_url", "Address"), "localhost:11434", "http:// or https:// address"),
        (Question("base_url", "Address"), "https://user:pass@host/v1", "without a query or a password"),
        (Question("key", "Key", secret=True), "two words", "printable ASCII without spaces"),
        (Question("key", "Key", secret=True), "ключ", "printable ASCII without spaces"),
    ],
)
def test_wrong_answer_is_one_sentence(question: Question, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_answer(question, text)


@pytest.mark.parametrize(
    ("text", "sentence"), [("0", "from 1 to 8"), ("9", "from 1 to 8"), ("gpt", "choose one of local,")]
)
def test_answer_outside_the_choices_is_refused(files: LocalFiles, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_answer(ask_provider(files, None), text)


def test_unknown_provider_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="unknown provider 'opnai'; choose one of local, openai, anthropic"):
        find_spec("opnai")
