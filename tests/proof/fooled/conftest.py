"""One model, one sink and one field of estates for all attacks of a run."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.proof.fooled.model import fooled
from tests.proof.fooled.sink import sinking
from tests.proof.fooled.trial import Field, fielded


@pytest.fixture(scope="session")
def field(tmp_path_factory: pytest.TempPathFactory) -> Generator[Field]:
    with fooled() as model, sinking() as sink, fielded(tmp_path_factory.mktemp("fooled"), model, sink) as found:
        yield found
        assert model.refusals == []
