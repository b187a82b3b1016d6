"""What is asked inside the frozen program: Python files that it imports in place of the local model's engine.

`fermix _engine --folder F` imports `xllamacpp` from F. Each function here becomes such a module: its source is copied,
so it imports what it needs itself, and prints one JSON value.
"""

from __future__ import annotations

import inspect
import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path

ARGUMENTS = ("--model", "none", "--threads", "1", "--context", "1", "--parent", "1")


def write_probe(folder: Path, probe: Callable[..., object], *arguments: object) -> None:
    """Write the module that calls `probe` with JSON arguments, prints its answer and ends the program."""
    call = f"{probe.__name__}(*json.loads({json.dumps(json.dumps(arguments))}))"
    source = textwrap.dedent(inspect.getsource(probe))
    lines = ["import json, os", source, f"print(json.dumps({call}), flush=True)", "os._exit(0)", ""]
    (folder / "xllamacpp.py").write_text("\n".join(lines), encoding="utf-8")


def modules_that_fail(names: list[str]) -> list[str]:
    """Import every module; return "name: error" for those that cannot be."""
    import importlib

    failed = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append(f"{name}: {error}")
    return failed


def native_files_are_verified() -> str:
    """Run the check of the daemon's start; it raises when a file is not the one that was built."""
    from fermix.native.verify import verify_native_files

    verify_native_files()
    return "verified"


def environment_of_a_child() -> dict[str, str]:
    """Start the machine's `env` the plain way, as a library would that knows nothing of us."""
    import subprocess

    told = subprocess.run(["/usr/bin/env"], capture_output=True, text=True, check=True, timeout=5).stdout
    return dict(line.split("=", 1) for line in told.splitlines())


def what_kind_of_program() -> list[object]:
    """Return what PyInstaller's loader sets, and where the standard library came from."""
    import sys

    home = sys.__dict__["_MEIPASS"]
    return [sys.__dict__["frozen"], home.rpartition("/")[2], json.__file__.startswith(home)]


def authorities() -> list[str]:
    """Return the certificate authorities that our clients trust here."""
    from fermix.tls import client_context

    return [str(authority["subject"]) for authority in client_context().get_ca_certs()]


def handshake(url: str) -> int:
    """Send a request with the daemon's client and return the status of the answer."""
    import asyncio

    from fermix.net import Net, Timeouts

    async def post() -> int:
        async with Net.open() as net, net.post_stream(url, headers={}, body=b"", timeouts=Timeouts()) as response:
            return response.status

    return asyncio.run(post())


def restored_files() -> list[bool]:
    """Delete the unpacked program under itself, and say whether it was gone and is back after one check."""
    import asyncio
    import shutil
    import sys
    from pathlib import Path

    from fermix.clock import SystemClock
    from fermix.daemon.unpacked import UnpackedFiles
    from fermix.native.program import own_program

    own = Path(sys.__dict__["_MEIPASS"])
    service = UnpackedFiles(own_program(os.environ), os.environ, SystemClock())

    async def check() -> None:
        up = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(service.run(up.set))
            await up.wait()
            running.cancel()

    shutil.rmtree(own.parents[1])
    gone = not own.exists()
    asyncio.run(check())
    return [gone, own.is_dir()]
