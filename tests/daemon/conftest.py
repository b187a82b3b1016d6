from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.daemon.house import House, opened


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    async with opened(tmp_path / "home") as house:
        yield house
