"""`[fermix_core.compaction]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fermix.config.model import Settings

SECTION = "fermix_core.compaction"


class CompactionSettings(Settings):
    """When older messages are summed up by themselves; `/compact` and a refused request do it always."""

    enabled: bool = True
    threshold: Annotated[float, Field(ge=0.1, le=1.0)] = 0.85
    """Share of the model's window that the largest request of a turn fills."""
