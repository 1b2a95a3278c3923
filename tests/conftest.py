"""Runs the scenarios that the collected tests ask for, side by side, and hands each test its own.

Most scenarios wait half a minute for somebody to notice; one after another they would take an hour. So the first
test that needs one starts them all: those that sleep eight at a time, those that compute two at a time.

Where several workers run the tests (`make test`), the tests of a file stay together, since they share what is started
for them; all tests of scenarios are one worker's, and come first, since they take longest.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from firstlight.testing.running import Ended
from firstlight.testing.scenarios import Scenario, run

SLEEPERS = 8
BURNERS = 2
OF_SCENARIOS = ("test_healthy.py", "test_stalls.py", "test_zoo.py")
LONGEST_FIRST = ("live", "embedded", "property")


class Stage:
    """Every scenario of this session, running or ended."""

    def __init__(self, scenarios: list[Scenario], folder: Path) -> None:
        self._pools = {burns: ThreadPoolExecutor(BURNERS if burns else SLEEPERS) for burns in (True, False)}
        self._ends: dict[Scenario, Future[Ended]] = {}
        for number, scenario in enumerate(dict.fromkeys(scenarios)):
            place = folder / f"{number}-{scenario.name}"
            place.mkdir()
            self._ends[scenario] = self._pools[scenario.burns].submit(run, scenario, place)

    def ended(self, scenario: Scenario) -> Ended:
        """How it ended. `run` has its own deadline, which bounds this wait."""
        return self._ends[scenario].result()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)


def scenario_of(item: pytest.Item) -> Scenario | None:
    """The scenario that a test was parametrised with."""
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("scenario") if callspec else None
    return found if isinstance(found, Scenario) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """What takes long comes first, so that no worker is left with it at the end."""
    if scenario_of(item):
        return -1
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Where several workers run the tests, which of them stay together."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "scenarios" if file.endswith(OF_SCENARIOS) else file

    config.option.loadscopereorder = False
    return Together(config, log)


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    wanted = [scenario for item in request.session.items if (scenario := scenario_of(item))]
    opened = Stage(wanted, tmp_path_factory.mktemp("stage"))
    yield opened
    opened.close()


@pytest.fixture
def ended(stage: Stage, scenario: Scenario) -> Ended:
    return stage.ended(scenario)
