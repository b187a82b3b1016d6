"""Two hundred conversations at once: are all answered in time, in their own place, without a long pause of the loop."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure
from bench.program import ask, connect, daemon
from bench.provider import BenchProvider
from fermix.protocol.ask import Connection

CONVERSATIONS = 200
DELAY_S = 0.2
WATCHED = (sys.executable, "-m", "bench.watched")


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, BenchProvider(delay_s=DELAY_S) as provider:
        home, longest = Path(folder) / "fermix", Path(folder) / "longest"
        with daemon(
            home, provider.base_url, command=WATCHED, variables={"FERMIX_BENCH_LONGEST": str(longest)}
        ) as process:
            connection = connect(home)
            ask(connection, "warm", "up")
            process.send_signal(signal.SIGUSR1)  # the pauses of its start are not those of the load
            began_at = time.monotonic()
            answered = _ask_all(connection)
            took_s = time.monotonic() - began_at
        longest_ms = float(longest.read_text(encoding="ascii"))
    yield Figure("load.200_conversations", took_s, "s", 3.0)
    yield Figure("load.lost_or_crossed", CONVERSATIONS - answered, "messages", 0.0)
    yield Figure("load.longest_callback", longest_ms, "ms of CPU on the loop's thread", 50.0)


def _ask_all(connection: Connection) -> int:
    """Send one message in each of 200 sessions; count replies that came once, in their own session."""
    for number in range(CONVERSATIONS):
        wish = {"id": f"m{number}", "session": f"s{number}", "text": f"question {number}"}
        connection.request("message.send", wish)
    replies: list[tuple[str, str]] = []
    settled = 0
    for name, params in connection.events():
        if name == "reply":
            replies.append((str(params["session"]), str(params["message_id"])))
        settled += name == "turn.ended"
        if settled == CONVERSATIONS:
            break
    return len({(f"s{number}", f"m{number}") for number in range(CONVERSATIONS)}.intersection(replies)) - _twice(
        replies
    )


def _twice(replies: list[tuple[str, str]]) -> int:
    return len(replies) - len(set(replies))
