"""A signature keeps through whatever differs between two runs of one stall, and no longer."""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.test_bundle_roundtrip import BUNDLES

from firstlight.core.bundle import Bundle, read_bundle
from firstlight.core.record import to_json
from firstlight.core.vocabulary import Phase
from firstlight.diagnose.merge import moved_by
from firstlight.diagnose.scene import scene_of
from firstlight.diagnose.signature import signature

patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@patient
@given(BUNDLES, st.integers(1, 1 << 21))
def test_pids_make_no_difference(bundle: Bundle, step: int) -> None:
    assert signature(scene_of(moved_by(bundle, step))) == signature(scene_of(bundle))


@patient
@given(BUNDLES)
def test_folders_hosts_runs_and_times_make_no_difference(bundle: Bundle) -> None:
    elsewhere = read_bundle(to_json(bundle).replace(b"/app/load.py", b"/tmp/x7/load.py"))
    host = msgspec.structs.replace(elsewhere.host, name="another")
    other = msgspec.structs.replace(elsewhere, run="another", host=host, quiet_since=1.0, command=())
    assert signature(scene_of(other)) == signature(scene_of(bundle))


@patient
@given(BUNDLES, st.sampled_from(Phase))
def test_the_phase_makes_one(bundle: Bundle, phase: Phase) -> None:
    other = msgspec.structs.replace(bundle, phase=phase)
    same = signature(scene_of(other)).digest == signature(scene_of(bundle)).digest
    assert same is (phase is bundle.phase)
