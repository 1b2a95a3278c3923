"""Starts `firstlight up` for one test, and cleans up after it.

The scenarios of all tests start before the first test, since most of them only wait; see tests/conftest.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.testing.running import Starter


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    starter.close()


@pytest.fixture(scope="session", autouse=True)
def _scenarios_run_meanwhile(stage: object) -> None:
    del stage
