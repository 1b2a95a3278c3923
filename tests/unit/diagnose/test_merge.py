"""Several machines' bundles as one, and two bundles of one machine as two looks."""

import re

import msgspec
import pytest
from tests.unit.diagnose.conftest import NOW, bundle, ended, line, look, process, stack, thread, twice

from firstlight.core import bundle as bundles
from firstlight.core.bundle import Bundle, LogTail
from firstlight.core.gap import Gap
from firstlight.core.hosts import PIDS_A_NODE
from firstlight.core.log import PhaseMark, PhaseSpan
from firstlight.core.look import Leftover, Lock, OpenFile
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.diagnose import merge, reported, state
from firstlight.diagnose.hosts import translator
from firstlight.diagnose.merge import _PIDS, moved_by
from firstlight.errors import BundleError
from firstlight.report.html import html
from firstlight.report.markdown import markdown
from firstlight.report.terminal import terminal

BARRIER = stack("barrier /v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:5356", "load /a.py:1")
LOADS = stack("fetch /app/hub.py:7", "load /a.py:1")
replace = msgspec.structs.replace


def on(host: str, of: Bundle, **more: object) -> Bundle:
    return replace(of, host=replace(of.host, name=host), **more)


def node(k: int, *, odd: int = -1, nodes: int = 2, **more: object) -> Bundle:
    """A machine with four ranks that it numbers from 0, in a barrier but for the one that is `odd`."""
    ranks = [
        process(100 + n, thread(100 + n, LOADS if n == odd else BARRIER), rank=n, role=Role.WORKER, label=f"TP{n}")
        for n in range(4)
    ]
    front = process(50, thread(50, LOADS, call="wait4(0x64, 0x0)"), role=Role.FRONT)
    return on(f"node-{k}", twice(front, *ranks, **more), node=k, nodes=nodes, ranks=4, run=f"run-{k}")


def test_ranks_of_all_machines_meet_in_one_statement() -> None:
    statement = state(merge([node(1, odd=2), node(0)]))
    finding = statement.findings[0]
    assert finding.id == "rank_elsewhere"
    assert finding.title == "7 of 8 ranks wait for worker rank 6 (pid 102 on node-1), which never came"
    assert finding.evidence[0].startswith("ranks 0-5 and 7: barrier")
    assert finding.pids == (PIDS_A_NODE + 102,)
    assert statement.tree.members == 8
    assert "worker rank 6 (pid 102 on node-1)" in statement.headline
    assert not any(
        str(PIDS_A_NODE + 102) in text for text in (statement.headline, *finding.evidence, *finding.advice)
    )


def test_pids_stay_apart_wherever_they_stand() -> None:
    merged = merge([node(0), node(1)])
    pids = [one.process.id.pid for one in merged.looks[-1].processes]
    assert len(set(pids)) == len(pids) == 10
    waits = next(one for one in merged.looks[-1].processes if one.process.id.pid == PIDS_A_NODE + 50)
    assert waits.threads[0].syscall == f"wait4({PIDS_A_NODE + 100:#x}, 0x0)"
    assert waits.sample.id.pid == PIDS_A_NODE + 50
    assert (f"p{PIDS_A_NODE + 50}", f"p{PIDS_A_NODE + 100}") in {
        (edge.source, edge.target) for edge in state(merged).graph.edges
    }


def test_whatever_people_read_names_pids_as_their_machine_does() -> None:
    """Two processes of different machines, without ranks, each in a pipe of its own."""

    def machine(k: int) -> Bundle:
        reads = OpenFile(fd=3, kind="pipe", target="pipe:[9]", peers=(107,))
        own = process(
            100 + k, thread(100 + k, BARRIER if k else LOADS, call="read(0x3, 0x0)", fds=(3,)), files=(reads,)
        )
        refused = Gap(what="open files", reason=GapReason.NO_PERMISSION, detail="be root", pid=100 + k)
        gone = (ended(90 + k, "helper", code=1),)
        return on(f"node-{k}", twice(own, gaps=(refused,), exits=gone), node=k, nodes=2)

    report = reported(merge([machine(0), machine(1)]))
    said = terminal(report)
    for form in (said, markdown(report), html(report)):
        assert "101 on node-1" in form
        assert "100 on node-0" in form
        assert not re.search(r"41943\d\d", form)
    assert "pids 100 on node-0, 101 on node-1" in " ".join(said.split())
    assert "helper (pid 91 on node-1) exited with code 1" in said
    assert "pid 107 on node-1 (not of this server)" in " ".join(said.split())


def test_a_number_that_is_no_pid_stays_what_it_is() -> None:
    say = translator(merge([node(0), node(1)]))
    moved = PIDS_A_NODE + 101
    assert say(f"process {moved}.") == "process 101 on node-1."
    assert say(f"kill {moved}; pid 101, 101 bytes") == "kill 101 on node-1; pid 101 on node-0, 101 bytes"
    assert say("pid 101 on node-1, pid 999, v1.101") == "pid 101 on node-1, pid 999, v1.101"
    assert say(f"wait4({moved:#x}, 0x0)") == "wait4(0x65, 0x0)"


def test_ranks_that_are_those_of_the_whole_already_are_kept() -> None:
    first, second = node(0), node(1)
    shifted = replace(
        second,
        looks=tuple(
            replace(
                one,
                processes=tuple(
                    replace(p, process=replace(p.process, rank=p.process.rank + 4 if p.process.rank >= 0 else -1))
                    for p in one.processes
                ),
            )
            for one in second.looks
        ),
    )
    ranks = sorted(one.process.rank for one in merge([first, shifted]).looks[-1].processes)
    assert ranks == [-1, -1, *range(8)]


def test_labels_that_both_machines_use_say_whose_they_are() -> None:
    said = [
        node(k, logs=(LogTail(source="TP0", lines=(line(f"words of {k}", source="TP0"),)),), timeline=(SPAN,))
        for k in (0, 1)
    ]
    statement = state(merge(said))
    assert {one.rank: one.last_words for one in statement.processes if one.last_words} == {
        0: "words of 0",
        4: "words of 1",
    }


@pytest.mark.parametrize(
    ("names", "hosts"),
    [(("", ""), ("node 0", "node 1")), (("vm", "vm"), ("vm node 0", "vm node 1")), (("a", ""), ("a", "node 1"))],
)
def test_machines_of_one_name_or_none_are_told_apart_by_their_numbers(
    names: tuple[str, str], hosts: tuple[str, str]
) -> None:
    assert merge([on(name, node(k)) for k, name in enumerate(names)]).hosts == hosts


SPAN = PhaseSpan(phase=Phase.WEIGHTS, source="TP0", rank=0, began=NOW - 60)


def test_the_whole_is_as_far_as_the_last_and_moves_if_one_does() -> None:
    early = replace(node(0), phase=Phase.RENDEZVOUS, quiet_since=NOW - 90, motion=Motion.STALLED)
    late = replace(node(1), phase=Phase.WARMUP, quiet_since=NOW - 30, motion=Motion.MOVING)
    merged = merge([early, late])
    assert (merged.phase, merged.quiet_since, merged.motion) == (Phase.RENDEZVOUS, NOW - 30, Motion.MOVING)
    assert (merged.ranks, merged.nodes, merged.hosts) == (8, 2, ("node-0", "node-1"))
    assert len(merged.looks) == 2
    assert len(merge([early, replace(late, looks=late.looks[-1:])]).looks) == 1


def test_what_one_machine_could_not_see_is_a_gap_and_the_rest_is_kept() -> None:
    refused = Gap(what="locks", reason=GapReason.NO_PERMISSION, pid=7)
    lock = Lock(kind="flock", path="/x", holder=100, waiters=(101,))
    first = on("a", bundle(look(process(100), process(101), locks=(lock,))))
    second = on("b", bundle(look(process(100), locks=refused)))
    merged = merge([first, second]).looks[-1]
    assert merged.locks == (lock,)
    assert replace(refused, pid=PIDS_A_NODE + 7) in merged.gaps


def test_two_bundles_of_one_machine_are_two_looks() -> None:
    early = on("a", replace(bundle(look(process(100), at=NOW - 60)), at=NOW - 60, exits=(ended(7),)))
    late = on("a", bundle(look(process(100))))
    merged = merge([late, early])
    assert [one.at for one in merged.looks] == [NOW - 60, NOW]
    assert merged.exits == early.exits
    assert merged.hosts == ()


def seen_alone(pid: int, at: float, **more: object) -> Bundle:
    """What a look at one rank shows that was started by a command of its own."""
    rank = process(pid, thread(pid, BARRIER), rank=pid - 100, role=Role.WORKER)
    return on("a", replace(twice(rank), at=at, motion=Motion.QUIET), **more)


@pytest.mark.parametrize("ranks", [2, 3])
def test_looks_at_several_processes_of_one_machine_are_one_server(ranks: int) -> None:
    given = [seen_alone(100 + rank, NOW + 9 * rank, engine="vllm") for rank in range(ranks)]
    merged = merge(given)
    for one in merged.looks:
        assert [each.process.id.pid for each in one.processes] == [100 + rank for rank in range(ranks)]
    assert len(merged.looks) == 2
    assert merged.hosts == ()
    assert "come and go" not in state(merged, stalled=False).headline


def test_of_a_process_that_was_seen_twice_the_later_looks_count() -> None:
    """A look at the first process of a server and then one at a rank of it."""
    both = on("a", replace(twice(process(90), process(100, cpu_s=5.0)), at=NOW - 20))
    alone = on("a", twice(process(100, cpu_s=9.0)))
    merged = merge([both, alone])
    assert [one.process.id.pid for one in merged.looks[-1].processes] == [90, 100]
    assert merged.looks[-1].processes[1].sample.cpu_s == 9.0


def test_what_one_look_took_for_a_leftover_may_be_another_rank() -> None:
    taken = tuple(Leftover(pid=pid, name="rank", state="S", age_s=9.0) for pid in (101, 555))
    first = seen_alone(100, NOW)
    first = replace(first, looks=tuple(replace(one, leftovers=taken) for one in first.looks))
    leftovers = merge([first, seen_alone(101, NOW + 5)]).looks[-1].leftovers
    assert leftovers == taken[1:]


@pytest.mark.parametrize(
    ("later", "says"),
    [({"at": NOW + 500}, "500 s apart"), ({"at": NOW + 5, "engine": "sglang"}, "different servers")],
)
def test_processes_that_cannot_be_of_one_server_are_refused(later: dict[str, object], says: str) -> None:
    with pytest.raises(BundleError, match=says):
        merge([seen_alone(100, NOW, engine="vllm"), replace(seen_alone(101, NOW, engine="vllm"), **later)])


def test_one_bundle_is_itself() -> None:
    assert merge([node(0)]) == node(0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "no bundle"),
        ([on("a", bundle()), replace(on("a", bundle()), run="other")], "different runs: r and other"),
        ([node(0), replace(node(1), engine="sglang")], "different servers"),
        ([node(0), replace(node(1), nodes=4)], "different servers"),
        ([node(0), replace(node(1), node=0)], "each says that it is node 0"),
        ([node(0), replace(node(1), started=NOW + 9999, at=NOW + 9999)], "one began after the other was seen"),
    ],
    ids=["none", "two runs", "two engines", "two sizes", "one node twice", "two times"],
)
def test_bundles_of_different_servers_are_refused(given: list[Bundle], says: str) -> None:
    with pytest.raises(BundleError, match=says):
        merge(given)


PID_LIKE = {
    "pid",
    "ppid",
    "tid",
    "tracer",
    "owner",
    "holder",
    "waiters",
    "builders",
    "waiting",
    "mapped_by",
    "watchers",
}


def records(kind: type[Record] = Record) -> set[type[Record]]:
    return {kind, *(below for one in kind.__subclasses__() for below in records(one))}


def test_every_field_that_holds_pids_is_moved() -> None:
    """A new record of a look with a pid in it must be in the table, or machines would be mixed up."""
    judged = {one for one in records() if one.__module__ in MODULES}
    found = {(one, name) for one in judged for name in one.__struct_fields__ if name in PID_LIKE}
    found = {row for row in found if row[0] is not PhaseMark} | {(OpenFile, "peers")}
    assert found == {(one, name) for one, names in _PIDS.items() for name in names}


MODULES = {f"firstlight.core.{name}" for name in ("bundle", "look", "process", "gap", "gpu", "facts", "log", "host")}


def test_moving_there_and_back_changes_nothing() -> None:
    one = node(0, exits=(ended(7),), gaps=(Gap(what="x", reason=GapReason.FAILED, pid=3),))
    assert moved_by(moved_by(one, PIDS_A_NODE), -PIDS_A_NODE) == one
    assert isinstance(one, bundles.Bundle)
