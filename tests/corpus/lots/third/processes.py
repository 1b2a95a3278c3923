"""Machines of the third lot: processes that were killed, refused, forked, or are busy."""

from tests.corpus.surroundings import (
    IDLE_WORKER,
    SCHEDULER_MAIN,
    scheduler,
    sglang,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    bundle,
    device,
    ended,
    engine,
    gpus,
    host,
    line,
    ordinary_cgroup,
    ordinary_facts,
    process,
    rank,
)


def runner_oom(*, killed: bool) -> Bundle:
    main = process(
        FRONT, "ollama", role=Role.FRONT, ppid=1,
        facts=ordinary_facts(libraries=(), cgroup=ordinary_cgroup(memory_max_bytes=6 * GB, oom_kills=int(killed))),
    )  # fmt: skip
    return bundle(
        [] if killed else [main], engine="generic", phase=Phase.SERVING, host=host(container="kubernetes"),
        exits=[ended(main, signal=9, oom=True)] if killed else [],
    )  # fmt: skip


def membind(*, refused: bool) -> Bundle:
    said = ("set_mempolicy: Operation not permitted", "setting membind: Operation not permitted")
    facts = ordinary_facts(capabilities=("chown", "kill"), seccomp=2)
    gone = [ended(rank(n), code=1, ago_s=200) for n in range(2)]
    return vllm(
        [] if refused else workers(2, IDLE_WORKER, facts=facts),
        phase=Phase.SPAWN,
        ranks=2,
        host=host(container="docker"),
        options={"numa-bind": [], "numa-bind-nodes": ["0", "1"]},
        exits=gone if refused else [],
        log=[line(one, source="Worker_TP0", number=0, level="ERROR", ago_s=201) for one in said] if refused else [],
    )


def swap(*, killed: bool) -> Bundle:
    runner = process(4100, "llama-server", role=Role.WORKER, cpu=0.6, moves=Moves(read_bytes=GB))
    parent = process(FRONT, "llama-swap", role=Role.FRONT, ppid=1, memory=GB // 8, facts=ordinary_facts(libraries=()))
    said = "unable to start process: health check timed out after 15s"
    return bundle(
        parent,
        [] if killed else [runner],
        engine="generic",
        phase=Phase.WEIGHTS,
        motion=Motion.MOVING,
        exits=[ended(runner, signal=15, ago_s=2)] if killed else [],
        log=[line("load_tensors: offloaded 33/48 layers", ago_s=4), line(said, level="ERROR", ago_s=2)][: 1 + killed],
    )


def forked(*, forked: bool) -> Bundle:
    stack = (
        "_lazy_init (torch/cuda/__init__.py:310)",
        "set_device (torch/cuda/__init__.py:420)",
        "init_device (vllm/v1/worker/gpu_worker.py:170)",
        "run_engine_core (vllm/v1/engine/core.py:500)",
        "_bootstrap (multiprocessing/process.py:314)",
        "_launch (multiprocessing/popen_fork.py:71)",
        "__init__ (vllm/v1/engine/core_client.py:440)",
        "<module> (run.py:90)",
    )
    parent = process(
        FRONT, "python", stack=["poll (zmq/sugar/poll.py:106)", "__init__ (vllm/v1/engine/core_client.py:450)"],
        ppid=1, facts=ordinary_facts(), files=[device("/dev/nvidia-uvm")] if forked else [],
    )  # fmt: skip
    child = engine(
        stack=stack if forked else stack[3:5],
        native=["?? (libcuda.so.1)", "cuInit (libcuda.so.1)"] if forked else (),
        facts=ordinary_facts(forked=forked, parent_threads=42 if forked else 1),
    )
    return bundle(parent, child, phase=Phase.SPAWN, gpus=gpus(1))


def evicts(*, busy: bool) -> Bundle:
    stack = (
        "_evict_mamba (sglang/srt/mem_cache/hi_mamba_radix_cache.py:700)",
        "evict (sglang/srt/mem_cache/hi_mamba_radix_cache.py:650)",
        "get_next_batch_to_run (sglang/srt/managers/scheduler.py:1900)",
        SCHEDULER_MAIN,
    )
    return sglang(
        scheduler(0, stack if busy else stack[3:], state="R" if busy else "S", cpu=1.0 * busy),
        phase=Phase.SERVING,
        gpus=gpus(1),
        question="no token within 60 s",
    )
