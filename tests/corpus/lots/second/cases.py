"""Reports whose cases were written before anybody looked at how their causes are found: the second ones."""

from msgspec.structs import replace
from tests.corpus.case import Case, FirstRun
from tests.corpus.surroundings import (
    IN_COMM_INIT,
    SCHEDULER_MAIN,
    SYNCS,
    WORKER_MAIN,
    nccl_line,
    scheduler,
    schedulers,
    sglang,
    spinning,
    using_nccl,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.collective import CollectiveCall, Communicator
from firstlight.core.gpu import GpuProcess
from firstlight.core.look import Leftover, Listener, Lock
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FIRST_RANK,
    FRONT,
    GB,
    NO_PTRACE,
    bundle,
    compiler,
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
    socket,
    thread,
)


def _stages(*, both: bool) -> Bundle:
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


def _six(*, listens: str) -> Bundle:
    stack = (
        "_create_c10d_store (torch/distributed/rendezvous.py:189)",
        "init_process_group (torch/distributed/distributed_c10d.py:1750)",
        "init_torch_distributed (sglang/srt/model_executor/model_runner.py:237)",
        SCHEDULER_MAIN,
    )
    first = scheduler(0, stack, syscall="poll(0x7f)", files=[socket(listens, state="LISTEN", fd=40)])
    return sglang(
        first,
        scheduler(1, stack, syscall="clock_nanosleep(0x0)"),
        phase=Phase.RENDEZVOUS,
        nodes=2,
        options={"dist-init-addr": "[fd00:10::a1]:1234", "nnodes": "2"},
        listeners=[Listener(host=listens.rpartition(":")[0].strip("[]"), port=1234, pid=FIRST_RANK)],
    )


def _multicast(*, log: bool) -> Bundle:
    said = [
        nccl_line("comm 0x55 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 18000 - Init START"),
        *[
            nccl_line("NVLS Bind mem 0xac0000000 UC handle 0x7f33 MC handle 0x7f34 size 1073741824", n)
            for n in range(4)
        ],
    ]
    return bundle(
        [
            rank(n, name="all_reduce_perf", native=["?? (libcuda.so.1)", "ncclCommInitRank (libnccl.so.2)"])
            for n in range(4)
        ],
        engine="generic",
        phase=Phase.COMM_INIT,
        gpus=gpus(4),
        host=host(container="docker"),
        log=said if log else [],
    )


def _group(stack: tuple[str, ...], *said: str, waits: bool = True) -> Bundle:
    core = ("get (ray/_private/worker.py:2800)", "auto_init_wrapper (ray/_private/auto_init_hook.py:22)", *stack)
    return bundle(
        front(),
        engine(stack=core if waits else ["select (selectors.py:468)"], syscall="futex(0x7f)"),
        process(4500, "raylet", role=Role.HELPER, ppid=1, memory=GB, facts=ordinary_facts(libraries=())),
        phase=Phase.RENDEZVOUS,
        options={"tensor-parallel-size": "16"},
        log=[line(one, source="EngineCore", level="WARNING", ago_s=200) for one in said],
    )


def _wedged(*, kernel: bool) -> Bundle:
    frames = ("uvm_spin_loop", "uvm_tracker_wait", "uvm_api_map_external_allocation", "uvm_ioctl")
    core = engine(
        stack=NO_PTRACE, state="R", cpu=1.0, kernel=frames if kernel else (), facts=ordinary_facts(), memory=30 * GB
    )
    return bundle(front(), core, phase=Phase.SERVING, gpus=gpus(1, memory_used_bytes=48 * GB), question="no token")


def _uvm_lock(*, told: bool) -> Bundle:
    said = (
        "INFO: task python3.11:15277 blocked for more than 120 seconds.",
        "uvm_api_alloc_semaphore_pool+0x19c/0x2f0 [nvidia_uvm]",
        "NVRM: GPU at PCI:0000:1b:00: GPU-5f, RPC time-out",
    )
    kernel = ("mutex_lock", "uvm_page_tree_get_ptes_async", "uvm_mem_map_gpu_kernel", "uvm_ioctl")
    stuck = {"state": "D", "kernel": kernel, "wchan": "uvm_page_tree_get_ptes_async"} if told else {}
    return bundle(
        [
            rank(
                n,
                name="python3.11",
                stack=["_lazy_init (torch/cuda/__init__.py:300)", "<module> (rnn.py:4)"],
                **stuck,
            )
            for n in range(4)
        ],
        engine="generic",
        phase=Phase.COMM_INIT,
        kernel_log=said[:2] if told else (),
    )


def _runner(*, killed: bool) -> Bundle:
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


def _restored(*, killed: bool) -> Bundle:
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


def _ninja(*, failed: bool) -> Bundle:
    waits = (
        "all_reduce (torch/distributed/distributed_c10d.py:2900)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:4400)",
        WORKER_MAIN,
    )
    said = (
        "RuntimeError: Ninja build failed. Ninja output: FAILED: batch_prefill_paged_kernel_mask_0.cuda.o "
        "/bin/sh: 1: :/usr/local/cuda-12.8/bin/nvcc: not found ninja: build stopped: subcommand failed."
    )
    first = worker(0, waits)
    return vllm(
        [] if failed else [first],
        worker(1, waits, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.WARMUP,
        ranks=2,
        gpus=gpus(2, name="NVIDIA GeForce RTX 4090", architecture="89"),
        exits=[ended(first, code=1)] if failed else [],
        log=[line(said, source="Worker_TP0", number=0, level="ERROR", ago_s=41)] if failed else [],
    )


def _cicc(*, killed: bool) -> Bundle:
    builds = (
        "wait (subprocess.py:2053)",
        "run (subprocess.py:552)",
        "run_ninja (flashinfer/jit/cpp_ext.py:340)",
        "build_and_load (flashinfer/jit/core.py:330)",
        "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4300)",
    )
    ninja = compiler("ninja", number=50, state="S", cpu=0.0)
    dead = [compiler("cicc", number=n) for n in range(3)]
    said = tuple(f"Out of memory: Killed process {4900 + n} (cicc) total-vm:9000000kB" for n in range(3))
    return vllm(
        worker(0, builds if killed else builds[4:], syscall="wait4(0x1356)"),
        [ninja, compiler("cicc", number=9)] if killed else [],
        phase=Phase.WARMUP,
        host=host(memory_bytes=61 * GB, memory_free_bytes=GB),
        exits=[ended(one, signal=9, oom=True, ago_s=60 * n + 5) for n, one in enumerate(dead)] if killed else [],
        kernel_log=said if killed else (),
    )


def _custom(*, spins: bool) -> Bundle:
    stack = (
        "synchronize (torch/cuda/__init__.py:790)",
        "all_reduce (vllm/_custom_ops.py:826)",
        "all_reduce_unreg (vllm/distributed/device_communicators/custom_all_reduce.py:290)",
        "custom_all_reduce (vllm/distributed/device_communicators/custom_all_reduce.py:300)",
        "forward (vllm/model_executor/layers/linear.py:1000)",
        WORKER_MAIN,
    )
    cards = gpus(8, name="NVIDIA A100-SXM4-80GB", architecture="80")
    return vllm(
        workers(8, stack if spins else stack[4:], native=SYNCS, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=spinning(cards, 110) if spins else cards,
        environment={"CUDA_LAUNCH_BLOCKING": "1"},
    )


def _raylet(*, told: bool) -> Bundle:
    few = ordinary_facts(libraries=(), nofile=1024)
    said = "worker_pool.cc:364: Failed to start worker with return value system:24: Too many open files"
    head = process(
        FRONT, "python", stack=["get (ray/_private/worker.py:2800)", "dispatch (agent/pool.py:33)"],
        ppid=1, facts=few if told else None,
    )  # fmt: skip
    raylet = process(4500, "raylet", role=Role.HELPER, facts=few if told else None)
    log = [line(said, source="raylet", level="ERROR", ago_s=80)] if told else []
    return bundle(head, raylet, engine="generic", phase=Phase.SPAWN, log=log)


def _closing(*, huge: bool) -> Bundle:
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


def _same_port(*, said: bool) -> Bundle:
    message = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 34773, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )
    stack = (
        "_create_c10d_store (torch/distributed/rendezvous.py:199)",
        "init_process_group (torch/distributed/distributed_c10d.py:1752)",
        "init_worker_distributed_environment (vllm/v1/worker/gpu_worker.py:606)",
        WORKER_MAIN,
    )
    return vllm(
        worker(1, stack, syscall="poll(0x7f)"),
        [] if said else [worker(0, stack, syscall="poll(0x7f)")],
        phase=Phase.RENDEZVOUS,
        exits=[ended(worker(0, stack), code=1, ago_s=100)] if said else [],
        log=[line(message, source="Worker_TP0", number=0, level="ERROR", ago_s=101)] if said else [],
    )


def _orphans(*, there: bool) -> Bundle:
    card = replace(
        gpus(1, name="NVIDIA L40S", architecture="89", memory_total_bytes=48 * GB)[0],
        memory_used_bytes=23 * GB if there else GB,
        processes=(GpuProcess(pid=2211, memory_bytes=22 * GB, here=True),) if there else (),
    )
    old = Leftover(pid=2211, name="VLLM::Worker", state="S", age_s=8000, holds=("GPU 0",))
    said = "ValueError: Free memory on device (24.9/48.0 GiB) on startup is less than desired (0.9, 43.2 GiB)."
    return bundle(
        front(),
        phase=Phase.MODEL_INIT,
        gpus=(card,),
        leftovers=[old] if there else [],
        log=[line(said, source="EngineCore", level="ERROR")] if there else [],
        exits=[ended(engine(), code=1)] if there else [],
    )


def _call(number: int, sizes: tuple[int, ...], sequence: int = 4410) -> CollectiveCall:
    return CollectiveCall(
        rank=number, group="tp", sequence=sequence, operation="nccl:all_reduce", state="started",
        input_sizes=(sizes,), output_sizes=(sizes,), dtype="BFloat16", where="all_reduce (parallel_state.py:600)",
    )  # fmt: skip


def _accepts(second: tuple[int, ...]) -> Bundle:
    stack = (
        "all_reduce (sglang/srt/distributed/parallel_state.py:600)",
        "forward (sglang/srt/models/deepseek_v2.py:1500)",
        "verify (sglang/srt/speculative/eagle_worker.py:700)",
        SCHEDULER_MAIN,
    )
    return sglang(
        schedulers(2, stack, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=spinning(gpus(2, name="AMD Instinct MI300X", vendor="amd", architecture="gfx942"), 180),
        collectives=[_call(0, (12, 7168)), _call(1, second)],
    )


def _swapped(*, counted: bool) -> Bundle:
    stack = (
        "all_gatherv (vllm/distributed/device_communicators/cuda_communicator.py:260)",
        "dispatch (vllm/distributed/device_communicators/all2all.py:70)",
        "forward (vllm/model_executor/layers/fused_moe/layer.py:1900)",
        WORKER_MAIN,
    )
    other = ("all_reduce (vllm/distributed/device_communicators/pynccl.py:168)", *stack[2:])
    counts = ((0, 90210), (1, 90210), (2, 90227), (3, 90210))
    return vllm(
        [worker(n, stack if n == 2 and counted else other, native=SYNCS, state="R", cpu=1.0) for n in range(4)],
        phase=Phase.SERVING,
        gpus=spinning(gpus(4), 170),
        communicators=[Communicator(id="0x8f", ranks=4, counts=counts)] if counted else [],
    )


def _guardless(*, again: bool) -> Bundle:
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


FIRST_RUN = FirstRun(established=5, supported=9, missed=5, undecided=2)

CASES = (
    Case(
        id="vllmomni-4894",
        url="https://github.com/vllm-project/vllm-omni/issues/4894",
        cause="deadlock",
        shows="a thread polls a file lock that its own process holds, another wants a lock in memory",
        bundle=_stages(both=True),
        twin=_stages(both=False),
        companions=frozenset({"file_lock_held"}),
    ),
    Case(
        id="sglang-2892",
        url="https://github.com/sgl-project/sglang/issues/2892",
        cause="ipv6",
        shows="the ranks were told an IPv6 address, and the first listens on IPv4 alone",
        bundle=_six(listens="0.0.0.0:1234"),
        twin=_six(listens="[::]:1234"),
        companions=frozenset({"rendezvous_unreachable"}),
    ),
    Case(
        id="vllm-17676",
        url="https://github.com/vllm-project/vllm/issues/17676",
        cause="unknown",
        lacks="any stack, and what the engine waits for",
        bundle=bundle(
            front(stack=NO_PTRACE),
            engine(stack=NO_PTRACE),
            phase=Phase.MODEL_INIT,
            gpus=gpus(4, name="NVIDIA A10G"),
            log=[line("Waiting for 1 local, 0 remote core engine proc(s) to start.", ago_s=9)],
        ),
    ),
    Case(
        id="nccltests-216",
        url="https://github.com/NVIDIA/nccl-tests/issues/216",
        cause="nccl_nvls",
        shows="all ranks are in ncclCommInitRank, and NCCL's last lines bind memory for NVLS",
        bundle=_multicast(log=True),
        twin=_multicast(log=False),
    ),
    Case(
        id="nccl-1197",
        url="https://github.com/NVIDIA/nccl/issues/1197",
        cause="nccl_nvls",
        lacks="NCCL's log, or native frames in the set-up of NVLS",
        bundle=vllm(
            workers(8, IN_COMM_INIT, cpu=0.02), phase=Phase.COMM_INIT, gpus=gpus(8), log=[using_nccl("2.19.4")]
        ),
    ),
    Case(
        id="gpustack-5056",
        url="https://github.com/gpustack/gpustack/issues/5056",
        cause="resource_wait",
        shows="the engine waits for a placement group, and the log says that there are too few GPUs",
        bundle=_group(
            (
                "_wait_until_pg_ready (vllm/v1/executor/ray_utils.py:300)",
                "initialize_ray_cluster (vllm/v1/executor/ray_utils.py:420)",
            ),
            "Tensor parallel size (16) exceeds available GPUs (8). This may result in Ray placement group allocation "
            "failures.",
            "No current placement group found. Creating a new placement group.",
        ),
        twin=_group(("run (actor.py:2)",), waits=False),
    ),
    Case(
        id="ray-47792",
        url="https://github.com/ray-project/ray/issues/47792",
        cause="resource_wait",
        shows="the engine waits in Ray for its placement group",
        bundle=_group(("wait (ray/util/placement_group.py:94)", "main (job.py:12)")),
        twin=_group(("main (job.py:12)",)),
    ),
    Case(
        id="vllm-25127",
        url="https://github.com/vllm-project/vllm/issues/25127",
        cause="gpu_fault",
        shows="the engine spins inside the kernel module of the driver",
        bundle=_wedged(kernel=True),
        twin=_wedged(kernel=False),
    ),
    Case(
        id="returnn-1480",
        url="https://github.com/rwth-i6/returnn/issues/1480",
        cause="gpu_fault",
        shows="ranks hang in state D in nvidia_uvm, and the kernel says that a task is blocked there",
        bundle=_uvm_lock(told=True),
        twin=_uvm_lock(told=False),
    ),
    Case(
        id="ollama-9414",
        url="https://github.com/ollama/ollama/issues/9414",
        cause="probe_kill",
        shows="the parent gave up waiting, and its runner was killed while it loaded",
        bundle=_runner(killed=True),
        twin=_runner(killed=False),
        companions=frozenset({"process_died", "rank_died", "slow_storage"}),
    ),
    Case(
        id="snapshot-311",
        url="https://github.com/ai-dynamo/snapshot/issues/311",
        cause="probe_kill",
        shows="the server was asked to end from outside, while it was being restored, in Kubernetes",
        bundle=_restored(killed=True),
        twin=_restored(killed=False),
        companions=frozenset({"process_died"}),
    ),
    Case(
        id="vllm-36077",
        url="https://github.com/vllm-project/vllm/issues/36077",
        cause="jit_build_failure",
        shows="a rank says that its build failed, and ended; the other waits for it",
        bundle=_ninja(failed=True),
        twin=_ninja(failed=False),
        companions=frozenset({"rank_died"}),
    ),
    Case(
        id="flashinfer-4410",
        url="https://github.com/flashinfer-ai/flashinfer/issues/4410",
        cause="jit_build_failure",
        shows="compilers of a build are killed for want of memory, one after another",
        bundle=_cicc(killed=True),
        twin=_cicc(killed=False),
        companions=frozenset({"memory_pressure", "slow_jit", "process_died"}),
    ),
    Case(
        id="vllm-8410",
        url="https://github.com/vllm-project/vllm/issues/8410",
        cause="custom_allreduce",
        shows="all ranks wait for the engine's own all-reduce, and their GPUs spin",
        bundle=_custom(spins=True),
        twin=_custom(spins=False),
    ),
    Case(
        id="ray-10585",
        url="https://github.com/ray-project/ray/issues/10585",
        cause="ulimit",
        shows="too many open files, with a limit of 1,024",
        bundle=_raylet(told=True),
        twin=_raylet(told=False),
    ),
    Case(
        id="moby-9876",
        url="https://github.com/moby/moby/issues/9876",
        cause="ulimit",
        shows="the main thread closes descriptors one after another, and may have a thousand million",
        bundle=_closing(huge=True),
        twin=_closing(huge=False),
    ),
    Case(
        id="vllm-39015",
        url="https://github.com/vllm-project/vllm/issues/39015",
        cause="port_in_use",
        shows="a rank found its port taken, says so, and ended; the other waits for it",
        bundle=_same_port(said=True),
        twin=_same_port(said=False),
        companions=frozenset({"rank_died"}),
    ),
    Case(
        id="vllmomni-2317",
        url="https://github.com/vllm-project/vllm-omni/issues/2317",
        cause="leftover_process",
        shows="an orphan of an earlier server holds half of the GPU, and the engine wants more than is left",
        bundle=_orphans(there=True),
        twin=_orphans(there=False),
        companions=frozenset({"process_died", "gpu_in_use", "gpu_memory_imbalance"}),
    ),
    Case(
        id="sglang-28815",
        url="https://github.com/sgl-project/sglang/issues/28815",
        cause="mismatched_collective",
        shows="the recorded calls of the same number have other sizes",
        bundle=_accepts((10, 7168)),
        twin=_accepts((12, 7168)),
    ),
    Case(
        id="vllm-43547",
        url="https://github.com/vllm-project/vllm/issues/43547",
        cause="mismatched_collective",
        shows="one rank stands in another collective than its peers, and is ahead in NCCL's own counts",
        bundle=_swapped(counted=True),
        twin=_swapped(counted=False),
    ),
    Case(
        id="genlm-10",
        url="https://github.com/genlm/genlm-backend/issues/10",
        cause="missing_main_guard",
        shows="a spawned child, still reading the script, starts an engine of its own",
        bundle=_guardless(again=True),
        twin=_guardless(again=False),
    ),
)
