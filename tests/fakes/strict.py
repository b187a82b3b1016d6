"""Refuse what the real servers refuse. Each check returns the sentence of a 4xx, or None when the body is fine."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Literal

Body = Any  # a request body as it arrived: nothing is known of it yet, which is what this file is for
WireName = Literal["chat", "responses", "messages"]

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_IMAGE_CHARS = {"chat": 20 * 1024 * 1024, "responses": 20 * 1024 * 1024, "messages": 5 * 1024 * 1024}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Refused(Exception):
    """The 4xx a real server would send, with its sentence."""


def check(wire: WireName, raw: bytes) -> Body:
    """Return the parsed body. Raises: Refused."""
    _need(len(raw) <= MAX_BODY_BYTES, "request_too_large: the body is larger than 32 MB")
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except ValueError as error:
        raise Refused(f"the body is not JSON: {error}") from error
    _need(not _SURROGATE.search(json.dumps(body, ensure_ascii=False)), "lone surrogate in string")
    _need(isinstance(body, dict), "the body must be an object")
    _need(isinstance(body.get("model"), str) and bool(body["model"]), "you must provide a model parameter")
    _need(body.get("stream") is True, "this test server only streams")
    {"chat": _chat, "responses": _responses, "messages": _messages}[wire](body)
    return body


def _need(condition: bool, sentence: str) -> None:
    if not condition:
        raise Refused(sentence)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _chat(body: Body) -> None:
    _need(isinstance(body.get("messages"), list) and bool(body["messages"]), "messages: at least one is required")
    for tool in body.get("tools", ()):
        _need(tool.get("type") == "function", "tools: type must be function")
        _tool(tool["function"], "parameters")
    _need(body.get("tools") != [], "tools: [] is too short")
    open_calls: list[str] = []
    for at, message in enumerate(body["messages"]):
        role = message.get("role")
        _need(role in ("system", "user", "assistant", "tool"), f"messages.{at}: unknown role {role!r}")
        _need(role != "system" or at == 0, f"messages.{at}: system must come first")
        if role == "tool":
            _need(message.get("tool_call_id") in open_calls, f"messages.{at}: no tool_call with this id precedes")
            _need(isinstance(message.get("content"), str), f"messages.{at}: tool content must be text")
            open_calls.remove(message["tool_call_id"])
            continue
        _need(not open_calls, f"messages.{at}: tool_calls without a response: {open_calls}")
        if role == "assistant":
            open_calls = _chat_assistant(at, message)
        else:
            _chat_content(at, message.get("content"))
    _need(not open_calls, f"tool_calls without a response: {open_calls}")
    _need(body["messages"][-1]["role"] in ("user", "tool"), "expected last role user or tool")


def _chat_assistant(at: int, message: Body) -> list[str]:
    calls = message.get("tool_calls")
    _need(calls != [], f"messages.{at}.tool_calls: [] is too short")
    _need(message.get("content") != "", f"messages.{at}: content must not be empty")
    _need(bool(message.get("content")) or bool(calls), f"messages.{at}: either content or tool_calls must be set")
    for call in calls or ():
        _need(bool(_MISTRAL_ID.fullmatch(call["id"])), "tool call id must be a-z, A-Z, 0-9, with a length of 9")
        _call(call["function"]["name"], call["function"]["arguments"])
    ids = [call["id"] for call in calls or ()]
    _need(len(set(ids)) == len(ids), f"messages.{at}: duplicate tool call ids")
    return ids


def _chat_content(at: int, content: Body) -> None:
    _need(bool(content), f"messages.{at}: content must not be empty")
    if isinstance(content, str):
        return
    for part in content:
        if part["type"] == "image_url":
            _data_url(part["image_url"]["url"], "chat")
        else:
            _need(part["type"] == "text" and bool(part["text"].strip()), f"messages.{at}: empty text part")


def _responses(body: Body) -> None:
    _need(isinstance(body.get("input"), list) and bool(body["input"]), "input: at least one item is required")
    _need(body.get("tools") != [], "tools: [] is too short")
    for field in ("temperature", "messages", "max_tokens"):
        _need(field not in body, f"Unsupported parameter: '{field}'")
    for tool in body.get("tools", ()):
        _need(tool.get("type") == "function", "tools: type must be function")
        _tool(tool, "parameters")
    calls: list[str] = []
    for at, item in enumerate(body["input"]):
        kind = item.get("type", "message")
        if kind == "function_call":
            _call(item["name"], item["arguments"])
            calls.append(item["call_id"])
        elif kind == "function_call_output":
            _need(item["call_id"] in calls, f"No tool call found for function call output {item['call_id']}")
            _need(isinstance(item["output"], str), f"input.{at}: output must be text")
            calls.remove(item["call_id"])
        elif kind == "reasoning":
            _need("id" not in item, f"input.{at}: items are not persisted when store is false")
        else:
            _responses_message(at, item)
    _need(not calls, f"No tool output found for function call {calls}")


def _responses_message(at: int, item: Body) -> None:
    _need(item.get("role") in ("user", "assistant", "system", "developer"), f"input.{at}: unknown role")
    _need(bool(item.get("content")), f"input.{at}: content must not be empty")
    for part in item["content"]:
        expected = "output_text" if item["role"] == "assistant" else "input_text"
        if part["type"] == "input_image":
            _data_url(part["image_url"], "responses")
        else:
            _need(part["type"] == expected, f"input.{at}: invalid value {part['type']}, expected {expected}")
            _need(bool(part["text"]), f"input.{at}: empty text")


def _messages(body: Body) -> None:
    _need(isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0, "max_tokens: field required")
    _need(isinstance(body.get("messages"), list) and bool(body["messages"]), "messages: at least one is required")
    _need(json.dumps(body).count('"cache_control"') <= 4, "a maximum of 4 blocks with cache_control may be provided")
    for tool in body.get("tools", ()):
        _tool(tool, "input_schema")
    for block in body.get("system", ()):
        _block_text(block, "system")
    _need(body["messages"][0]["role"] == "user", "messages: first message must use the user role")
    _need(body["messages"][-1]["role"] == "user", "the conversation must end with a user message")
    uses: list[str] = []
    for at, message in enumerate(_joined(body["messages"])):
        _need(bool(message["content"]), f"messages.{at}: content must not be empty")
        if message["role"] == "user":
            uses = _messages_user(at, message["content"], uses)
        else:
            uses = _messages_assistant(at, message["content"])
    _need(not uses, f"tool_use ids without tool_result blocks: {uses}")


def _joined(messages: Body) -> Body:
    """Join consecutive messages of one role, as the real server does before it looks."""
    joined: list[Body] = []
    for message in messages:
        _need(message["role"] in ("user", "assistant"), f"unexpected role {message['role']!r}")
        _need(isinstance(message["content"], list), "content must be in block form here: it keeps the cache prefix")
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {"role": message["role"], "content": [*joined[-1]["content"], *message["content"]]}
        else:
            joined.append(message)
    return joined


def _messages_user(at: int, blocks: Body, uses: list[str]) -> list[str]:
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    _need(sorted(results) == sorted(uses), f"messages.{at}: tool_use and tool_result blocks do not pair up")
    kinds = [block["type"] == "tool_result" for block in blocks]
    _need(kinds == sorted(kinds, reverse=True), f"messages.{at}: tool_result blocks must come first")
    for block in blocks:
        inner = block.get("content", []) if block["type"] == "tool_result" else [block]
        for part in inner:
            _block_part(part, f"messages.{at}")
    return []


def _messages_assistant(at: int, blocks: Body) -> list[str]:
    for block in blocks:
        if block["type"] == "text":
            _block_text(block, f"messages.{at}")
        elif block["type"] == "tool_use":
            _need(isinstance(block["input"], dict), f"messages.{at}: tool_use.input: input should be an object")
            _call(block["name"], json.dumps(block["input"]))
        else:
            _need(block["type"] in ("thinking", "redacted_thinking"), f"messages.{at}: unknown block")
    return [block["id"] for block in blocks if block["type"] == "tool_use"]


def _block_part(part: Body, where: str) -> None:
    if part["type"] != "image":
        _block_text(part, where)
        return
    source = part["source"]
    _image(source["media_type"], source["data"], "messages")


def _block_text(block: Body, where: str) -> None:
    _need(block["type"] == "text", f"{where}: unexpected block {block['type']!r}")
    _need(bool(block["text"].strip()), f"{where}: text content blocks must contain non-whitespace text")


def _tool(tool: Body, parameters: str) -> None:
    _need(bool(_NAME.fullmatch(tool.get("name", ""))), f"tools: name {tool.get('name')!r} does not match the pattern")
    schema = tool.get(parameters)
    _need(isinstance(schema, dict) and schema.get("type") == "object", "tools: schema must be of type object")


def _call(name: str, arguments: str) -> None:
    _need(bool(_NAME.fullmatch(name)), f"tool call name {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$")
    try:
        value = json.loads(arguments)
    except ValueError as error:
        raise Refused(f"tool call arguments are not valid JSON: {error}") from error
    _need(isinstance(value, dict), "tool call arguments must be an object")


def _data_url(url: str, wire: WireName) -> None:
    match = re.fullmatch(r"data:([a-z/]+);base64,(.*)", url, re.DOTALL)
    if match is None:
        raise Refused("invalid image data URL")
    _image(match[1], match[2], wire)


def _image(mime: str, data: str, wire: WireName) -> None:
    _need(mime in IMAGE_TYPES, f"image type {mime!r} is not supported")
    _need(len(data) <= MAX_IMAGE_CHARS[wire], f"image exceeds {MAX_IMAGE_CHARS[wire]} bytes")
    try:
        _need(bool(base64.b64decode(data, validate=True)), "image is empty")
    except binascii.Error as error:
        raise Refused("image is not base64") from error
