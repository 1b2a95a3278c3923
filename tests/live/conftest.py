"""Starts `firstlight up` for one test, and cleans up after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.testing.running import Starter


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    starter.close()
