"""What this machine offers a local model: cores and memory. Asked by `embedded.py` before each start of the engine."""

from __future__ import annotations

import os
from pathlib import Path

from fermix.errors import NeedsOperator

MAX_THREADS = 8  # a model this small gains nothing from more
MEMORY = Path("/proc/meminfo")
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def default_threads() -> int:
    """Count the real cores this process may use, at most eight: twins on one core slow each other down."""
    if not hasattr(os, "sched_getaffinity"):
        return min(MAX_THREADS, os.cpu_count() or 1)
    return min(MAX_THREADS, len({_siblings(cpu) for cpu in os.sched_getaffinity(0)}))


def check_memory(needed_bytes: int, meminfo: Path = MEMORY) -> None:
    """Raises: NeedsOperator when the kernel says that so much memory cannot be had."""
    available = _available_bytes(meminfo)
    if available is not None and available < needed_bytes:
        raise NeedsOperator(
            f"the local model needs {needed_bytes >> 20} MiB of memory, {available >> 20} MiB are free",
            advice="close something, or run `fermix setup` to use a provider's key or Ollama",
        )


def _siblings(cpu: int) -> str:
    try:
        return Path(TOPOLOGY.format(cpu)).read_text(encoding="ascii")
    except OSError:
        return str(cpu)  # some virtual machines do not tell


def _available_bytes(meminfo: Path) -> int | None:
    """None where there is no such file: macOS."""
    if not meminfo.exists():
        return None
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
