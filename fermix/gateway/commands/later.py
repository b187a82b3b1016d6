"""The commands whose machinery this version does not have. They are known, so that nobody takes silence for success.

Each leaves this list for a file of its own together with what it drives.
"""

from __future__ import annotations

from fermix.gateway.command import Command

BACKGROUND = Command(
    "background", "work on something in the background", "commanders", None, aliases=("bg",),
    missing="I cannot work in the background yet. Send it without the command and I answer here.",
)  # fmt: skip
TASKS = Command(
    "tasks", "list background work", "commanders", None,
    missing="I cannot work in the background yet, so there is no such work to list.",
)  # fmt: skip
PAUSE = Command(
    "pause", "take the desktop back", "commanders", None,
    missing="I cannot use a desktop yet, so there is nothing to pause. `/stop` ends a running turn.",
)  # fmt: skip
RESUME = Command(
    "resume", "let desktop work go on", "commanders", None,
    missing="I cannot use a desktop yet, so there is nothing to resume.",
)  # fmt: skip
ULTRA = Command(
    "ultra", "think wider about one request", "commanders", None,
    missing="I have no wider mode yet. Send it without the command and I answer as usual.",
)  # fmt: skip
