"""A bundle of an older version is read and judged as well as it ever was.

The file is one that firstlight 0.1.0 wrote of `testing/programs/rank_dies.py`, before there was a version 2; only
folders were renamed. It is not to be written anew.
"""

from pathlib import Path

from firstlight.core.bundle import BUNDLE_VERSION, Bundle, read_bundle
from firstlight.core.gap import Gap
from firstlight.core.record import to_json
from firstlight.core.vocabulary import Motion
from firstlight.diagnose import state

OLD = Path(__file__).parent / "bundles" / "version-1.json"


def old() -> Bundle:
    return read_bundle(OLD.read_bytes())


def test_a_bundle_of_version_1_is_read() -> None:
    bundle = old()
    assert bundle.version == 1 < BUNDLE_VERSION
    assert [one.process.name for one in bundle.looks[-1].processes][1:] == ["worker_TP0", "worker_TP2"]
    assert read_bundle(to_json(bundle)) == bundle


def test_what_it_does_not_have_is_no_zero() -> None:
    bundle = old()
    assert bundle.motion is Motion.STALLED
    assert isinstance(bundle.looks[-1].gpus, Gap)
    assert isinstance(bundle.looks[-1].pressure.memory_some, Gap)
    assert all(isinstance(one.facts.limits, Gap) for one in bundle.looks[-1].processes)
    assert isinstance(bundle.host.interfaces, Gap)


def test_its_dead_rank_is_named() -> None:
    headline = state(old()).headline
    assert "worker rank 1 (pid 32174) exited with code 1" in headline
