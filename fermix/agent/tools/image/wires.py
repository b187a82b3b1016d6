"""The three companies that make pictures: what each is sent, and where its answer holds the picture or a refusal.

Pure. What must stay true: a key stands in the header of its own company and nowhere else; the picture is asked for in
the answer itself, since an address in it would lead to a place nobody has vetted.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from fermix.agent.model import JsonObject, JsonValue
from fermix.agent.providers.fields import a_list, a_text, an_object
from fermix.agent.tools.image.choice import Backend, BackendName
from fermix.agent.tools.image.pictures import ENDINGS, Picture

RATIOS = ("1:1", "16:9", "9:16", "4:3", "3:4", "3:2", "2:3")
MODERATED = ("moderation", "content_policy", "safety", "content policy")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted. `size` None leaves it to the company; `image` is the picture to change, None for a new one."""

    prompt: str
    model: str
    size: str | None = None
    image: Picture | None = None
    mask: Picture | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One request, made whole."""

    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """What an answer holds: the picture as Base64, or why there is none. Both empty: neither."""

    picture: str = ""
    refused: str = ""
    elsewhere: bool = False
    """Whether it names an address instead."""


class Wire(Protocol):
    """How one company is spoken to. `sizes` are what it takes, `edit_sizes` when a picture is changed."""

    sizes: Sequence[str]
    edit_sizes: Sequence[str]
    masks: bool

    def call(self, backend: Backend, wish: Wish) -> Call: ...

    def found(self, answer: JsonValue) -> Found: ...


class OpenAiWire:
    """POST /images/generations with {"model", "prompt", "n", "size"}, or /images/edits with a form that holds files.

    Answers {"data": [{"b64_json": "iVBOR…"}]}; its own image models never send an address.
    """

    sizes: Sequence[str] = ("1024x1024", "1536x1024", "1024x1536", "auto")
    edit_sizes: Sequence[str] = sizes
    masks = True

    def call(self, backend: Backend, wish: Wish) -> Call:
        fields = {"model": wish.model, "prompt": wish.prompt, "n": 1, **({"size": wish.size} if wish.size else {})}
        if wish.image is None:
            return _json_call(f"{backend.base_url}/images/generations", _bearer(backend), fields)
        files = {"image": wish.image, **({"mask": wish.mask} if wish.mask else {})}
        kind, body = _form({name: str(value) for name, value in fields.items()}, files)
        return Call(f"{backend.base_url}/images/edits", {**_bearer(backend), "Content-Type": kind}, body)

    def found(self, answer: JsonValue) -> Found:
        return _in_data(answer)


class XaiWire:
    """POST /images/generations or /images/edits, both with JSON: {"model", "prompt", "n", "response_format",
    "aspect_ratio"}, and an edit with {"image": {"url": "data:image/png;base64,iVBOR…"}}. Answers as OpenAI does when it
    is asked for b64_json.
    """

    sizes: Sequence[str] = RATIOS
    edit_sizes: Sequence[str] = ()  # the shape of the picture stays
    masks = False

    def call(self, backend: Backend, wish: Wish) -> Call:
        fields: JsonObject = {"model": wish.model, "prompt": wish.prompt, "n": 1, "response_format": "b64_json"}
        if wish.size:
            fields["aspect_ratio"] = wish.size
        if wish.image is not None:
            fields["image"] = {"url": f"data:{wish.image.mime};base64,{_base64(wish.image)}"}
        last = "generations" if wish.image is None else "edits"
        return _json_call(f"{backend.base_url}/images/{last}", _bearer(backend), fields)

    def found(self, answer: JsonValue) -> Found:
        return _in_data(answer)


class GoogleWire:
    """POST /models/MODEL:generateContent with {"contents": [{"parts": [{"text"}, {"inlineData"}]}]}.

    Answers {"candidates": [{"content": {"parts": [{"text"}, {"inlineData": {"mimeType", "data": "iVBOR…"}}]},
    "finishReason": "STOP"}]}, or {"promptFeedback": {"blockReason": "SAFETY"}} without a candidate.
    """

    sizes: Sequence[str] = RATIOS
    edit_sizes: Sequence[str] = sizes
    masks = False

    def call(self, backend: Backend, wish: Wish) -> Call:
        parts: list[JsonValue] = [{"text": wish.prompt}]
        if wish.image is not None:
            parts.append({"inlineData": {"mimeType": wish.image.mime, "data": _base64(wish.image)}})
        wanted: JsonObject = {"responseModalities": ["TEXT", "IMAGE"]}
        if wish.size:
            wanted["imageConfig"] = {"aspectRatio": wish.size}
        url = f"{backend.base_url}/models/{quote(wish.model, safe='')}:generateContent"
        fields: JsonObject = {"contents": [{"role": "user", "parts": parts}], "generationConfig": wanted}
        return _json_call(url, {"x-goog-api-key": backend.key.reveal()}, fields)

    def found(self, answer: JsonValue) -> Found:
        blocked = a_text(an_object(an_object(answer).get("promptFeedback")).get("blockReason"))
        reason = blocked
        for candidate in map(an_object, a_list(an_object(answer).get("candidates"))):
            for part in map(an_object, a_list(an_object(candidate.get("content")).get("parts"))):
                if data := a_text(an_object(part.get("inlineData")).get("data")):
                    return Found(picture=data)
            ended = a_text(candidate.get("finishReason"))
            reason = reason or (ended if ended not in ("", "STOP", "MAX_TOKENS") else "")
        return Found(refused=reason)


WIRES: Mapping[BackendName, Wire] = {"openai": OpenAiWire(), "xai": XaiWire(), "google": GoogleWire()}


def problem_in(answer: JsonValue) -> tuple[str, bool]:
    """Return what an answer with an error says, and whether it says that the wish breaks the company's own rules.

    {"error": {"message", "code"}}, {"error": "text", "code"} or {"error": {"message", "status"}}.
    """
    whole = an_object(answer)
    error = an_object(whole.get("error"))
    message = a_text(error.get("message")) or a_text(whole.get("error"))
    marks = " ".join((a_text(error.get("code")), a_text(error.get("type")), a_text(whole.get("code")), message)).lower()
    return message, any(mark in marks for mark in MODERATED)


def _in_data(answer: JsonValue) -> Found:
    for item in map(an_object, a_list(an_object(answer).get("data"))):
        if data := a_text(item.get("b64_json")):
            return Found(picture=data)
        if a_text(item.get("url")):
            return Found(elsewhere=True)
    return Found()


def _base64(picture: Picture) -> str:
    return base64.b64encode(picture.data).decode("ascii")


def _bearer(backend: Backend) -> dict[str, str]:
    return {"Authorization": f"Bearer {backend.key.reveal()}"}


def _json_call(url: str, headers: Mapping[str, str], fields: Mapping[str, object]) -> Call:
    return Call(url, {**headers, "Content-Type": "application/json"}, json.dumps(fields).encode("utf-8"))


def _form(fields: Mapping[str, str], files: Mapping[str, Picture]) -> tuple[str, bytes]:
    """Return the content type and the body of a form; a file goes by a name of ours."""
    border = secrets.token_hex(16)
    parts = [_part(border, f'name="{name}"', "", value.encode("utf-8")) for name, value in fields.items()]
    for name, picture in files.items():
        disposition = f'name="{name}"; filename="{name}.{ENDINGS[picture.mime]}"'
        parts.append(_part(border, disposition, f"Content-Type: {picture.mime}\r\n", picture.data))
    return f"multipart/form-data; boundary={border}", b"".join((*parts, f"--{border}--\r\n".encode("ascii")))


def _part(border: str, disposition: str, headers: str, value: bytes) -> bytes:
    head = f"--{border}\r\nContent-Disposition: form-data; {disposition}\r\n{headers}\r\n"
    return head.encode("ascii") + value + b"\r\n"
