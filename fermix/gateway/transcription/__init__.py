"""Speech to text: three hosted services, and a local model in a child process. Wired by the daemon."""

from fermix.gateway.transcription.choice import Voice, find_voice
from fermix.gateway.transcription.chosen import ChosenTranscriber
from fermix.gateway.transcription.files import VoiceFiles
from fermix.gateway.transcription.local import LocalListener

__all__ = ["ChosenTranscriber", "LocalListener", "Voice", "VoiceFiles", "find_voice"]
