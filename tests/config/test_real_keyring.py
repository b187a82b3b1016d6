"""The store over a real Secret Service, in a session bus of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("keyring", reason="needs the extra `keyring`")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("dbus-run-session") and shutil.which("gnome-keyring-daemon")),
        reason="needs dbus-run-session and gnome-keyring-daemon",
    ),
]

SESSION = """
(printf pw | gnome-keyring-daemon {unlock} --components=secrets --foreground >/dev/null 2>&1) &
"$1" -c "$2"
kill $(jobs -p)
"""
USE = """
import time
from pathlib import Path
from fermix.config.keyring_store import KeyringStore
from fermix.config.secrets import Secret
from fermix.errors import NeedsOperator

store = KeyringStore("general", "/home/ada/.fermix", wait_s=3.0)
try:
    for _ in range(200):
        try:
            store.put("openai", Secret("sk-canary-0123456789"))
            break
        except NeedsOperator as error:
            problem = error
            if {once}:
                raise
            time.sleep(0.02)
    print(store.get("openai").reveal())
    store.remove("openai")
    print(store.get("openai"))
except NeedsOperator as error:
    print(error)
"""


def session(tmp_path: Path, *, unlock: bool) -> str:
    script = SESSION.format(unlock="--unlock" if unlock else "")
    done = subprocess.run(
        ["dbus-run-session", "--", "bash", "-c", script, "bash", sys.executable, USE.format(once=not unlock)],
        env={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout


def test_key_is_kept_found_and_forgotten(tmp_path: Path) -> None:
    assert session(tmp_path, unlock=True) == "sk-canary-0123456789\nNone\n"


def test_keyring_that_nobody_unlocks_is_one_sentence(tmp_path: Path) -> None:
    """SEC-09"""
    said = session(tmp_path, unlock=False)

    assert said.startswith("the system keyring ")
    assert 'unlock or start the system keyring, or set secret_store = "file"' in said
