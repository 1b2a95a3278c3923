"""Public reports of stalls: the cause is said where it is in sight, and never another."""

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.corpus.case import Case, all_cases, outcome, right, symptoms, wrong
from tests.corpus.pages import LOTS, pages

from firstlight.core.bundle import Bundle, read_bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.look import Look, ProcessLook
from firstlight.core.record import to_json
from firstlight.diagnose.causes import all_causes
from firstlight.diagnose.scene import scene_of
from firstlight.diagnose.weigh import weigh
from firstlight.testing.bundles import NO_PTRACE

NAMED_SHARE = 0.9
CASES = [pytest.param(case, id=case.id) for case in all_cases()]
BROKEN = re.compile(r"\{(who|what|pid)|(?<!\w)\(\)|  |^\W|[:,] ?$")
"""A field that was not filled in, or filled with nothing."""
OLD_NEWS = ("NVRM: Xid (PCI:0000:f1:00): 79, pid=99, name=other", "nvme0: I/O timeout, completion polled")
DECIDED = [pytest.param(case, id=case.id) for case in all_cases() if case.decided]


@pytest.mark.parametrize("case", CASES)
def test_no_wrong_verdict(case: Case) -> None:
    assert not wrong(case, outcome(case.bundle))


@pytest.mark.parametrize("case", CASES)
def test_every_finding_reads_as_a_sentence(case: Case) -> None:
    for before in (False, True):
        for finding in weigh(scene_of(case.bundle), all_causes(), before=before).findings:
            for words in (finding.title, *finding.advice):
                assert not BROKEN.search(words), words


@pytest.mark.parametrize("case", DECIDED)
def test_without_what_decides_nothing_is_established(case: Case) -> None:
    assert case.twin is not None
    assert outcome(case.twin).established <= case.companions | symptoms()


@pytest.mark.parametrize("case", CASES)
def test_facts_of_the_machine_alone_establish_nothing(case: Case) -> None:
    assert outcome(on_a_dubious_machine(case.bundle)).established <= outcome(case.bundle).established


def on_a_dubious_machine(bundle: Bundle) -> Bundle:
    """The same stall on a machine with a flaw of every kind, none of which is behind it."""
    variables = {"http_proxy": "http://proxy.example:3128", "LD_PRELOAD": "libjemalloc.so.2", "NCCL_DEBUG": "WARN"}
    return replace(
        bundle,
        environment=(*bundle.environment, *variables.items()),
        host=replace(
            bundle.host,
            shm_bytes=1 << 30,
            topology=Topology(iommu="on", acs=("0000:00:01.1",), bar1_bytes=256 << 20),
            preload=("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",),
            kernel_command=("iommu=on",),
            swap_bytes=8 << 30,
            clock_synchronised=False,
            container="docker",
        ),
        looks=tuple(replace(look, kernel_log=(*_lines(look), *OLD_NEWS)) for look in bundle.looks),
    )


def _lines(look: Look) -> tuple[str, ...]:
    return () if isinstance(look.kernel_log, Gap) else look.kernel_log


@pytest.mark.parametrize("case", CASES)
def test_who_sees_less_establishes_no_more(case: Case) -> None:
    assert outcome(blindfolded(case.bundle)).established <= outcome(case.bundle).established


def blindfolded(bundle: Bundle) -> Bundle:
    """The same stall, seen without permission to look into processes, GPUs and locks."""
    return replace(bundle, looks=tuple(map(_dimmed, bundle.looks)))


def _dimmed(look: Look) -> Look:
    refused = {"locks": NO_PTRACE, "gpus": NO_PTRACE, "communicators": NO_PTRACE, "kernel_log": NO_PTRACE}
    return replace(look, processes=tuple(map(_unread, look.processes)), collectives=NO_PTRACE, **refused)


def _unread(one: ProcessLook) -> ProcessLook:
    unseen = {"stack": NO_PTRACE, "native": NO_PTRACE, "kernel": NO_PTRACE, "syscall": NO_PTRACE}
    threads = tuple(replace(thread, fds=(), futex=None, **unseen) for thread in one.threads)
    facts = replace(one.facts, libraries=NO_PTRACE, environment=NO_PTRACE, capabilities=NO_PTRACE)
    return replace(one, threads=threads, files=(), facts=facts)


def test_the_cause_is_named_where_it_is_in_sight() -> None:
    decided = [case for case in all_cases() if case.decided]
    missed = [case.id for case in decided if not right(case, outcome(case.bundle))]
    assert len(missed) <= (1 - NAMED_SHARE) * len(decided), missed


def test_every_report_is_there_once() -> None:
    assert not [id_ for id_, times in Counter(case.id for case in all_cases()).items() if times > 1]


@pytest.mark.parametrize("case", CASES)
def test_a_bundle_that_was_written_is_judged_alike(case: Case) -> None:
    assert outcome(read_bundle(to_json(case.bundle))) == outcome(case.bundle)


@pytest.mark.parametrize("name", LOTS)
def test_a_first_run_counts_each_case_of_its_lot(name: str) -> None:
    lot = import_module(f"tests.corpus.lots.{name}.cases")
    assert lot.FIRST_RUN.figures[0] == len(lot.CASES)


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_the_pages_are_current(path: Path) -> None:
    assert path.read_text() == pages()[path], "write them anew: python -m tests.corpus"
