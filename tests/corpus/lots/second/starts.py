"""Machines of the second lot: processes that are begun wrongly, given up, or find no room."""

from firstlight.core.bundle import Bundle
from firstlight.core.look import Lock
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    bundle,
    ended,
    engine,
    file,
    front,
    gpus,
    helper,
    host,
    line,
    ordinary_facts,
    process,
    rank,
    thread,
)


def stages(*, both: bool) -> Bundle:
    """Two threads of one process: one has the lock file and wants the lock in memory, the other has that and polls
    the file."""
    path = "/tmp/vllm_omni_device_3_init.lock"
    polls = thread(
        [
            "acquire_device_locks (vllm_omni/engine/stage_init_utils.py:310): time.sleep(0.1)",
            "_initialize_local_llm_replica (vllm_omni/engine/stage_runtime.py:500)",
            "_worker (concurrent/futures/thread.py:90)",
        ],
        name="stage-init_1",
        syscall="clock_nanosleep(0x0, 0x0)",
    )
    wants = thread(
        [
            "__enter__ (contextlib.py:137)",
            "scoped_spawn_device_env (vllm_omni/engine/stage_runtime.py:120): with self._spawn_device_lock:",
            "launch_stage_replica (vllm_omni/engine/stage_runtime.py:540)",
            "_initialize_local_llm_replica (vllm_omni/engine/stage_runtime.py:520)",
            "_worker (concurrent/futures/thread.py:90)",
        ],
        name="stage-init_0",
        syscall="futex(0x7f3a10, 0x189, 0x0)",
    )
    main = process(
        FRONT,
        "vllm",
        stack=["wait (threading.py:355)", "result (concurrent/futures/_base.py:451)", "start (vllm_omni/omni.py:80)"],
        threads=[wants, polls] if both else [],
        files=[file(path, fd=33, access="rw"), file(path, fd=35, access="rw")],
        role=Role.FRONT,
        ppid=1,
    )
    lock = Lock(kind="flock", path=path, holder=FRONT, holder_name="vllm")
    return bundle(main, phase=Phase.SPAWN, gpus=gpus(4, name="NVIDIA L20"), locks=[lock] if both else [])


def group(stack: tuple[str, ...], *said: str, waits: bool = True) -> Bundle:
    core = ("get (ray/_private/worker.py:2800)", "auto_init_wrapper (ray/_private/auto_init_hook.py:22)", *stack)
    return bundle(
        front(),
        engine(stack=core if waits else ["select (selectors.py:468)"], syscall="futex(0x7f)"),
        process(4500, "raylet", role=Role.HELPER, ppid=1, memory=GB, facts=ordinary_facts(libraries=())),
        phase=Phase.RENDEZVOUS,
        options={"tensor-parallel-size": "16"},
        log=[line(one, source="EngineCore", level="WARNING", ago_s=200) for one in said],
    )


def runner(*, killed: bool) -> Bundle:
    parent = process(FRONT, "ollama", role=Role.FRONT, ppid=1, memory=GB // 4, facts=ordinary_facts(libraries=()))
    runner = process(4100, "ollama_llama_se", role=Role.WORKER, state="D", memory=9 * GB)
    said = "error loading llama server error=timed out waiting for llama runner to start - progress 0.00 -"
    return bundle(
        parent,
        [] if killed else [runner],
        engine="generic",
        phase=Phase.WEIGHTS,
        exits=[ended(runner, signal=9, ago_s=3)] if killed else [],
        log=[line(said, level="ERROR", ago_s=3)] if killed else [],
        quiet_s=290,
    )


def restored(*, killed: bool) -> Bundle:
    main = front(stack=["restore (snapshot/vllm_restore.py:90)"])
    return bundle(
        [] if killed else [main],
        helper(),
        phase=Phase.WEIGHTS,
        host=host(container="kubernetes"),
        exits=[ended(main, signal=15, ago_s=2)] if killed else [],
        log=["Restoring GPU memory from checkpoint: 61%", "Received signal SIGTERM, shutting down"][: 1 + killed],
        quiet_s=4,
        motion=Motion.MOVING if killed else Motion.STALLED,
    )


def raylet(*, told: bool) -> Bundle:
    few = ordinary_facts(libraries=(), nofile=1024)
    said = "worker_pool.cc:364: Failed to start worker with return value system:24: Too many open files"
    head = process(
        FRONT, "python", stack=["get (ray/_private/worker.py:2800)", "dispatch (agent/pool.py:33)"],
        ppid=1, facts=few if told else None,
    )  # fmt: skip
    raylet = process(4500, "raylet", role=Role.HELPER, facts=few if told else None)
    log = [line(said, source="raylet", level="ERROR", ago_s=80)] if told else []
    return bundle(head, raylet, engine="generic", phase=Phase.SPAWN, log=log)


def closing(*, huge: bool) -> Bundle:
    stack = (
        "_close_fds (subprocess.py:1240): os.close(i)" if huge else "sleep (init.py:3)",
        "_execute_child (subprocess.py:1310)",
        "<module> (salt/grains/core.py:20)",
    )
    main = process(
        FRONT,
        "python",
        stack=stack if huge else stack[:1],
        state="R" if huge else "S",
        cpu=1.0 * huge,
        ppid=1,
        facts=ordinary_facts(libraries=(), nofile=1_073_741_816 if huge else 1024),
    )
    return bundle(main, engine="generic", phase=Phase.SPAWN, host=host(container="docker"))


def guardless(*, again: bool) -> Bundle:
    child = (
        "__init__ (vllm/engine/async_llm_engine.py:592)",
        "from_engine_args (vllm/engine/async_llm_engine.py:642)",
        "test (/home/u/ambrosia/test.py:9)",
        "<module> (/home/u/ambrosia/test.py:25)",
        "run_path (runpy.py:287)",
        "_fixup_main_from_path (multiprocessing/spawn.py:297)",
        "prepare (multiprocessing/spawn.py:246)",
        "spawn_main (multiprocessing/spawn.py:122)",
    )
    main = process(
        FRONT, "python", stack=["recv (multiprocessing/connection.py:250)", "test (/home/u/ambrosia/test.py:9)"],
        syscall="read(0x9)", ppid=1,
    )  # fmt: skip
    stack = child if again else ("worker_main (vllm/executor/multiproc_worker_utils.py:200)", *child[-1:])
    return bundle(main, rank(1, name="python", stack=stack, ppid=FRONT), phase=Phase.SPAWN)
