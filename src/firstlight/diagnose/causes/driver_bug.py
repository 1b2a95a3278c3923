"""A GPU model and a driver of which reports tell that they spin together."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees, supports
from firstlight.diagnose.devices import spinning
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus


class Pair(NamedTuple):
    """GPUs whose name matches `model`, with a driver whose version begins with `driver`."""

    model: str
    driver: str
    source: str


KNOWN = (Pair(r"RTX 4090\b", "545.", "https://github.com/InternLM/lmdeploy/issues/1750"),)


def _spins(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_pair(scene), spinning(scene))


def _pair(scene: Scene) -> Iterator[Sighting | Gap]:
    driver, cards = scene.bundle.host.driver, gpus(scene)
    if isinstance(driver, Gap) or isinstance(cards, Gap):
        yield from (one for one in (driver, cards) if isinstance(one, Gap))
        return
    for card in cards:
        for pair in KNOWN:
            if len(cards) > 1 and re.search(pair.model, card.name) and driver.startswith(pair.driver):
                yield Sighting(
                    shortened(f"GPU {card.index}: {card.name} with driver {driver} ({pair.source})"), what=driver
                )


CAUSE = Cause(
    id="driver_bug",
    nature=Nature.DEVICE,
    title="driver {what} is known to spin with these GPUs",
    clues=(
        supports("Do GPUs spin that are known to do so with this driver?", _spins),
        foresees("Are GPUs and driver known to spin together?", _pair),
    ),
    advice=Advice(
        confirm=("Start once on another driver branch: all else equal, it then answers.",),
        work_around=("NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce may get round it.",),
        repair=("Install another driver branch (with 545: 535 or 550 and later).",),
    ),
    traps=("Broken peer access spins in the same way: see ACS, IOMMU and BAR1, too.",),
)
