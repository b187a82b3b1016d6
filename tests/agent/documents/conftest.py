"""The same workspace that the tools have."""

from __future__ import annotations

from tests.agent.tools.conftest import toolbox as toolbox
