"""Machines of the eighth lot whose server is still there: what such a start would have left to be seen, with and
without what decides. Logs are raw lines of that version, read as firstlight reads them."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from tests.corpus.surroundings import idle_threads, pcie_gpus, vllm, workers

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.log import RawLine
from firstlight.core.look import Pressure
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.engines import profile
from firstlight.evidence import tails
from firstlight.testing.bundles import (
    FRONT,
    GB,
    NO_PTRACE,
    NOW,
    Made,
    Moves,
    bundle,
    engine,
    file,
    folder,
    front,
    gpu,
    gpus,
    helper,
    host,
    interface,
    place,
    process,
    rank,
    socket,
)

CORE = "(EngineCore_DP0 pid=4050) "
WAITS_FOR_CORE = (
    "(APIServer pid=4000) DEBUG {} [utils.py:774] Waiting for 1 local, 0 remote core engine proc(s) to start."
)
RAY_GET = ("get_objects (ray/_private/worker.py:860)", "get (ray/_private/worker.py:2630)")
RUN_CORE = (
    "__init__ (vllm/v1/engine/core.py:110)",
    "__init__ (vllm/v1/engine/core.py:620)",
    "run_engine_core (vllm/v1/engine/core.py:860)",
)
LAN = (interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.83.4.12", kind="virtual"))


def heard(made: Bundle, raw: Iterable[str], *, ago_s: float = 200) -> Bundle:
    """The same with a log, read by the engine's own profile."""
    knows = profile(made.engine)
    said = [
        RawLine(stream="stderr", at=NOW - ago_s + 0.01 * at, text=one.replace("{}", "11-30 00:10:02"))
        for at, one in enumerate(raw)
    ]
    return replace(made, logs=tails(map(knows.read_line, said), knows.errors().see))


def core(stack: Sequence[str] | Gap, **more: object) -> Made:
    """An engine core that runs the model itself, as it does with one GPU."""
    return engine(stack=stack, threads=idle_threads(), **{"memory": 6 * GB, "facts": None, **more})


def ray_replica(*, waits: bool) -> Bundle:
    stack = (
        "initialize_cluster (vllm/engine/ray_utils.py:112): ray.get(current_placement_group.ready(), timeout=1800)",
        "from_engine_args (vllm/engine/async_llm_engine.py:487)",
    )
    loads = (
        "_run_workers (vllm/engine/llm_engine.py:752): all_outputs = ray.get(all_outputs)",
        "_init_workers_ray (vllm/engine/llm_engine.py:196)",
    )
    one = process(
        4310, "ray::ServeReplica:default:llm13b", stack=(*RAY_GET, *(stack if waits else loads)),
        syscall="futex(0x7f11c2, 0x189, 0x0, 0x7f11b0)", native=["absl::CondVar::WaitCommon (_raylet.so)"], memory=GB,
    )  # fmt: skip
    served = [
        process(
            4320 + n, f"ray::ServeReplica:default:small{n}", stack=("select (selectors.py:469)",), cpu=0.01,
            syscall="epoll_wait(0x9, 0x7f20, 0x400, 0x63)",
        )
        for n in range(2)
    ]  # fmt: skip
    others = [process(4301 + n, name, cpu=0.02, memory=GB // 4) for n, name in enumerate(("gcs_server", "raylet"))]
    main = process(FRONT, "python", stack=("sleep (serve/scripts.py:510)",), ppid=1, memory=GB // 4)
    said = [
        (
            "(ServeController pid=4331) WARNING 2023-12-08 10:11:40,021 controller 4331 deployment_state.py:1987 - "
            "Deployment 'llm13b' in application 'default' has 1 replicas that have taken more than 30s to initialize."
        )
    ]
    cards = pcie_gpus(4, "NVIDIA A10G", architecture="86", memory_total_bytes=23 * GB, memory_used_bytes=GB // 2)
    made = bundle(main, one, served, others, engine="generic", phase=Phase.SPAWN, gpus=cards, quiet_s=1200)
    return heard(made, said, ago_s=900)


def long_compile(*, works: bool) -> Bundle:
    outer = (
        "_precompile_config (torch/_inductor/runtime/triton_heuristics.py:742)",
        "precompile (torch/_inductor/runtime/triton_heuristics.py:430)",
        "triton (torch/_inductor/async_compile.py:372)",
        "compile_to_module (torch/_inductor/graph.py:2340)",
        "compile_fx_inner (torch/_inductor/compile_fx.py:782)",
        "standalone_compile (torch/_inductor/standalone_compile.py:240)",
        "compile (vllm/compilation/compiler_interface.py:251)",
        "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4480)",
        "determine_available_memory (vllm/v1/worker/gpu_worker.py:330)",
        *RUN_CORE,
    )
    stack = (
        "make_llir (triton/backends/nvidia/compiler.py:380)",
        "compile (triton/compiler/compiler.py:320)",
        *outer,
    )
    before = ("make_ttgir (triton/backends/nvidia/compiler.py:295)", *stack[1:])
    one = core(
        stack, state="R" if works else "S", cpu=1.0 if works else 0.0, moves=Moves(stack=before if works else None)
    )
    cache = "/root/.cache/vllm/torch_compile_cache/4b7e21c09f/rank_0_0"
    made = bundle(
        front(), one, helper(), phase=Phase.COMPILE, version="0.15.1", gpus=gpus(1, memory_used_bytes=34 * GB),
        motion=Motion.MOVING if works else Motion.STALLED, quiet_s=10 if works else 900,
        folders=[folder("compile_cache", cache, bytes_=60 << 20, files=900, grows=180_000 if works else 0)],
    )  # fmt: skip
    return heard(made, [CORE + "INFO {} [backends.py:861] Dynamo bytecode transform time: 21.44 s"], ago_s=1500)


def pins(*, grows: bool) -> Bundle:
    stack = (
        "pin_tensor (vllm/v1/simple_kv_offload/cuda_mem_ops.py:24)",
        "register_kv_caches (vllm/v1/simple_kv_offload/worker.py:167)",
        "initialize_kv_cache (vllm/v1/worker/gpu_model_runner.py:7041)",
        "initialize_from_config (vllm/v1/worker/gpu_worker.py:560)",
        "worker_busy_loop (vllm/v1/executor/multiproc_executor.py:900)",
    )
    native = [
        "ioctl (libc.so.6)",
        "?? (libcuda.so.1)",
        "cuMemHostRegister_v2 (libcuda.so.1)",
        "cudaHostRegister (libcudart.so.12)",
    ]
    told: dict[str, object] = {"native": native, "state": "R", "cpu": 1.0, "memory": 190 * GB, "shared": 180 * GB}
    idle: dict[str, object] = {
        "native": ["poll (libc.so.6)"],
        "syscall": "poll(0x7f90, 0x2, 0x64)",
        "memory": 190 * GB,
    }
    moves = Moves(memory_bytes=11 * GB) if grows else Moves()
    return vllm(
        workers(8, stack if grows else stack[2:], moves=moves, **(told if grows else idle)),
        phase=Phase.KV_CACHE, version="0.21.0",
        host=host(memory_bytes=3000 * GB, memory_free_bytes=1400 * GB, cpus=192),
        gpus=gpus(8, memory_used_bytes=71 * GB), motion=Motion.QUIET if grows else Motion.STALLED, ranks=8,
    )  # fmt: skip


def over_nfs(*, network: bool) -> Bundle:
    stack = (
        "copy_ (torch/_tensor.py:110)",
        "default_weight_loader (vllm/model_executor/model_loader/weight_utils.py:430)",
        "load_weights (vllm/model_executor/models/qwen2.py:370)",
        "load_model (vllm/worker/model_runner.py:256)",
    )
    shard = "/opt/models/qwen-72b/model-00007-of-00037.safetensors"
    kind = "nfs4" if network else "xfs"
    waits: dict[str, object] = {
        "state": "D", "wchan": "folio_wait_bit_common", "syscall": "none: it blocks outside of any system call",
        "kernel": ["folio_wait_bit_common", "filemap_fault", "__do_fault", "handle_mm_fault", "do_user_addr_fault"],
        "moves": Moves(faults=2300, read_bytes=140 << 20), "cpu": 0.04,
    } if network else {}  # fmt: skip
    made = [
        rank(n, name="ray::RayWorkerWrapper.execute_method" if n else "python", stack=stack, ppid=FRONT if n else 1,
             files=[file(shard, fd=-2, filesystem=kind, size=4 * GB)], threads=idle_threads(), **waits)
        for n in range(4)
    ]  # fmt: skip
    seen = bundle(
        made, helper(), phase=Phase.WEIGHTS, version="0.5.0", motion=Motion.SLOW if network else Motion.STALLED,
        host=host(container="kubernetes", places=(
            place("weights", "/opt/models/qwen-72b", filesystem=kind, needed_bytes=145 * GB),
            place("compile_cache", "/root/.cache/vllm", filesystem="overlay"),
        )),
        gpus=gpus(4, name="NVIDIA A100 80GB PCIe", architecture="80", fabric="not supported"), quiet_s=40,
    )  # fmt: skip
    return heard(seen, ["INFO 07-10 16:02:11 selector.py:165] Using FlashAttention backend."], ago_s=2400)


def first_of_two(raw: Sequence[str], **more: object) -> Bundle:
    """The first of two nodes with one GPU each, whose core waits for another that should come from the second."""
    joins = (
        "_create_c10d_store (torch/distributed/rendezvous.py:198)",
        "_tcp_rendezvous_handler (torch/distributed/rendezvous.py:280)",
        "stateless_init_torch_distributed_process_group (vllm/distributed/utils.py:560)",
        "_init_data_parallel (vllm/v1/engine/core.py:1540)",
        "run_engine_core (vllm/v1/engine/core.py:1120)",
    )
    coordinator = process(
        4060, "VLLM::DPCoordinator", syscall="poll(0x7f10, 0x3, 0xffffffff)", role=Role.HELPER, label="DPCoordinator",
        stack=("poll (zmq/sugar/poll.py:106)", "process_input_socket (vllm/v1/engine/coordinator.py:220)"),
    )  # fmt: skip
    store = socket("10.83.4.12:29500", state="LISTEN", fd=31)
    one = core(joins, label="EngineCore_DP0", syscall="poll(0x7f31, 0x1, 0x3e8)", files=[store])
    spark = host(name="spark-a", cpu_arch="aarch64", memory_bytes=119 * GB, memory_free_bytes=90 * GB, interfaces=LAN)
    card = gpus(1, name="NVIDIA GB10", architecture="121", fabric="not supported")
    made = bundle(
        front(), coordinator, one, helper(), phase=Phase.RENDEZVOUS, nodes=2, host=spark, gpus=card, version="0.28.0",
        **more,
    )  # fmt: skip
    return heard(made, raw)


def spins_alone(name: str, vendor: str, stack: Sequence[str] | Gap, raw: Sequence[str], **more: object) -> Bundle:
    """One process that computes, of which little else is seen."""
    card = gpu(0, name=name, vendor=vendor, fabric="not supported", architecture="gfx1151", power_w=22.0)
    one = core(stack, native=stack if isinstance(stack, Gap) else (), state="R", cpu=1.0)
    return heard(bundle(front(), one, helper(), **{"phase": Phase.MODEL_INIT, "gpus": (card,), **more}), raw)


def full_of_pages(*, short: bool) -> Bundle:
    """One of two machines whose GPU has no memory of its own, while a page cache fills it."""
    shard = "/root/.cache/huggingface/hub/models--org--next/snapshots/2f/model-00199-of-00206.safetensors"
    stack = (
        "copy_ (torch/_tensor.py:110)",
        "default_weight_loader (vllm/model_executor/model_loader/weight_utils.py:1190)",
        "load_weights (vllm/model_executor/models/qwen3_next.py:1010)",
        "worker_main (vllm/v1/executor/multiproc_executor.py:850)",
    )
    waits: dict[str, object] = (
        {
            "state": "D",
            "wchan": "folio_wait_bit_common",
            "kernel": ["folio_wait_bit_common", "filemap_fault", "__do_fault", "do_page_fault", "el0_da"],
            "syscall": "none: it blocks outside of any system call",
            "moves": Moves(faults=700, read_bytes=90 << 20),
        }
        if short
        else {"state": "R", "cpu": 1.0, "moves": Moves(read_bytes=9 * GB)}
    )
    one = rank(
        1,
        stack=stack,
        files=[file(shard, fd=-2, size=GB)],
        threads=idle_threads(),
        memory=9 * GB,
        ppid=FRONT,
        **waits,
    )
    squeezed = Pressure(
        memory_some=71.0 if short else 0.0, memory_full=44.0 if short else 0.0, io_some=52.0 if short else 3.0,
        memory_free_bytes=(1 if short else 60) * GB, swapped_in=880_000 if short else 0,
        swapped_out=2_100_000 if short else 0,
    )  # fmt: skip
    spark = host(
        name="spark-b", cpu_arch="aarch64", memory_bytes=121 * GB, memory_free_bytes=(1 if short else 60) * GB,
        swap_bytes=16 * GB, interfaces=LAN, container="docker",
    )  # fmt: skip
    made = bundle(
        front(stack=("wait (threading.py:359)", "run_headless (vllm/entrypoints/cli/serve.py:190)")), one, helper(),
        phase=Phase.WEIGHTS, version="0.30.0", nodes=2, node=1, host=spark, pressure=squeezed,
        gpus=gpus(1, name="NVIDIA GB10", architecture="121", fabric="not supported"), motion=Motion.SLOW, quiet_s=20,
    )  # fmt: skip
    bar = "Loading safetensors checkpoint shards:  97% Completed | 199/206 [06:12<00:35,  5.1s/it]"
    return heard(made, [f"(Worker_TP1 pid=4101) {bar}"], ago_s=20)


def killed_by_ray(*, told: bool) -> Bundle:
    """The first of two machines; Ray has killed the worker of the other, and its core waits on."""
    waits = (*RAY_GET, "collective_rpc (vllm/v1/executor/ray_executor.py:520)", *RUN_CORE)
    one = rank(0, name="ray::RayWorkerWrapper.execute_method", stack=NO_PTRACE, syscall=NO_PTRACE, memory=20 * GB)
    card = gpus(1, name="NVIDIA GB10", architecture="121", fabric="not supported")
    made = bundle(
        front(), engine(stack=waits), one, helper(), phase=Phase.WEIGHTS, version="0.28.0", nodes=2, gpus=card,
        host=host(
            name="spark-a", cpu_arch="aarch64", memory_bytes=119 * GB, memory_free_bytes=9 * GB, interfaces=LAN
        ),
        quiet_s=1500,
    )  # fmt: skip
    said = (
        CORE
        + "(raylet, ip=10.83.4.13) ray.exceptions.OutOfMemoryError: 1 worker(s) were killed due to the node running "
        "low on memory. Memory on the node (IP: 10.83.4.13) was 113.76GB / 119.70GB (0.950345), which exceeds the "
        "memory usage threshold of 0.95."
    )
    bar = CORE + "(RayWorkerWrapper pid=4100) Loading safetensors checkpoint shards:  61% Completed | 47/77"
    return heard(made, [bar, *[said] * told], ago_s=1500)
