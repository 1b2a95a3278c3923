"""Made reports: one that serves, one that stalled, one that exited; and one full of malice."""

import time
from collections.abc import Iterator

import msgspec
import pytest

from firstlight.core.gap import Gap
from firstlight.core.graph import Edge, Node, Signature, StackTree, Strip, TreeFrame, WaitGraph
from firstlight.core.log import Counter, LogLine, PhaseSpan
from firstlight.core.look import Frame
from firstlight.core.process import Exit, ProcessId
from firstlight.core.report import Finding, FirstToken, Report, ReportedProcess
from firstlight.core.vocabulary import GapReason, Outcome, Phase, Role

BEGAN = 1_700_000_000.0


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reports show local time; goldens need the same one everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def span(phase: Phase, began: float, ended: float | None, rank: int = -1) -> PhaseSpan:
    source = f"Worker_TP{rank}" if rank >= 0 else ""
    return PhaseSpan(
        phase=phase, source=source, began=BEGAN + began, ended=None if ended is None else BEGAN + ended, rank=rank
    )


def line(text: str, at: float = 11.0) -> LogLine:
    return LogLine(stream="stderr", at=BEGAN + at, text=text, message=text)


def worker(rank: int, doing: str, where: tuple[Frame, ...], *, state: str = "S", last: str = "") -> ReportedProcess:
    return ReportedProcess(
        pid=100 + rank,
        name=f"VLLM::Worker_TP{rank}",
        role=Role.WORKER,
        rank=rank,
        label=f"Worker_TP{rank}",
        state=state,
        cpu_percent=0.4,
        memory_bytes=3_200_000_000,
        doing=doing,
        phase=Phase.WEIGHTS,
        where=where,
        last_words=last,
    )


@pytest.fixture
def serving() -> Report:
    return Report(
        run="2023-11-14-221320-embedded-000",
        outcome=Outcome.SERVING,
        headline="first light after 7.2 s: SmolLM2-135M-Instruct answered at http://127.0.0.1:8000",
        engine="embedded",
        engine_version="0.1.0",
        command=("firstlight", "serve", "/models/SmolLM2-135M-Instruct"),
        started=BEGAN,
        ended=BEGAN + 7.2,
        phase=Phase.SERVING,
        url="http://127.0.0.1:8000",
        first_token=FirstToken(
            prompt="The capital of France is",
            text=" Paris.\nIt lies on the Seine.",
            model="SmolLM2-135M-Instruct",
            tokens=9,
            after_launch_s=7.2,
            request_s=0.41,
        ),
        timeline=(
            span(Phase.SPAWN, 0, 0.3),
            span(Phase.IMPORT, 0.3, 4.1),
            span(Phase.WEIGHTS, 4.1, 6.6),
            span(Phase.VERIFY, 6.6, 7.2),
            span(Phase.SERVING, 7.2, None),
        ),
    )


@pytest.fixture
def stalled() -> Report:
    waits = (
        Frame(function="all_reduce", file="torch/distributed/distributed_c10d.py", line=2501),
        Frame(function="load_weights", file="vllm/model_loader.py", line=88),
    )
    reads = (Frame(function="_read_shard", file="safetensors/__init__.py", line=31),)
    stopped = worker(1, "stopped by a signal", reads, state="T", last="Loading checkpoint shards: 19%")
    waiting = [worker(rank, "waits in an all-reduce for rank 1", waits) for rank in (0, 2, 3)]
    return Report(
        run="2023-11-14-221320-vllm-a3f",
        outcome=Outcome.STALLED,
        headline="Worker_TP1 (rank 1, pid 101) is stopped by a signal in weights, and 3 ranks have waited "
        "for it since 22:13:40",
        engine="vllm",
        engine_version="0.32.0",
        command=("vllm", "serve", "Qwen/Qwen3-8B", "-tp", "4", "--api-key", "***"),
        started=BEGAN,
        ended=BEGAN + 103,
        phase=Phase.WEIGHTS,
        url="http://127.0.0.1:8000",
        quiet_since=BEGAN + 20,
        counter=Counter(done=12, total=64, unit="shards"),
        timeline=(
            span(Phase.SPAWN, 0, 0.3),
            span(Phase.IMPORT, 0.3, 9.8),
            *(span(Phase.WEIGHTS, 10 + rank / 10, None, rank) for rank in range(4)),
        ),
        processes=(stopped, *waiting),
        findings=(
            Finding(
                id="stopped",
                title="a worker is stopped",
                verdict="established",
                pids=(101,),
                evidence=("state T in /proc/101/stat", "no CPU in 83 s"),
                advice=("kill -CONT 101",),
            ),
        ),
        gaps=(
            Gap(what="GPU work", reason=GapReason.NOT_INSTALLED, detail="pip install firstlight[gpu]"),
            Gap(what="Python stack", reason=GapReason.TIMED_OUT, pid=100),
        ),
        log_tail=(line("Loading checkpoint shards: 17%", 18), line("Loading checkpoint shards: 19%", 20)),
        bundle="/state/runs/2023-11-14-221320-vllm-a3f/bundle-1.json",
        next_steps=("kill -CONT 101 lets it go on",),
    )


@pytest.fixture
def exited() -> Report:
    return Report(
        run="2023-11-14-221320-vllm-0c1",
        outcome=Outcome.EXITED,
        headline="Worker_TP1 (pid 101) was killed by signal 9 first, and the server with it",
        engine="vllm",
        engine_version="0.32.0",
        command=("vllm", "serve", "Qwen/Qwen3-8B", "-tp", "2"),
        started=BEGAN,
        ended=BEGAN + 31,
        phase=Phase.KV_CACHE,
        timeline=(
            span(Phase.IMPORT, 0, 9.8),
            *(span(Phase.WEIGHTS, 10, 22 + rank, rank) for rank in range(2)),
            span(Phase.KV_CACHE, 23, None),
        ),
        exits=(
            Exit(
                id=ProcessId(pid=101, started=1),
                name="VLLM::Worker_TP1",
                label="Worker_TP1",
                at=BEGAN + 29,
                signal=9,
                oom=True,
                rank=1,
                role=Role.WORKER,
            ),
            Exit(id=ProcessId(pid=99, started=1), name="vllm serve", at=BEGAN + 31, code=1, role=Role.FRONT),
            Exit(
                id=ProcessId(pid=98, started=1),
                name="nvcc",
                at=BEGAN + 31,
                code=Gap(what="exit status", reason=GapReason.NOT_SUPPORTED),
            ),
        ),
        first_error=line("(EngineCore pid=100) ERROR 11-14 22:13:50 [core.py:842] EngineCore failed to start."),
        log_tail=(line("RuntimeError: Engine core initialization failed. See root cause above.", 30),),
    )


def _locked_graph(ranks: int) -> WaitGraph:
    """All ranks but the last are in an all-reduce; the last waits for a lock file that nobody will take away."""
    last = ranks - 1
    front = Node(id="api", kind="process", label="vllm serve (pid 90)", note="answers HTTP", pid=90)
    engine = Node(id="engine", kind="process", label="EngineCore (pid 99)", pid=99)
    workers = [
        Node(
            id=f"w{rank}",
            kind="process",
            label=f"Worker_TP{rank} (rank {rank}, pid {100 + rank})",
            note="waits for a build lock" if rank == last else "in all_reduce",
            pid=100 + rank,
            rank=rank,
            blamed=rank == last,
        )
        for rank in range(ranks)
    ]
    call = Node(
        id="call", kind="collective", label="all-reduce of group TP", note=f"{last} of {ranks} ranks are in it"
    )
    lock = Node(
        id="lock",
        kind="lock",
        label="/root/.cache/torch_extensions/py312_cu128/fused_ops/lock",
        note="left behind 3 h ago; nobody builds in its folder",
    )
    replies = [
        Edge(source="engine", target=one.id, kind="socket", label="reply of collective_rpc") for one in workers
    ]
    entered = [Edge(source=one.id, target="call", kind="collective", label="entered") for one in workers[:-1]]
    edges = (
        Edge(source="api", target="engine", kind="socket", label="reply over ZMQ"),
        *replies,
        *entered,
        Edge(source="call", target=f"w{last}", kind="collective", label="has not entered"),
        Edge(source=f"w{last}", target="lock", kind="lock_file", label="until the file is gone"),
    )
    return WaitGraph(nodes=(front, engine, *workers, call, lock), edges=edges, sinks=("lock",))


@pytest.fixture
def deadlock() -> WaitGraph:
    """Two threads in a deadlock, a process that waits for one of them, and one that has ended."""
    nodes = (
        Node(
            id="main", kind="thread", label="MainThread (tid 10)", note="blocks while it holds the GIL", blamed=True
        ),
        Node(id="loader", kind="thread", label="loader (tid 11)", note="holds a mutex"),
        Node(id="api", kind="process", label="api (pid 3)", pid=3),
        Node(id="gone", kind="process", label="coordinator (pid 2)", gone=True),
    )
    edges = (
        Edge(source="main", target="loader", kind="mutex", label="mutex 0x7f12"),
        Edge(source="loader", target="main", kind="gil", label="interpreter lock"),
        Edge(source="api", target="main", kind="pipe", label="pipe 77"),
        Edge(source="api", target="gone", kind="pipe", label="pipe 78"),
    )
    return WaitGraph(nodes=nodes, edges=edges, cycles=(("main", "loader"),), sinks=("gone",))


def _parted_stacks(ranks: int) -> StackTree:
    """A long way in common, then all but the last rank in an all-reduce, the last in a build."""
    common = ["<module>", "main", "worker_main", "busy_loop", "load_model", "build", "forward_dummy", "fused"]
    frames = [
        TreeFrame(
            parent=depth - 1, function=name, place=f"{name.strip('<>')}.py:{depth + 1}", present="", count=ranks
        )
        for depth, name in enumerate(common)
    ]
    last, root = ranks - 1, len(common) - 1
    all_but = {"present": f"0-{last - 1}", "count": last}
    one = {"present": f"{last}", "count": 1}
    frames = [msgspec.structs.replace(frame, present=f"0-{last}") for frame in frames]
    return StackTree(
        members=ranks,
        frames=(
            *frames,
            TreeFrame(parent=root, function="all_reduce", place="distributed_c10d.py:2501", leaf=last, **all_but),
            TreeFrame(parent=root, function="load", place="cpp_extension.py:1312", **one),
            TreeFrame(parent=root + 2, function="wait", place="file_baton.py:42", leaf=1, **one),
        ),
    )


def _series(ranks: int, count: int = 60) -> tuple[Strip, ...]:
    """CPU that fades, I/O that ends, a GPU for the first rank, and some seconds that nobody measured."""
    strips = []
    for rank in range(ranks):
        cpu = tuple(-1.0 if second in {20, 21} else max(0.0, 1.5 - second / (20 + rank)) for second in range(count))
        io = tuple(2e9 / (rank + 1) if second < 15 else 0.0 for second in range(count))
        for what, values in (("cpu", cpu), ("io", io), ("gpu", tuple(100.0 for _ in range(count)))):
            if what != "gpu" or rank == 0:
                strips.append(
                    Strip(
                        source=f"Worker_TP{rank}",
                        rank=rank,
                        what=what,
                        began=BEGAN,
                        step_s=103 / count,
                        values=values,
                    )
                )
    return tuple(strips)


def rich_report(stalled: Report, ranks: int) -> Report:
    """A report with something in every section."""
    last = ranks - 1
    waits = (Frame(function="all_reduce", file="torch/distributed/distributed_c10d.py", line=2501),)
    waiting = [worker(rank, f"waits in an all-reduce for rank {last}", waits) for rank in range(last)]
    baton = (Frame(function="wait", file="torch/utils/file_baton.py", line=42),)
    locked = worker(last, "waits for a lock file that nobody holds", baton, last="Loading extension fused_ops")
    cause = Finding(
        id="stale_build_lock",
        title=f"rank {last} waits for the build lock of a process that died at 19:02",
        verdict="established",
        pids=(100 + last,),
        evidence=(
            f"Worker_TP{last} (pid {100 + last}) stands in FileBaton.wait (file_baton.py:42) in both looks",
            "fused_ops/lock is 3 h old and no process works in its folder",
        ),
        advice=("rm /root/.cache/torch_extensions/py312_cu128/fused_ops/lock", "start the server again"),
        unseen=("who made the file: no permission (run firstlight as the same user)",),
        traps=("the all-reduce is where it shows, not why; NCCL is not to blame",),
    )
    doubtful = Finding(
        id="slow_storage",
        title="the weights are read from a slow file system",
        verdict="open",
        evidence=("/models is nfs4",),
        against=("no rank has read anything for 83 s",),
    )
    return msgspec.structs.replace(
        stalled,
        headline=f"rank {last} waits for the build lock of a process that died, and {last} ranks wait for it",
        command=(
            "vllm",
            "serve",
            "Qwen/Qwen3-8B",
            "-tp",
            str(ranks),
            "--hf-overrides",
            '{"a": 1}',
            "--api-key",
            "***",
        ),
        timeline=(
            span(Phase.SPAWN, 0, 0.3),
            *(span(Phase.IMPORT, 0.3, 9.8, rank) for rank in range(ranks)),
            *(span(Phase.WEIGHTS, 10 + rank / 10, 30 + rank / 10, rank) for rank in range(ranks)),
            *(span(Phase.COMPILE, 40 + rank / 10, None if rank == last else 60, rank) for rank in range(ranks)),
        ),
        phase=Phase.COMPILE,
        counter=None,
        processes=(locked, *waiting),
        findings=(cause, doubtful),
        weighed=(
            ("not enough shared memory", "excluded"),
            ("a rank was killed", "excluded"),
            ("a GPU fell off the bus", "not examined"),
            ("a full pipe", "not seen"),
            ("a port that is taken", "not seen"),
        ),
        graph=_locked_graph(ranks),
        tree=_parted_stacks(ranks),
        signature=Signature(
            digest="3f9c2a71",
            phase="compile",
            waits=("most ranks: all_reduce < fused", "one rank: FileBaton.wait < load < fused"),
        ),
        strips=_series(ranks),
        environment=(
            ("kernel", "6.8.0-45-generic x86_64 in docker"),
            ("GPU", f"{ranks} x NVIDIA H100 80GB HBM3"),
            ("NVIDIA driver", "570.86.10"),
            ("nccl", "2.26.2 /usr/lib/python3/site-packages/nvidia/nccl/lib/libnccl.so.2"),
            ("/dev/shm", "1.2 GB of 67 GB used"),
            ("NCCL_DEBUG", "INFO"),
        ),
        gaps=(*stalled.gaps, Gap(what="Python stack", reason=GapReason.TIMED_OUT, pid=101)),
    )


@pytest.fixture
def rich(stalled: Report) -> Report:
    return rich_report(stalled, 8)


@pytest.fixture
def many(stalled: Report) -> Report:
    """64 ranks."""
    return rich_report(stalled, 64)


MALICE = '<script>alert("1")</script>\x1b[31m]8;;http://evil\x07`@octocat #1 \u202e</pre>'


@pytest.fixture
def hostile(stalled: Report) -> Report:
    """Every text that can come from a server is an attack on some renderer."""
    evil = ReportedProcess(
        pid=1,
        name=MALICE,
        role=Role.OTHER,
        rank=-1,
        label="",
        state="S",
        cpu_percent=0,
        memory_bytes=0,
        doing=MALICE,
        where=(Frame(function=MALICE, file=MALICE, line=1),),
        last_words=MALICE,
    )
    return Report(
        run=MALICE,
        outcome=Outcome.STALLED,
        headline=MALICE,
        engine=MALICE,
        engine_version=MALICE,
        command=(MALICE,),
        started=BEGAN,
        ended=BEGAN + 1,
        phase=Phase.WEIGHTS,
        url=MALICE,
        counter=Counter(done=1, total=2, unit=MALICE),
        first_token=FirstToken(prompt=MALICE, text=MALICE, model=MALICE, tokens=1, after_launch_s=1, request_s=1),
        processes=(evil,),
        exits=(Exit(id=ProcessId(pid=1, started=1), name=MALICE, at=BEGAN, code=1),),
        findings=(
            Finding(
                id="x",
                title=MALICE,
                verdict=MALICE,
                evidence=(MALICE,),
                advice=(MALICE,),
                against=(MALICE,),
                unseen=(MALICE,),
                traps=(MALICE, "x" * 1_000_000),
            ),
        ),
        weighed=((MALICE, MALICE),),
        graph=WaitGraph(
            nodes=(
                Node(id=MALICE, kind=MALICE, label=MALICE, note=MALICE, blamed=True),
                Node(id="b", kind="lock", label="y" * 1_000_000, note=MALICE),
            ),
            edges=(
                Edge(source=MALICE, target="b", kind=MALICE, label=MALICE),
                Edge(source="b", target=MALICE, kind="mutex", label=MALICE),
                Edge(source="b", target="nobody", kind="mutex"),
            ),
            cycles=((MALICE, "b"), ("nobody",)),
            sinks=("nobody",),
        ),
        tree=StackTree(
            members=2,
            frames=(
                TreeFrame(parent=-1, function=MALICE, place=MALICE, present=MALICE, count=2),
                TreeFrame(parent=7, function="z" * 1_000_000, place=MALICE, present=MALICE, count=1, leaf=1),
            ),
        ),
        signature=Signature(digest=MALICE, phase=MALICE, waits=(MALICE,)),
        strips=(
            Strip(source=MALICE, rank=-1, what="cpu", began=BEGAN, step_s=1, values=(1.0, -1.0)),
            Strip(source=MALICE, rank=-1, what=MALICE, began=BEGAN, step_s=0, values=()),
        ),
        environment=((MALICE, MALICE),),
        gaps=(Gap(what=MALICE, reason=GapReason.FAILED, detail=MALICE),),
        first_error=line(MALICE),
        log_tail=(line(MALICE), line("x" * 100_000)),
        bundle=MALICE,
        next_steps=(MALICE,),
    )
