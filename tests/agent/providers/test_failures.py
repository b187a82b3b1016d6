"""What servers say when they say no: one classifier for all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fermix.agent.providers.failures import from_response, from_stream
from fermix.agent.providers.provider import SERVER_TEXT_CHARS, ErrorKind

OVERFLOWS = json.loads(Path(__file__).with_name("overflows.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", OVERFLOWS, ids=lambda row: row["server"])
def test_an_overflow_is_known_in_every_wording(row: dict[str, Any]) -> None:
    """CTX-07: the error bodies of many servers, one classifier."""
    failure = from_response(row["status"], {}, json.dumps(row["body"]).encode(), None)

    assert (failure.kind, failure.status) == (ErrorKind.CONTEXT_LENGTH, row["status"])
    assert len(failure.text) > 10


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, '{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}', ErrorKind.QUOTA),
        (400, '{"error":{"message":"Your credit balance is too low to access the API"}}', ErrorKind.QUOTA),
        (429, '{"message":"Requests rate limit exceeded"}', ErrorKind.RATE_LIMIT),
        (404, '{"error":{"message":"model \\"qwen3\\" not found, try pulling it first"}}', ErrorKind.MODEL_NOT_FOUND),
        (
            404,
            '{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}',
            ErrorKind.MODEL_NOT_FOUND,
        ),
        (404, '{"error":{"message":"No endpoints found that support image input"}}', ErrorKind.IMAGE_UNSUPPORTED),
        (404, "404 page not found", ErrorKind.REFUSED_REQUEST),
        (
            422,
            '{"detail":[{"type":"extra_forbidden","loc":["body","foo"],"msg":"Extra inputs"}]}',
            ErrorKind.REFUSED_REQUEST,
        ),
        (400, '{"error":{"message":"API key not valid. Please pass a valid API key."}}', ErrorKind.AUTH),
        (529, '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', ErrorKind.UNAVAILABLE),
        (502, "<html><h1>Bad gateway</h1></html>", ErrorKind.UNAVAILABLE),
        (503, "", ErrorKind.UNAVAILABLE),
        (302, "", ErrorKind.REFUSED_REQUEST),
    ],
)
def test_other_refusals_are_sorted_by_words_and_status(status: int, body: str, kind: ErrorKind) -> None:
    failure = from_response(status, {}, body.encode(), None)

    assert failure.kind is kind
    assert failure.text


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        ({"code": 502, "message": "provider unavailable"}, ErrorKind.UNAVAILABLE, "provider unavailable"),
        ({"code": 429, "message": "slow down"}, ErrorKind.RATE_LIMIT, "slow down"),
        ({"type": "overloaded_error", "message": "Overloaded"}, ErrorKind.UNAVAILABLE, "Overloaded"),
        ({"code": "rate_limit_exceeded", "message": "wait"}, ErrorKind.RATE_LIMIT, "wait"),
        ("it broke", ErrorKind.UNAVAILABLE, "it broke"),
        ({}, ErrorKind.UNAVAILABLE, "the provider reported an error without a word"),
    ],
)
def test_errors_inside_a_stream_are_sorted_too(error: object, kind: ErrorKind, text: str) -> None:
    failure = from_stream(json.loads(json.dumps(error)))

    assert (failure.kind, failure.text) == (kind, text)


def test_a_key_that_a_server_repeats_is_masked() -> None:
    failure = from_response(
        401, {}, b'{"error":{"message":"Incorrect API key provided: sk-canary-77"}}', "sk-canary-77"
    )

    assert failure.text == "Incorrect API key provided: ***"


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", b"[" * 100_000, b'{"error": {"error": {"error": null}}}', b"null", b"[]"]
)
def test_a_body_of_any_shape_is_sorted(body: bytes) -> None:
    assert from_response(400, {}, body, None).kind is ErrorKind.REFUSED_REQUEST


def test_a_long_complaint_is_cut_to_one_line() -> None:
    failure = from_response(400, {}, b"no\n\tsuch  thing " + b"x" * 60_000, None)

    assert failure.text.startswith("no such thing xxx")
    assert len(failure.text) == SERVER_TEXT_CHARS
