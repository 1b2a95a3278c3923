"""What the report of a stalled server with 64 ranks takes: seconds and bytes in each form. The aims: the HTML at most
1 MB, the Markdown at most 60,000 characters.

"alike" are ranks that all wait for one; "apart" are ranks that each wait for a lock of their own, at places of their
own, so that nothing can be told of several at once: the largest report there is.
"""

import random
import time
from collections.abc import Callable

from firstlight.core.graph import Edge, Node, Signature, StackTree, Strip, TreeFrame, WaitGraph
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.look import Frame
from firstlight.core.record import to_json
from firstlight.core.report import Finding, Report, ReportedProcess
from firstlight.core.vocabulary import Outcome, Phase, Role
from firstlight.report.html import html
from firstlight.report.markdown import markdown
from firstlight.report.terminal import terminal
from pairs import machine, spread

RANKS = 64
BEGAN = 1_700_000_000.0
TIMES = 15
FORMS: dict[str, Callable[[Report], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "html": html,
    "json": lambda report: to_json(report).decode(),
}


def report(*, apart: bool) -> Report:
    processes = [process(rank, apart=apart) for rank in range(RANKS)]
    return Report(
        run="2026-11-29-140211-vllm-a3f",
        outcome=Outcome.STALLED,
        headline="rank 63 waits for the build lock of a process that died, and 63 ranks wait for it",
        engine="vllm",
        engine_version="0.32.0",
        command=("vllm", "serve", "Qwen/Qwen3-235B-A22B", "-tp", "64"),
        started=BEGAN,
        ended=BEGAN + 600,
        phase=Phase.COMPILE,
        quiet_since=BEGAN + 500,
        timeline=tuple(span for rank in range(RANKS) for span in phases(rank)),
        processes=tuple(processes),
        findings=tuple(finding(number) for number in range(6)),
        log_tail=tuple(
            LogLine(stream="stderr", at=BEGAN, text=f"{n} {'word ' * 20}", message=str(n)) for n in range(20)
        ),
        weighed=tuple((f"a cause that was weighed, number {n}", "not seen") for n in range(60)),
        graph=graph(apart=apart),
        tree=tree(apart=apart),
        signature=Signature(digest="3f9c2a71", phase="compile", waits=("most ranks: all_reduce", "one rank: wait")),
        strips=tuple(strip for rank in range(RANKS) for strip in strips(rank)),
        environment=tuple((f"NAME_{n}", f"/some/value/of/an/environment/variable/{n}") for n in range(60)),
    )


def process(rank: int, *, apart: bool) -> ReportedProcess:
    stack = tuple(Frame(function=f"f{depth}", file=f"some/module_{depth}.py", line=depth) for depth in range(6))
    return ReportedProcess(
        pid=1000 + rank,
        name=f"VLLM::Worker_TP{rank}",
        role=Role.WORKER,
        rank=rank,
        label=f"Worker_TP{rank}",
        state="S",
        cpu_percent=0.3,
        memory_bytes=3_200_000_000,
        doing=f"waits for lock {rank}" if apart else "waits in an all-reduce",
        phase=Phase.COMPILE,
        where=stack,
    )


def phases(rank: int) -> tuple[PhaseSpan, ...]:
    stages = (Phase.SPAWN, Phase.IMPORT, Phase.RENDEZVOUS, Phase.COMM_INIT, Phase.WEIGHTS, Phase.KV_CACHE)
    done = tuple(span(phase, rank, 20 * at + rank / 10, 20 * at + 19) for at, phase in enumerate(stages))
    return (*done, span(Phase.COMPILE, rank, 130, None))


def span(phase: Phase, rank: int, began: float, ended: float | None) -> PhaseSpan:
    end = None if ended is None else BEGAN + ended
    return PhaseSpan(phase=phase, source=f"Worker_TP{rank}", rank=rank, began=BEGAN + began, ended=end)


def strips(rank: int) -> tuple[Strip, ...]:
    chance = random.Random(rank)
    return tuple(
        Strip(
            source=f"Worker_TP{rank}",
            rank=rank,
            what=what,
            began=BEGAN,
            step_s=2.5,
            values=tuple(float(f"{chance.random() * top:.3g}") for _ in range(240)),
        )
        for what, top in (("cpu", 8.0), ("io", 4e9), ("gpu", 100.0))
    )


def finding(number: int) -> Finding:
    lines = tuple(f"a line of evidence about /proc/{1000 + n}/stat, as long as they are ({n})" for n in range(6))
    return Finding(
        id=f"f{number}", title=f"finding {number}", verdict="supported", evidence=lines, advice=lines, traps=lines[:2]
    )


def graph(*, apart: bool) -> WaitGraph:
    ranks = tuple(
        Node(id=f"w{rank}", kind="process", label=f"Worker_TP{rank} (rank {rank}, pid {1000 + rank})", rank=rank)
        for rank in range(RANKS)
    )
    if not apart:
        edges = tuple(Edge(source=f"w{rank}", target="w63", kind="collective") for rank in range(RANKS - 1))
        return WaitGraph(nodes=ranks, edges=edges, sinks=("w63",))
    locks = tuple(
        Node(
            id=f"l{rank}",
            kind="lock",
            label=f"/cache/{'abcdefgh'[rank % 8]}/{'xyz'[rank % 3]}{rank}/lock",
            note="x" * (rank % 40),
        )
        for rank in range(RANKS)
    )
    holds = tuple(
        Edge(source=f"w{rank}", target=f"l{rank}", kind="lock_file", label="y" * (rank % 30)) for rank in range(RANKS)
    )
    meets = tuple(Edge(source=f"l{rank}", target=f"w{rank // 2}", kind="lock_file") for rank in range(1, RANKS))
    return WaitGraph(nodes=(*ranks, *locks), edges=(*holds, *meets))


def tree(*, apart: bool) -> StackTree:
    common = [
        TreeFrame(parent=n - 1, function=f"f{n}", place=f"some/module_{n}.py:{n}", present="0-63", count=RANKS)
        for n in range(20)
    ]
    tails = [
        TreeFrame(
            parent=19 if n == 0 else 19 + rank * 10 + n,
            function=f"at_{rank}_{n}",
            place=f"some/other/module_{n}.py:{n}",
            present=str(rank),
            count=1,
            leaf=int(n == 9),
        )
        for rank in range(RANKS if apart else 2)
        for n in range(10)
    ]
    return StackTree(members=RANKS, frames=(*common, *tails))


def took(form: Callable[[Report], str], made: Report) -> float:
    began = time.perf_counter()
    form(made)
    return time.perf_counter() - began


print(__doc__)
print(machine())
for word, made in (("alike", report(apart=False)), ("apart", report(apart=True))):
    for name, form in FORMS.items():
        seconds = [took(form, made) for _ in range(TIMES)]
        size = len(form(made).encode())
        print(f"  {word}, {name:<10} {spread(seconds, ' s'):<40} {size:>9,} bytes")
