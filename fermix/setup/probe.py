"""Ask a provider whether a key is good, and which models it offers. Called by setup before anything is saved.

Blocking, one or two small GET requests, bounded in time and bytes. A key goes into the header its wire format uses
and nowhere else: no redirect is followed, no proxy of the environment is used, no URL or body is logged.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, TypeAlias, cast

import httpx

from fermix import __version__
from fermix.agent.providers.catalog import ProviderSpec
from fermix.agent.providers.models import find_model
from fermix.config.secrets import Secret
from fermix.errors import NeedsOperator
from fermix.tls import client_context

Outcome: TypeAlias = Literal["accepted", "rejected", "inconclusive"]

CONNECT_S = 5.0
READ_S = 10.0
TOTAL_S = 20.0
MAX_ANSWER_BYTES = 4_194_304  # the longest list of models seen was 400 kB
MAX_MODELS = 500
REJECTIONS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
KEY_PATHS = {"openrouter": "/key"}
"""Where a provider tells about a key; the others refuse a bad one at their list of models, which here is public."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What came out. `detail` is a sentence for a person; `models` is empty when the provider does not tell."""

    outcome: Outcome
    detail: str
    latency_s: float
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes


class _TooMuch(Exception):
    """The answer passed a bound."""


def probe(spec: ProviderSpec, base_url: str, key: Secret | None) -> Probe:
    """Try a key at a provider. An answer that says nothing about the key, or none, is "inconclusive"."""
    headers = _headers(spec, base_url, key)
    started_at = time.monotonic()
    try:
        limits = httpx.Timeout(READ_S, connect=CONNECT_S)
        with httpx.Client(timeout=limits, trust_env=False, verify=client_context()) as client:
            answer = _get(client, base_url.rstrip("/") + KEY_PATHS.get(spec.id, "/models"), headers)
    except _TooMuch:
        return Probe("inconclusive", f"{spec.label} answered without end", time.monotonic() - started_at)
    except NeedsOperator as error:
        return Probe("inconclusive", str(error), time.monotonic() - started_at)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Probe("inconclusive", _unreachable(spec, base_url, error), time.monotonic() - started_at)
    return _judge(spec, answer, time.monotonic() - started_at)


def _headers(spec: ProviderSpec, base_url: str, key: Secret | None) -> dict[str, str]:
    wire = spec.choose_wire(base_url, find_model(spec.id, spec.default_model or ""))
    sent = wire.headers(None if key is None else key.reveal())
    return {**sent, "User-Agent": f"fermix/{__version__}", "Accept": "application/json"}


def _get(client: httpx.Client, url: str, headers: dict[str, str]) -> _Answer:
    until = time.monotonic() + TOTAL_S
    with client.stream("GET", url, headers=headers) as response:
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES or time.monotonic() > until:
                raise _TooMuch
        return _Answer(response.status_code, bytes(body))


def _unreachable(spec: ProviderSpec, base_url: str, error: Exception) -> str:
    """Name the kind of failure only: the error's own text may hold the request."""
    host = httpx.URL(base_url).host if not isinstance(error, httpx.InvalidURL) else base_url
    if isinstance(error, httpx.TimeoutException):
        return f"{spec.label} did not answer in time ({host})"
    return f"{spec.label} cannot be reached at {host} ({type(error).__name__})"


def _judge(spec: ProviderSpec, answer: _Answer, latency_s: float) -> Probe:
    blamed = answer.status == HTTPStatus.BAD_REQUEST and b"api key" in answer.body.lower()  # as xAI and Google do
    if blamed or answer.status in REJECTIONS:
        return Probe("rejected", f"{spec.label} refused the key (HTTP {answer.status})", latency_s)
    if answer.status != HTTPStatus.OK:
        return Probe("inconclusive", f"{spec.label} answered HTTP {answer.status}", latency_s)
    listed = _models(answer.body)
    if listed is None:
        return Probe("inconclusive", f"{spec.label} answered something that is no model API", latency_s)
    return Probe("accepted", f"{spec.label} answered in {latency_s * 1000:.0f} ms", latency_s, listed)


def _models(body: bytes) -> tuple[str, ...] | None:
    """Read {"data": [{"id": "gpt-5.5", …}, …]}; OpenRouter's {"data": {"label": …}} lists none. None: neither."""
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "data" not in document:
        return None
    data = cast("dict[str, object]", document)["data"]
    rows = cast("list[object]", data) if isinstance(data, list) else []
    ids = (cast("dict[str, object]", row).get("id") for row in rows if isinstance(row, dict))
    return tuple(name for name in ids if isinstance(name, str) and name.isprintable())[:MAX_MODELS]
