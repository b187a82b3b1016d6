"""Which rooms have settings: the one place where their models meet config. Called by setup and by the daemon."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from fermix.agent import budget
from fermix.agent.compaction import settings as compaction
from fermix.agent.providers import overrides
from fermix.agent.providers.catalog import PROVIDERS
from fermix.agent.sandbox.settings import SandboxSettings
from fermix.agent.tools import tool_search
from fermix.agent.tools.image import choice as image
from fermix.agent.tools.keys import TOOL_KEYS
from fermix.agent.tools.web_search import settings as web_search
from fermix.channels.catalog import CHANNELS
from fermix.config.load import load
from fermix.config.model import Config
from fermix.gateway.transcription.choice import DEEPGRAM_VARIABLE
from fermix.gateway.transcription.transcriber import SECTION as TRANSCRIPTION
from fermix.gateway.transcription.transcriber import TranscriptionSettings
from fermix.home import Home

SECTIONS: Mapping[str, type[BaseModel]] = {
    **{spec.section: spec.settings for spec in PROVIDERS},
    **{spec.section: spec.settings for spec in CHANNELS},
    "sandbox": SandboxSettings,
    budget.SECTION: budget.BudgetSettings,
    compaction.SECTION: compaction.CompactionSettings,
    overrides.SECTION: overrides.RoutingSettings,
    image.SECTION: image.ImageSettings,
    tool_search.SECTION: tool_search.ToolSearchSettings,
    web_search.SECTION: web_search.WebSearchSettings,
    TRANSCRIPTION: TranscriptionSettings,
}
SECRET_NAMES = (
    *(spec.key_variable for spec in PROVIDERS if spec.key_variable is not None),
    DEEPGRAM_VARIABLE,
    *(key.variable for key in TOOL_KEYS),
)


def load_config(home: Home, environ: Mapping[str, str]) -> Config:
    """Read everything configured for this home. Raises: ConfigError."""
    return load(home, environ, SECTIONS, SECRET_NAMES)
