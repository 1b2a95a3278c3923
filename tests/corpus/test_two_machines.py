"""Every report of the corpus as that of the second of two machines: what was established there still is, and what the
one machine has and the other does establishes nothing together."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tests.corpus.case import Case, all_cases, outcome, symptoms

from firstlight.core.bundle import Bundle
from firstlight.diagnose import merge
from firstlight.diagnose.causes import all_causes
from firstlight.testing.bundles import bundle, host, rank
from firstlight.testing.bundles.whole import LOOK_FIELDS

BARRIER = ("barrier (torch/distributed/distributed_c10d.py:5356)", "load (vllm/v1/worker/gpu_worker.py:300)")
OF_THE_FIRST_ALONE = {"dynamo-4855"}
"""Only the first node of a server for prefill is to listen."""
BY_MACHINE = frozenset(cause.id for cause in all_causes() if not cause.together)


def waiting(of: Bundle) -> Bundle:
    """Another machine of the same server, in good health, whose ranks wait where ranks meet."""
    made = bundle(
        *(rank(number, stack=BARRIER) for number in range(2)),
        engine=of.engine,
        version=of.engine_version,
        phase=of.phase,
        motion=of.motion,
        host=host(name="node-a"),
    )
    return _of_two(replace(made, started=of.started, at=of.at), 0, of.nodes)


def second(of: Bundle) -> Bundle:
    return _of_two(replace(of, host=replace(of.host, name="node-b")), 1, of.nodes)


def _of_two(of: Bundle, node: int, nodes: int) -> Bundle:
    return replace(of, node=node, nodes=max(2, nodes))


def with_facts(of: Bundle, other: Bundle) -> Bundle:
    """A bundle with the facts of another one's machine."""
    seen = other.looks or bundle().looks
    looks = tuple(
        replace(look, **{name: getattr(seen[at], name) for name in (*LOOK_FIELDS, "folders")})
        for at, look in zip((0, -1), of.looks, strict=False)
    )
    own = replace(other.host, name=of.host.name)
    return replace(of, host=own, looks=looks, environment=other.environment, options=other.options)


def established() -> Iterator[tuple[Case, frozenset[str]]]:
    for case in all_cases():
        said = outcome(case.bundle).established & BY_MACHINE - symptoms()
        if said and case.id not in OF_THE_FIRST_ALONE:
            yield case, said


DECIDED = list(established())


@pytest.mark.parametrize(("case", "said"), DECIDED, ids=[case.id for case, _ in DECIDED])
def test_what_is_established_on_one_machine_is_in_a_bundle_of_two(case: Case, said: frozenset[str]) -> None:
    other = waiting(case.bundle)
    assert said <= outcome(merge([other, second(case.bundle)])).established


@pytest.mark.parametrize("case", [case for case, _ in DECIDED], ids=[case.id for case, _ in DECIDED])
def test_facts_of_one_machine_and_processes_of_another_establish_nothing(case: Case) -> None:
    facts = with_facts(waiting(case.bundle), case.bundle)
    processes = with_facts(second(case.bundle), waiting(case.bundle))
    true = outcome(facts).established | outcome(processes).established | symptoms() | case.companions
    assert outcome(merge([facts, processes])).established <= true
