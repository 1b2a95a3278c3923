"""Reports of starts that go wrong between processes: forks, main guards, bindings, prefill and decode."""

from tests.corpus.case import Case
from tests.corpus.surroundings import (
    IDLE_WORKER,
    SCHEDULER_MAIN,
    WORKER_MAIN,
    scheduler,
    sglang,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.look import Listener
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    FRONT,
    bundle,
    device,
    ended,
    engine,
    front,
    gpus,
    helper,
    host,
    line,
    ordinary_facts,
    process,
    rank,
    socket,
)

IN_DISTRIBUTED_INIT = (
    "init_process_group (torch/distributed/distributed_c10d.py:1700)",
    "init_distributed_environment (vllm/distributed/parallel_state.py:1411)",
    "init_device (vllm/v1/worker/gpu_worker.py:280)",
    "run_engine_core (vllm/v1/engine/core.py:1100)",
)
SERVES = (
    "recv_requests (sglang/srt/managers/scheduler.py:1400)",
    "event_loop_normal_disagg_prefill (sglang/srt/disaggregation/prefill.py:300)",
    SCHEDULER_MAIN,
)
POLLS = "epoll_wait(0x9, 0x7f4100, 0x400, 0x3e8)"


def _prefill(listens_on: int, *states: str) -> Bundle:
    files = [socket("10.0.0.2:50100", "10.0.0.2:30001", state=state, fd=60 + at) for at, state in enumerate(states)]
    return sglang(
        scheduler(0, SERVES, syscall=POLLS, files=files),
        phase=Phase.SERVING,
        gpus=gpus(1),
        options={"disaggregation-mode": "prefill", "disaggregation-bootstrap-port": "30001"},
        listeners=[Listener(host="0.0.0.0", port=port, pid=FRONT) for port in (30000, listens_on)],
        log=[line("Initialized NIXL agent: 7f3a", source="TP0", number=0)],
    )


def _forked(forked: bool) -> Bundle:
    # The engine is a copy of its parent, which had used the GPU before.
    parent = front(files=[device("/dev/nvidiactl"), device("/dev/nvidia0", fd=21), device("/dev/nvidia-uvm", fd=22)])
    core = engine(
        stack=IN_DISTRIBUTED_INIT,
        facts=ordinary_facts(forked=forked, parent_threads=38 if forked else 0),
        files=[device("/dev/nvidia0", fd=21)],
    )
    return bundle(
        parent,
        core,
        helper(),
        phase=Phase.RENDEZVOUS,
        gpus=gpus(1, name="NVIDIA GeForce RTX 5070 Ti", fabric="not supported"),
        log=[line("world_size=1 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.2:41003 backend=nccl")],
    )


def _refuses_cuda(*log: str) -> Bundle:
    return vllm(
        workers(1, IDLE_WORKER, facts=ordinary_facts(forked=True, parent_threads=9)),
        exits=[ended(rank(1), code=1)],
        phase=Phase.MODEL_INIT,
        gpus=gpus(2),
        environment={"VLLM_WORKER_MULTIPROC_METHOD": "fork"},
        log=[line(text, source="Worker_TP1", number=1, level="ERROR", ago_s=41) for text in log],
    )


def _script_again(again: bool) -> Bundle:
    importing = ("_fixup_main_from_path (multiprocessing/spawn.py:297)", "spawn_main (multiprocessing/spawn.py:122)")
    engine_again = ("start (multiprocessing/process.py:121)", "__init__ (vllm/v1/engine/core_client.py:500)")
    script = ("<module> (/srv/probe/edit_layers.py:12)", *importing)
    child = process(
        4050,
        "python",
        stack=(*engine_again, *script)
        if again
        else ("_call_with_frames_removed (<frozen importlib._bootstrap>:241)", *script),
        role=engine().look.process.role,
    )
    error = (
        "An attempt has been made to start a new process before the current process has finished its bootstrapping"
    )
    return bundle(
        front(stack=("recv (multiprocessing/connection.py:430)", "<module> (/srv/probe/edit_layers.py:12)")),
        child,
        phase=Phase.IMPORT,
        gpus=gpus(1, name="NVIDIA L40", fabric="not supported"),
        log=[line(f"RuntimeError: {error}.", level="ERROR")] if again else [],
    )


def _binds(capabilities: tuple[str, ...], seccomp: int) -> Bundle:
    facts = ordinary_facts(libraries=(), capabilities=capabilities, seccomp=seccomp)
    return vllm(
        workers(2, ("init_cpu_threads_env (vllm/v1/worker/cpu_worker.py:90)", WORKER_MAIN), facts=facts),
        phase=Phase.MODEL_INIT,
        host=host(cpus=128, container="docker", driver="", cuda=""),
        environment={"VLLM_CPU_OMP_THREADS_BIND": "0-63|64-127"},
        log=[line("set_mempolicy: Operation not permitted", source="Worker_TP0", number=0, level="ERROR")],
    )


CASES = (
    Case(
        id="dynamo-4855",
        url="https://github.com/ai-dynamo/dynamo/issues/4855",
        cause="pd_handshake",
        bundle=_prefill(40000, "SYN_SENT"),
        shows="nobody listens on the bootstrap port, where a rank registers",
        twin=_prefill(30001, "ESTABLISHED"),
    ),
    Case(
        id="sglang-6320",
        url="https://github.com/sgl-project/sglang/issues/6320",
        cause="pd_handshake",
        lacks="the versions of NIXL on both sides; the warm-up only transfers to itself",
        bundle=_prefill(30001, "ESTABLISHED"),
    ),
    Case(
        id="vllm-14452",
        url="https://github.com/vllm-project/vllm/issues/14452",
        cause="fork_after_cuda",
        bundle=_forked(forked=True),
        shows="the engine was forked from a process that has a GPU open, and stands in the start of its device",
        twin=_forked(forked=False),
    ),
    Case(
        id="vllm-15681",
        url="https://github.com/vllm-project/vllm/issues/15681",
        cause="fork_after_cuda",
        bundle=_refuses_cuda("RuntimeError: Cannot re-initialize CUDA in forked subprocess."),
        shows="torch refuses CUDA in a forked process",
        twin=_refuses_cuda("RuntimeError: the worker could not be set up"),
        companions=frozenset({"rank_died"}),
    ),
    Case(
        id="nnsight-643",
        url="https://github.com/ndif-team/nnsight/issues/643",
        cause="missing_main_guard",
        bundle=_script_again(again=True),
        shows="a spawned child, still reading the script, starts an engine of its own",
        twin=_script_again(again=False),
    ),
    Case(
        id="vllm-10556",
        url="https://github.com/vllm-project/vllm/issues/10556",
        cause="numa_binding",
        bundle=_binds(("chown", "setuid"), seccomp=2),
        shows="set_mempolicy refused, without CAP_SYS_NICE under a seccomp filter",
        twin=_binds(("sys_nice",), seccomp=0),
        companions=frozenset({"container_caps"}),
    ),
    Case(
        id="vllm-43240",
        url="https://github.com/vllm-project/vllm/issues/43240",
        cause="numa_binding",
        lacks="the cores of each thread of both instances; one instance alone looks as it should",
        bundle=vllm(
            workers(1, IDLE_WORKER, facts=ordinary_facts(libraries=(), cpus_allowed="60-119", mems_allowed="1")),
            phase=Phase.SERVING,
            host=host(cpus=60, container="kubernetes", driver="", cuda=""),
        ),
    ),
)
