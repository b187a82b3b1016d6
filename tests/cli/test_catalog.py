"""The catalog of verbs stays as light as the quickest of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOURCE = """
import json, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from fermix.cli import main
main(["--version"])
print(json.dumps(sorted(name for name in set(sys.modules) - before if not name.startswith("fermix"))))
"""


def test_version_is_told_without_importing_anything_but_ours() -> None:
    """`--version` may take 2.5 times as long as an empty Python: what it imports is most of what it takes."""
    root = Path(__file__).parents[2]

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SOURCE, str(root)], capture_output=True, text=True, check=True, timeout=5
    )

    imported = json.loads(done.stdout.splitlines()[-1])
    assert imported == ["__future__"]
