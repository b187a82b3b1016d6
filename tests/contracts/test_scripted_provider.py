"""The fake is judged by the vendors' own clients: what they read from it is what the script says."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.provider import Answer, Call, ScriptedProvider, read_script

SAYS = Answer(text="Looking at it — 你好", reasoning="hm", calls=(Call("shell", {"command": "ls"}),), cached_tokens=5)
TOOL: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}}


async def test_the_openai_client_reads_our_chat_stream() -> None:
    openai = pytest.importorskip("openai", reason="the official client is not installed")
    async with (
        ScriptedProvider([SAYS], key="k") as fake,
        openai.AsyncOpenAI(base_url=fake.base_url, api_key="k", max_retries=0) as client,
    ):
        tools = [{"type": "function", "function": {"name": "shell", "parameters": TOOL}}]
        async with (
            asyncio.timeout(5),
            client.chat.completions.stream(
                model="m", messages=[{"role": "user", "content": "hi"}], tools=tools
            ) as stream,
        ):
            final = await stream.get_final_completion()

    message = final.choices[0].message
    assert (message.content, final.choices[0].finish_reason) == (SAYS.text, "tool_calls")
    assert [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls] == [
        ("shell", {"command": "ls"})
    ]
    assert final.usage.prompt_tokens_details.cached_tokens == 5


async def test_the_openai_client_reads_our_responses_stream() -> None:
    openai = pytest.importorskip("openai", reason="the official client is not installed")
    async with (
        ScriptedProvider([SAYS], key="k") as fake,
        openai.AsyncOpenAI(base_url=fake.base_url, api_key="k", max_retries=0) as client,
    ):
        question = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
        async with asyncio.timeout(5), client.responses.stream(model="m", input=question) as stream:
            final = await stream.get_final_response()

    calls = [(item.name, json.loads(item.arguments)) for item in final.output if item.type == "function_call"]
    assert (final.output_text, final.status, calls) == (SAYS.text, "completed", [("shell", {"command": "ls"})])
    assert (final.usage.input_tokens, final.usage.input_tokens_details.cached_tokens) == (11, 5)


async def test_the_anthropic_client_reads_our_messages_stream() -> None:
    anthropic = pytest.importorskip("anthropic", reason="the official client is not installed")
    async with (
        ScriptedProvider([SAYS], key="k") as fake,
        anthropic.AsyncAnthropic(base_url=fake.base_url.removesuffix("/v1"), api_key="k", max_retries=0) as client,
    ):
        content = [{"type": "text", "text": "hi"}]
        async with (
            asyncio.timeout(5),
            client.messages.stream(
                model="m", max_tokens=100, messages=[{"role": "user", "content": content}]
            ) as stream,
        ):
            final = await stream.get_final_message()

    thinking, text, call = final.content
    assert (thinking.thinking, text.text, call.name, call.input) == ("hm", SAYS.text, "shell", {"command": "ls"})
    assert (final.stop_reason, final.usage.input_tokens, final.usage.cache_read_input_tokens) == ("tool_use", 6, 5)


async def test_a_script_can_come_from_a_file_and_run_in_a_process(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"answers": [{"echo": True}], "repeat": True}), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(  # noqa: TID251 - a test's own helper
        sys.executable, "-m", "tests.fakes.provider", "--script", str(script), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(5):
            line = await process.stdout.readline()
    finally:
        process.terminate()
        await process.wait()

    assert line.startswith(b"http://127.0.0.1:")
    assert line.endswith(b"/v1\n")


def test_a_script_names_its_calls() -> None:
    script = read_script('{"answers": [{"calls": [{"name": "shell", "arguments": {"command": "ls"}}]}]}')

    assert script._script == [Answer(calls=(Call("shell", {"command": "ls"}),))]
