"""Speech to text: three hosted services, and a local model in a child process. Wired by the daemon."""

from fermix.gateway.hearing.choice import Voice, find_voice
from fermix.gateway.hearing.hearing import Hearing

__all__ = ["Hearing", "Voice", "find_voice"]
