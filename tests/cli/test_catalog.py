"""The quick verbs stay quick: what they import is most of what they take."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOURCE = """
import json, sys
sys.path.insert(0, sys.argv.pop(1))
before = set(sys.modules)
from fermix.cli import main
main()
print(json.dumps(sorted(name for name in set(sys.modules) - before if not name.startswith("fermix"))))
"""
HEAVY = {
    *("asyncio", "dataclasses", "inspect", "pathlib", "pydantic", "rich", "socket", "ssl", "typing"),
    *("bz2", "lzma", "platform", "shutil", "subprocess", "tempfile", "uuid", "zlib"),
}


def imported_by(*argv: str, home: Path) -> list[str]:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SOURCE, str(root), *argv],
        capture_output=True,
        text=True,
        check=True,
        timeout=5,
        env={"FERMIX_HOME": str(home)},
    )
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names


def test_version_is_told_without_importing_anything_but_ours(tmp_path: Path) -> None:
    """`--version` may take 2.5 times as long as an empty Python."""
    assert imported_by("--version", home=tmp_path) == ["__future__"]


def test_asking_imports_nothing_heavy(tmp_path: Path) -> None:
    """`ask` may take four times as long as an empty Python; no daemon runs here, so it says so and ends."""
    imported = imported_by("ask", "hello", home=tmp_path)

    assert "argparse" in imported
    assert HEAVY & set(imported) == set()
