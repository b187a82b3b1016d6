"""Write a scripted answer in each of the three wire formats, as the servers stream it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fakes.provider import Answer, Call

Json = dict[str, object]
MODEL = "scripted-1"


def chat_stream(answer: Answer) -> bytes:
    """Chat Completions chunks, usage in a last chunk without choices, then [DONE]."""
    return b"".join(_data(event) for event in _chat_events(answer)) + b"data: [DONE]\n\n"


def responses_stream(answer: Answer) -> bytes:
    """Responses events, each with its type as event name."""
    return b"".join(_named(event) for event in _responses_events(answer))


def messages_stream(answer: Answer) -> bytes:
    """Anthropic Messages events, a ping among them."""
    return b"".join(_named(event) for event in _messages_events(answer))


def arguments_text(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def pieces(text: str, size: int = 5) -> Iterator[str]:
    yield from (text[at : at + size] for at in range(0, len(text), size))


def _data(event: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


def _named(event: Mapping[str, object]) -> bytes:
    return f"event: {event['type']}\n".encode() + _data(event)


def _chat_events(answer: Answer) -> Iterator[Json]:
    yield _chunk({"role": "assistant", "content": ""})
    for piece in pieces(answer.reasoning):
        yield _chunk({"reasoning_content": piece})
    for piece in pieces(answer.text):
        yield _chunk({"content": piece})
    for index, call in enumerate(answer.calls):
        start = {"name": call.name, "arguments": ""}
        yield _chunk({"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": start}]})
        for piece in pieces(arguments_text(call)):
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    reasons = {"length": "length", "refusal": "content_filter"}
    yield _chunk({}, reasons.get(answer.finish or "", "tool_calls" if answer.calls else "stop"))
    usage: Json = {"prompt_tokens": answer.input_tokens, "completion_tokens": answer.output_tokens}
    if answer.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": answer.cached_tokens}
    yield {
        "id": "chat-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [],
        "usage": usage,
    }


def _chunk(delta: Json, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}


def _responses_events(answer: Answer) -> Iterator[Json]:
    number = 0
    output: list[Json] = []
    yield {"type": "response.created", "sequence_number": 0, "response": _response("in_progress", [], None, None)}
    for event, item in _response_items(answer):
        number += 1
        yield {**event, "sequence_number": number}
        if item is not None:
            output.append(item)
    usage: Json = {
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    if answer.cached_tokens is not None:
        usage["input_tokens_details"] = {"cached_tokens": answer.cached_tokens}
    reason = {"length": "max_output_tokens", "refusal": "content_filter"}.get(answer.finish or "")
    status = "incomplete" if reason else "completed"
    yield {
        "type": f"response.{status}",
        "sequence_number": number + 1,
        "response": _response(status, output, usage, {"reason": reason} if reason else None),
    }


def _response(status: str, output: list[Json], usage: Json | None, incomplete: Json | None) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": MODEL,
        "status": status,
        "output": output,
        "usage": usage,
        "incomplete_details": incomplete,
        "error": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _response_items(answer: Answer) -> Iterator[tuple[Json, Json | None]]:
    """Yield each event, with the finished item where one ends."""
    at = 0
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        item: Json = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
        yield {"type": "response.output_item.added", "output_index": at, "item": item}, None
        for piece in pieces(answer.reasoning):
            where = {"item_id": "rs_1", "output_index": at, "summary_index": 0}
            yield {"type": "response.reasoning_summary_text.delta", **where, "delta": piece}, None
        done = {**item, "summary": summary}
        yield {"type": "response.output_item.done", "output_index": at, "item": done}, done
        at += 1
    if answer.text:
        yield from _message_item(at, answer.text)
        at += 1
    for index, call in enumerate(answer.calls):
        yield from _call_item(at + index, call)


def _message_item(at: int, text: str) -> Iterator[tuple[Json, Json | None]]:
    item: Json = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
    where = {"item_id": "msg_1", "output_index": at, "content_index": 0}
    yield {"type": "response.output_item.added", "output_index": at, "item": item}, None
    part: Json = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.content_part.added", **where, "part": part}, None
    for piece in pieces(text):
        yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}, None
    yield {"type": "response.output_text.done", **where, "text": text, "logprobs": []}, None
    done = {**item, "status": "completed", "content": [{**part, "text": text}]}
    yield {"type": "response.output_item.done", "output_index": at, "item": done}, done


def _call_item(at: int, call: Call) -> Iterator[tuple[Json, Json | None]]:
    item: Json = {"type": "function_call", "id": f"fc_{at}", "call_id": f"call_{at}", "name": call.name}
    where = {"item_id": f"fc_{at}", "output_index": at}
    begun = {**item, "arguments": "", "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": at, "item": begun}, None
    text = arguments_text(call)
    for piece in pieces(text):
        yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}, None
    yield {"type": "response.function_call_arguments.done", **where, "name": call.name, "arguments": text}, None
    done = {**item, "arguments": text, "status": "completed"}
    yield {"type": "response.output_item.done", "output_index": at, "item": done}, done


def _messages_events(answer: Answer) -> Iterator[Json]:
    usage: Json = {"input_tokens": answer.input_tokens - (answer.cached_tokens or 0), "output_tokens": 1}
    if answer.cached_tokens is not None:
        usage |= {"cache_read_input_tokens": answer.cached_tokens, "cache_creation_input_tokens": 0}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    begin = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": begin}
    yield {"type": "ping"}
    at = 0
    if answer.reasoning:
        signature: Json = {"type": "signature_delta", "signature": "signed"}
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(answer.reasoning)]
        yield from _block(at, {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signature])
        at += 1
    if answer.text:
        texts = [{"type": "text_delta", "text": piece} for piece in pieces(answer.text)]
        yield from _block(at, {"type": "text", "text": ""}, texts)
        at += 1
    for index, call in enumerate(answer.calls):
        parts = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments_text(call))]
        start: Json = {"type": "tool_use", "id": f"toolu_{index}", "name": call.name, "input": {}}
        yield from _block(at + index, start, parts)
    reasons = {"length": "max_tokens", "refusal": "refusal"}
    stop = reasons.get(answer.finish or "", "tool_use" if answer.calls else "end_turn")
    delta = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": answer.output_tokens}}
    yield {"type": "message_stop"}


def _block(at: int, start: Mapping[str, object], deltas: list[Json]) -> Iterator[Json]:
    yield {"type": "content_block_start", "index": at, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": at, "delta": delta}
    yield {"type": "content_block_stop", "index": at}
