"""How long a bundle takes to be judged: nine processes of one machine, and 64 ranks on eight. The aim: 0.5 s. And
thousands of ranks on one machine, with a few threads each. The aims: 2 s for 2,000 and 10 s for 10,000.

Timed is all that `firstlight why` does between its start and the first word: read the file, merge, judge.
"""

import time

import msgspec

from firstlight.core.bundle import Bundle, LogTail, read_bundle
from firstlight.core.host import Host
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.look import Frame, Look, NativeFrame, OpenFile, ProcessLook, ThreadLook
from firstlight.core.process import Process, ProcessId, ProcessSample
from firstlight.core.record import to_json
from firstlight.core.vocabulary import Phase, Role
from firstlight.diagnose import merge, reported

RANKS = 8
MANY = (2_000, 10_000)
FEW_THREADS = 2
FEW_FILES = 6
THREADS = 40
DEEP = 25
FILES = 60
LINES = 200
TIMES = 7
NOW = 1_000_000.0
SITE = "/v/lib/python3.11/site-packages"


def frames(odd: bool) -> tuple[Frame, ...]:
    own = [Frame(function=f"step_{n}", file=f"{SITE}/vllm/part_{n % 5}.py", line=n, code="x()") for n in range(DEEP)]
    leaf = Frame(function="barrier", file=f"{SITE}/torch/distributed/distributed_c10d.py", line=5356)
    return (*([] if odd else [leaf]), *reversed(own[: DEEP - int(odd)]))


def threads(pid: int, odd: bool) -> tuple[ThreadLook, ...]:
    """The main thread and many that a framework keeps."""
    idle = (
        Frame(function="_worker", file="/usr/lib/python3.11/concurrent/futures/thread.py", line=81),
        Frame(function="Thread.run", file="/usr/lib/python3.11/threading.py", line=982),
    )
    native = tuple(NativeFrame(function=f"native_{n}", library="libtorch_cpu.so") for n in range(12))
    return tuple(
        ThreadLook(
            tid=pid + n,
            name=f"thread-{n}",
            state="S",
            cpu_s=1.0,
            wchan="futex_wait_queue",
            syscall=f"futex(0x7f{n:06x}, 0x189, 0x0, 0x0)",
            stack=frames(odd) if n == 0 else idle if n % 2 else (),
            native=native,
        )
        for n in range(THREADS)
    )


def process(pid: int, rank: int, odd: bool) -> ProcessLook:
    identity = ProcessId(pid=pid, started=pid)
    return ProcessLook(
        process=Process(
            id=identity,
            ppid=100 if rank >= 0 else 1,
            name="vllm",
            cmdline=("vllm", "serve", "a/model"),
            role=Role.WORKER if rank >= 0 else Role.FRONT,
            label=f"TP{rank}" if rank >= 0 else "",
            rank=rank,
        ),
        sample=ProcessSample(
            id=identity,
            state="S",
            cpu_s=10.0,
            threads=THREADS,
            major_faults=0,
            memory_bytes=1 << 30,
            shared_bytes=1 << 20,
            read_bytes=0,
            write_bytes=0,
            disk_read_bytes=0,
        ),
        threads=threads(pid, odd),
        files=tuple(OpenFile(fd=n, kind="pipe", target=f"pipe:[{pid + n}]", peers=(100, pid)) for n in range(FILES)),
    )


def node(k: int) -> Bundle:
    seen = [process(100, -1, odd=False)]
    seen += [process(1000 + 100 * rank, rank, odd=k == 3 and rank == 5) for rank in range(RANKS)]
    lines = tuple(
        LogLine(stream="stderr", at=NOW, text=f"INFO {n} loading", message=f"loading {n}", source="TP0")
        for n in range(LINES)
    )
    looks = [Look(at=at, monotonic=at, took_s=1.0, processes=tuple(seen)) for at in (NOW - 5, NOW)]
    return Bundle(
        made_by="bench",
        run=f"run-{k}",
        at=NOW,
        engine="vllm",
        engine_version="",
        command=("vllm",),
        phase=Phase.WARMUP,
        quiet_since=NOW - 60,
        host=Host(
            name=f"node-{k}", kernel="6", cpus=64, memory_bytes=1, shm_bytes=1, shm_used_bytes=0, may_ptrace="any"
        ),
        looks=tuple(looks),
        logs=(LogTail(source="TP0", lines=lines),),
        node=k,
        nodes=8,
        ranks=RANKS,
    )


def many(count: int) -> Bundle:
    """One machine with that many ranks, one of which is elsewhere; each has a line of the log and a phase."""
    those = [process(100, -1, odd=False)]
    those += [process(1000 + 10 * rank, rank, odd=rank == count // 2) for rank in range(count)]
    small = tuple(
        msgspec.structs.replace(one, threads=one.threads[:FEW_THREADS], files=one.files[:FEW_FILES]) for one in those
    )
    base = node(0)
    said = LogLine(stream="stderr", at=NOW, text="loading", message="loading")
    return msgspec.structs.replace(
        base,
        nodes=1,
        ranks=count,
        looks=tuple(msgspec.structs.replace(look, processes=small) for look in base.looks),
        logs=tuple(
            LogTail(source=f"TP{n}", lines=(msgspec.structs.replace(said, source=f"TP{n}"),)) for n in range(count)
        ),
        timeline=tuple(PhaseSpan(phase=Phase.WEIGHTS, source=f"TP{n}", rank=n, began=NOW - 90) for n in range(count)),
    )


def timed(written: list[bytes], times: int = TIMES) -> tuple[str, list[float], list[float]]:
    reading, judging = [], []
    for _ in range(times):
        began = time.perf_counter()
        bundle = merge(map(read_bundle, written))
        read = time.perf_counter()
        report = reported(bundle)
        judging.append(time.perf_counter() - read)
        reading.append(read - began)
    return report.headline, reading, judging


print(__doc__)
eight = [to_json(node(k)) for k in range(8)]
one = [to_json(msgspec.structs.replace(node(0), nodes=1))]
for what, written in (("nine processes", one), ("64 ranks on eight machines", eight)):
    headline, reading, judging = timed(written)
    print(f"{what}, {sum(map(len, written)) / 1e6:.1f} MB: {headline}")
    print(f"  read and merged in {min(reading):.3f} s, judged in {min(judging):.3f} s (best of {TIMES})")
    print(f"  the first time, with every pattern to compile: {reading[0]:.3f} s and {judging[0]:.3f} s")
for count in MANY:
    written = [to_json(many(count))]
    headline, reading, judging = timed(written, times=1)
    print(f"{count:,} ranks of one machine, {len(written[0]) / 1e6:.0f} MB: {headline[:200]}")
    print(f"  read in {reading[0]:.2f} s, judged in {judging[0]:.2f} s")
