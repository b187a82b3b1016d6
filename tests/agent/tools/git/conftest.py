"""A repository and a trap in the workspace."""

from __future__ import annotations

import pytest

from tests.agent.tools.conftest import Toolbox
from tests.fakes.repository import Repository, Trap


@pytest.fixture
def repository(toolbox: Toolbox) -> Repository:
    return Repository.make(toolbox.workspace / "project")


@pytest.fixture
def trap(toolbox: Toolbox) -> Trap:
    return Trap.make(toolbox.workspace / "trap")
