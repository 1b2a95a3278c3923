"""The order of suspicion: what was found counts most, then known conflicts, the phase, and the table's guess."""

import shlex

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.isolate.oracles import space

from firstlight.core.report import Finding
from firstlight.engines import recognise
from firstlight.engines.switches import switch_table
from firstlight.isolate.order import order_of
from firstlight.isolate.space import CommandSpace, space_of

VLLM = "LD_PRELOAD=x.so vllm serve m -tp 4 --cudagraph-capture-sizes 1 2 --speculative-config {} --block-size 16"
SGLANG = (
    "python -m sglang.launch_server --model m --enable-dp-attention --dp 2 --speculative-algorithm EAGLE --dtype half"
)


def read(line: str) -> CommandSpace:
    command = recognise(shlex.split(line), {})
    return space_of(command, {}, switch_table(command.engine), features=True)


def finding(cause: str, verdict: str) -> Finding:
    return Finding(id=cause, title=f"about {cause}", verdict=verdict)


def test_every_switch_is_in_the_order_once() -> None:
    where = read(VLLM)
    told = order_of(where)
    assert sorted(told.names) == sorted(where.names)
    assert told.suspects == 0
    assert told.names.index("speculation") < told.names.index("block-size")


def test_what_was_established_comes_before_what_is_only_supported() -> None:
    findings = [
        finding("nccl_nvls", "open"),
        finding("http_proxy", "established"),
        finding("preload_shim", "supported"),
    ]
    told = order_of(read("http_proxy=p " + VLLM), findings)
    assert told.names[:2] == ("proxies", "env:LD_PRELOAD")
    assert told.why[0] == ("proxies", "established: about http_proxy")
    assert "nvlink-multicast" in told.names[: told.suspects]


def test_what_peer_access_over_pcie_makes_a_suspect() -> None:
    told = order_of(read(VLLM), [finding("nccl_p2p_pcie", "supported")])
    assert {"custom-all-reduce", "peer-to-peer"} <= set(told.names[: told.suspects])


def test_findings_that_were_not_seen_name_nobody() -> None:
    told = order_of(read(VLLM), [finding("http_proxy", "excluded"), finding("preload_shim", "not seen")])
    assert told.suspects == 0


def test_what_acts_in_the_phase_of_the_stall_comes_first_but_is_not_evidence() -> None:
    told = order_of(read(VLLM), phase="graph_capture")
    assert told.names.index("cudagraph-capture-sizes") < told.names.index("tensor-parallel-size")
    assert told.suspects == 0


def test_options_known_not_to_go_together_are_suspects() -> None:
    told = order_of(read(SGLANG))
    assert set(told.names[: told.suspects]) == {"speculation", "dp-attention", "dp-size"}
    assert dict(told.why)["dp-size"] == "needed by a suspect"


@given(st.permutations(range(8)), st.lists(st.tuples(st.integers(1, 7), st.integers(0, 6)), max_size=6))
@settings(max_examples=100, deadline=None)
def test_what_is_needed_stands_before_what_needs_it(ranks: list[int], pairs: list[tuple[int, int]]) -> None:
    needs: dict[int, tuple[int, ...]] = {}
    for one, other in pairs:
        if other < one:
            needs[one] = (*needs.get(one, ()), other)
    where = space(8, {ranks[one]: tuple(ranks[other] for other in others) for one, others in needs.items()})
    names = order_of(where).names
    assert sorted(names) == sorted(where.names)
    for one in where.switches:
        assert all(names.index(other) < names.index(one.name) for other in one.needs)
