"""The code of the engine child: llama.cpp's own server, in its own process, for `embedded.py`.

Run by the hidden verb `fermix _engine`, never in the daemon. It prints one line of JSON once the model is loaded,
`{"listening": "http://127.0.0.1:40677"}`, and serves until SIGTERM or until the process that started it is gone,
also when that one was killed. Without the key from the environment nothing but `/health` and the model's name
can be had.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import signal
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

KEY_VARIABLE = "FERMIX_ENGINE_KEY"
PARENT_CHECK_S = 1.0
TEMPLATE_KEY = b"tokenizer.chat_template"
HEADER_BYTES = 16 << 20  # the metadata of a small model, its vocabulary included, ends long before
LOG_WARNINGS = 2  # llama.cpp's levels; from 3 on each request is logged
PROMPT_CACHE_MIB = 128  # what other conversations leave behind, at 12 KiB a token; llama.cpp itself would take 8 GiB
AFTER_RESULT = "Answer me from this result in plain words. Do not write JSON."

TEMPLATE_EDITS = (
    # The model writes its calls in a JSON fence, whatever it is told. llama.cpp learns the syntax of a call from the
    # template, so naming the fence there is what turns text into calls.
    ("within <tool_call></tool_call> XML tags:", "within a json code fence:"),
    ("<tool_call>", "```json"),
    ("</tool_call>", "```"),
    # Without this sentence behind the last result it makes the same call again and again.
    (
        "{{- '\\n</tool_response>' }}",
        "{{- '\\n</tool_response>' }}{%- if loop.last %}{{- '\\n" + AFTER_RESULT + "' }}{%- endif %}",
    ),
)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the daemon decides. `folder` holds a fetched engine, None means an installed one."""

    model: Path
    folder: Path | None
    threads: int
    context_tokens: int
    parent_pid: int


class _Cpu(Protocol):
    n_threads: int


class _ModelFile(Protocol):
    path: str


class _Parameters(Protocol):
    """The part of llama.cpp's parameters that is set here; its own bindings carry no types."""

    model: _ModelFile
    cpuparams: _Cpu
    cpuparams_batch: _Cpu
    hostnames: list[str]
    port: int
    api_keys: list[str]
    cors_origins: str
    ui: bool
    endpoint_slots: bool
    n_ctx: int
    n_parallel: int
    cache_ram_mib: int
    use_jinja: bool
    chat_template: str
    model_alias: set[str]
    verbosity: int


class _Server(Protocol):
    listening_address: str


class _Binding(Protocol):
    def CommonParams(self) -> _Parameters: ...  # noqa: N802 - its name over there

    def Server(self, parameters: _Parameters) -> _Server: ...  # noqa: N802


def serve(options: EngineOptions, key: str) -> int:
    """Load, say where it listens, serve; give the exit code."""
    stop = threading.Event()

    def on_term(_number: int, _frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is meant for the daemon, which ends us
    if options.folder is not None:
        sys.path.insert(0, str(options.folder))
    binding: _Binding = importlib.import_module("xllamacpp")  # pyright: ignore[reportAssignmentType] - untyped
    server = binding.Server(_parameters(binding.CommonParams(), options, key))
    print(json.dumps({"listening": server.listening_address}), flush=True)
    while os.getppid() == options.parent_pid and not stop.wait(PARENT_CHECK_S):
        pass
    return 0


def chat_template(model: Path) -> str:
    """Read the template out of the model's metadata and adapt it.

    Raises: ValueError when the file has none or it is not the one the edits were made for.
    """
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        at = whole.find(TEMPLATE_KEY, 0, HEADER_BYTES) + len(TEMPLATE_KEY) + 4
        if at < len(TEMPLATE_KEY) + 4:
            raise ValueError(f"{model.name} has no chat template")
        (length,) = struct.unpack_from("<Q", whole, at)
        template = whole[at + 8 : at + 8 + length].decode("utf-8")
    for old, new in TEMPLATE_EDITS:
        if old not in template:
            raise ValueError(f"the chat template of {model.name} lacks {old!r}")
        template = template.replace(old, new)
    return template


def _parameters(parameters: _Parameters, options: EngineOptions, key: str) -> _Parameters:
    parameters.model.path = str(options.model)
    parameters.model_alias = {options.model.stem}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [key]
    parameters.cors_origins = "http://127.0.0.1"
    parameters.ui = False
    parameters.endpoint_slots = False  # it shows the prompts of others
    parameters.n_ctx = options.context_tokens
    parameters.n_parallel = 1
    parameters.cache_ram_mib = PROMPT_CACHE_MIB
    parameters.cpuparams.n_threads = options.threads
    parameters.cpuparams_batch.n_threads = options.threads
    parameters.use_jinja = True
    parameters.chat_template = chat_template(options.model)
    parameters.verbosity = LOG_WARNINGS
    return parameters
