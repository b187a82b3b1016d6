"""A secret never shows its text, and `redact` finds it in every spelling."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import subprocess
import sys
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.config.secrets import PASSING_VALUES, Secret, _KnownValues, redact, register_secret

CANARY = "canary/7+f&9=Zq-unlikely"


def test_text_form_of_a_secret_is_masked() -> None:
    secret = Secret(CANARY)

    shown = [str(secret), repr(secret), f"{secret}", f"{secret:>40}", "%s" % secret, str([secret]), str({"k": secret})]  # noqa: UP031

    assert not [text for text in shown if CANARY in text]
    assert secret.reveal() == CANARY


def test_secret_compares_by_value_and_refuses_to_be_copied_out() -> None:
    secret = Secret(CANARY)

    assert secret == Secret(CANARY)
    assert secret != Secret("another-value-1")
    assert secret != CANARY
    assert len({secret, Secret(CANARY)}) == 1
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        copy.deepcopy(secret)


@pytest.mark.parametrize("value", ["", "  ", "a b", "line\nbreak", "tab\tbed", "clé", "nul\0"])
def test_value_unfit_for_a_header_is_refused_without_showing_it(value: str) -> None:
    """SEC-06, SEC-10"""
    with pytest.raises(ValueError, match="must") as caught:
        Secret(value)
    assert not value.strip() or value not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        f"https://api.example/bot{CANARY}/getMe failed",
        quote(CANARY, safe=""),
        quote(CANARY),
        json.dumps({"key": CANARY}),
        base64.b64encode(CANARY.encode()).decode(),
        base64.b64encode(f"user:{CANARY}".encode()).decode(),
        base64.b64encode(f"x:{CANARY}:y".encode()).decode(),
        base64.urlsafe_b64encode(f"ab:{CANARY}".encode()).decode(),
    ],
)
def test_known_value_is_found_in_every_spelling(text: str) -> None:
    """SEC-01, SEC-02"""
    register_secret(CANARY)

    clean = redact(f"before {text} after")

    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert text not in clean
    assert CANARY[4:-4] not in clean


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=80), st.text())
def test_no_known_value_survives(value: str, around: str) -> None:
    known = _KnownValues()
    known.add(value)

    assert value not in known.replace(around + value + around)


def test_short_value_is_left_alone() -> None:
    """A secret of a few letters would tear holes into ordinary words."""
    register_secret("short")

    assert redact("a short text") == "a short text"


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-" + "a1B2" * 10,
        "sk-" + "a1B2" * 12,
        "sk-ant-api03-" + "a1B2" * 10,
        "sk-or-v1-" + "0a1b" * 16,
        "xai-" + "aB3d" * 20,
        "ghp_" + "aB3d" * 9,
        "github_pat_" + "aB3d_" * 12,
        "xoxb-" + "123456789012-abcDEF",
        "xoxe.xoxp-1-" + "aB3d" * 20,
        "xapp-1-A0-" + "1a2b" * 10,
        "AKIA" + "ABCDEFGH12345678",
        "AIza" + "aB3-x" * 7,
        "ya29." + "aB3-x" * 8,
        "1//0" + "aB3-x" * 8,
        "123456789:" + "aB3-x" * 7,
        "M" + "aB3xaB3xaB3xaB3xaB3xaB3" + ".GabcdE." + "aB3xY" * 6,
        "EAA" + "aB3xZ" * 20,
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIEow cut off",
    ],
)
def test_key_of_each_vendor_is_found_by_its_shape(key: str) -> None:
    """SEC-02"""
    clean = redact(f"error: {key}")

    assert clean.startswith("error: [redacted")
    assert key[-6:] not in clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abcdefghij0123456789xyz", "Authorization: Bearer [redacted]"),
        ("https://user:pass@host.example/x", "https://[redacted]@host.example/x"),
        ("https://user:pass@[::1]:80/x", "https://[redacted]@[::1]:80/x"),
        ('{"refresh_token": "rt-0123456789abc"}', '{"refresh_token": "[redacted]"}'),
        ("GET /v1?api_key=abcdef0123456789&x=1", "GET /v1?api_key=[redacted]&x=1"),
        ("OPENAI_API_KEY=abcdef0123456789", "OPENAI_API_KEY=[redacted]"),
        ("/bot123456789:" + "aB3-x" * 7 + "/getMe", "/bot[redacted Telegram token]/getMe"),
    ],
)
def test_named_values_and_addresses_lose_only_the_secret(text: str, clean: str) -> None:
    """SEC-02, SEC-03"""
    assert redact(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "Secretary of the board",
        "the secret garden",
        "a task-force of twenty-five people",
        "risk-averse-investors-and-others",
        "disk-usage-report-2026-01-01-final",
        "sk-learn and ask-me-anything-sessions",
        "password: required",
        "access_token is missing",
        "max_tokens: 4096, tokens=123456789012",
        "Bearer of bad news",
        "Basic understanding of things",
        "meeting at 12:30:45, build 1234567890",
        "https://host.example:8080/path@2x.png",
        "sha256 1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "550e8400-e29b-41d4-a716-446655440000",
        "EAAsy does it",
    ],
)
def test_innocent_words_stay_readable(text: str) -> None:
    """CTX-11"""
    assert redact(text) == text


def test_reading_this_module_loads_no_library() -> None:
    """The quick verbs import it; pydantic alone would cost them more than their work."""
    program = (
        "import sys, fermix.config.secrets; print(*{'pydantic', 'tomlkit', 'keyring', 'asyncio'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=5, check=True)

    assert done.stdout.strip() == ""


def test_of_a_value_that_changes_the_last_ones_are_known() -> None:
    """R-48: a token that is made anew each time is not kept for ever, nor forgotten while a command may have it."""
    known = _KnownValues()
    known.add("canary-lasting-1")
    for number in range(PASSING_VALUES + 1):
        known.add_passing("TOKEN", f"canary-passing-{number:04}")
    known.add_passing("OTHER", "canary-other-1")

    text = "canary-passing-0000 canary-passing-0001 canary-passing-0064 canary-other-1 canary-lasting-1"
    assert known.replace(text) == "canary-passing-0000 [redacted] [redacted] [redacted] [redacted]"


@pytest.mark.parametrize("kept", range(1, len(CANARY)))
def test_what_a_cut_left_of_a_value_is_hidden(kept: int) -> None:
    known = _KnownValues()
    known.add(CANARY)
    shown = known.replace_end(f"x{CANARY[:kept]}")

    assert shown == (f"x{CANARY[:kept]}" if kept < 4 else "x[redacted]")


@pytest.mark.parametrize("form", [quote(CANARY, safe=""), base64.b64encode(CANARY.encode()).decode()])
def test_what_a_cut_left_of_a_spelling_is_hidden(form: str) -> None:
    known = _KnownValues()
    known.add(CANARY)
    ends = {known.replace_end(known.replace(f"x {form[:kept]}")) for kept in range(4, len(form) + 1)}

    assert {end.removesuffix("=").removesuffix("=") for end in ends} <= {"x [redacted]", f"x {form[:1]}[redacted]"}


def test_a_cut_through_a_character_of_a_value_hides_it_too() -> None:
    known = _KnownValues()
    known.add("canary-漢字漢字")
    cut = "x canary-漢字".encode()[:-1].decode("utf-8", "replace")

    assert known.replace_end(cut) == "x [redacted]"
    assert known.replace_end("nothing of it\ufffd") == "nothing of it\ufffd"


@given(st.text(alphabet="ab", max_size=40), st.integers(0, 11))
def test_an_end_is_hidden_if_and_only_if_a_value_begins_so(before: str, kept: int) -> None:
    value = "abbabaabbaab"
    known = _KnownValues()
    known.add(value)
    text = before + value[:kept]
    longest = max((size for size in range(4, len(value)) if text.endswith(value[:size])), default=0)

    assert known.replace_end(text) == (text[: len(text) - longest] + "[redacted]" if longest else text)
