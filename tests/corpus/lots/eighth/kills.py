"""Servers of the eighth lot that lost a process, or that were ended from outside."""

from tests.corpus.lots.eighth.ends import FRONT_SAYS, over, trace
from tests.corpus.lots.eighth.machines import heard
from tests.corpus.surroundings import idle_threads

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Motion, Phase
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    bundle,
    ended,
    engine,
    front,
    gpus,
    helper,
    host,
    ordinary_facts,
    process,
    rank,
)


def copies_in_memory(*, killed: bool) -> Bundle:
    """Eight Ray workers, each of which reads the whole checkpoint into memory before it keeps its share."""
    loads = (
        "load (torch/serialization.py:1014)",
        "hf_model_weights_iterator (vllm/model_executor/weight_utils.py:220)",
    )
    there = [
        rank(n, name="ray::RayWorker.execute_method", stack=loads, state="R", cpu=0.9, threads=idle_threads(),
             memory=12 * GB, moves=Moves(memory_bytes=GB, read_bytes=GB))
        for n in range(8)
    ]  # fmt: skip
    calls = ("get (ray/_private/worker.py:2493)", "_run_workers (vllm/engine/llm_engine.py:720)")
    driver = process(FRONT, "python", stack=calls, ppid=1)
    where = host(memory_bytes=240 * GB, memory_free_bytes=228 * GB)
    if not killed:
        return bundle(
            driver, there, phase=Phase.WEIGHTS, version="0.2.0", host=where, ranks=8, motion=Motion.MOVING, quiet_s=2,
            gpus=gpus(8, fabric="not supported"),
        )  # fmt: skip
    frames = (
        "vllm/engine/llm_engine.py:720 _run_workers | all_outputs = ray.get(all_outputs)",
        "ray/_private/worker.py:2495 get | raise value",
    )
    said = (
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        (
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit "
            "detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential "
            "root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage."
        ),
    )
    gone = [ended(there[n], signal=9, oom=True, ago_s=9 + n) for n in (3, 6)]
    rest = [ended(there[n], ago_s=2) for n in (0, 1, 2, 4, 5, 7)]
    return over(
        trace("", frames, *said), exits=[*gone, *rest, ended(driver, code=1, ago_s=1)], version="0.2.0", ranks=8,
        phase=Phase.WEIGHTS, host=where,
    )  # fmt: skip


def pins_too_much(*, killed: bool) -> Bundle:
    core = engine(
        stack=("pin_memory (torch/_tensor.py:900)", "offload (vllm/model_executor/offloader/uva.py:120)"), state="R",
        cpu=1.0, memory=120 * GB,
    )  # fmt: skip
    if not killed:
        return bundle(
            front(), core, helper(), phase=Phase.MODEL_INIT, version="0.28.0", options={"cpu_offload_gb": "150"}
        )
    gone = (ended(core, signal=9, oom=True, ago_s=3), ended(front(), code=1, ago_s=1))
    return over(
        FRONT_SAYS, exits=gone, version="0.28.0", options={"cpu_offload_gb": "150"},
        host=host(memory_bytes=196 * GB, memory_free_bytes=186 * GB),
    )  # fmt: skip


def probed(*, killed: bool) -> Bundle:
    loads = (
        "load_weights (vllm/model_executor/models/mllama4.py:900)",
        "worker_main (vllm/v1/executor/multiproc_executor.py:540)",
    )
    ranks_ = [rank(n, stack=loads, state="R", cpu=1.0, threads=idle_threads()) for n in range(4)]
    raw = [
        (
            "(VllmWorker rank=0 pid=4100) Loading safetensors checkpoint shards:  38% Completed | 19/50 "
            "[01:44<03:02,  5.9s/it]"
        )
    ]
    told: dict[str, object] = {
        "version": "0.9.1",
        "phase": Phase.WEIGHTS,
        "host": host(container="kubernetes"),
        "ranks": 4,
    }
    if not killed:
        return heard(bundle(front(), engine(), ranks_, motion=Motion.MOVING, quiet_s=3, **told), raw, ago_s=4)
    gone = [ended(one, signal=15, ago_s=2) for one in (front(), engine(), *ranks_)]
    return over(raw, exits=gone, **told)


def lost_a_file() -> Bundle:
    """Eight ranks on AMD GPUs; one could not open a library of kernels that the others have."""
    library = "/opt/venv/lib/python3.11/site-packages/torch/lib/hipblaslt/library/TensileLibrary_lazy_gfx942.dat"
    facts = ordinary_facts(libraries=(), nofile=1024)
    waits = (
        "all_reduce (torch/distributed/distributed_c10d.py:2500)",
        "profile_run (vllm/worker/model_runner.py:1290)",
    )
    made = bundle(
        front(facts=facts),
        [rank(n, stack=waits, facts=facts, state="R", cpu=1.0, threads=idle_threads()) for n in range(7)],
        version="0.6.3", exits=(ended(rank(7), ago_s=30),), ranks=8, phase=Phase.KV_CACHE,
        gpus=gpus(8, name="AMD Instinct MI300X", vendor="amd", architecture="gfx942", fabric="not supported"),
    )  # fmt: skip
    said = [
        f"rocblaslt error: Could not load {library}",
        "",
        "ERROR 10-10 14:02:11 multiproc_worker_utils.py:117] Worker VllmWorkerProcess pid 4107 died, exit code: -6",
    ]
    return heard(made, said, ago_s=31)
