"""Speech to text: three hosted services, and a local model in a child process. Wired by the daemon."""

from fermix.gateway.hearing.choice import Voice, find_voice
from fermix.gateway.hearing.files import VoiceFiles
from fermix.gateway.hearing.hearing import Hearing
from fermix.gateway.hearing.local import LocalListener

__all__ = ["Hearing", "LocalListener", "Voice", "VoiceFiles", "find_voice"]
