"""Reports whose cases were written before anybody looked at how their causes are found: the first ones."""

from msgspec.structs import replace
from tests.corpus.case import Case, FirstRun
from tests.corpus.surroundings import (
    FIRST_ALL_REDUCE,
    SCHEDULER_MAIN,
    SYNCS,
    WORKER_MAIN,
    idle_threads,
    nccl_line,
    pcie_gpus,
    scheduler,
    sglang,
    spinning,
    using_nccl,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.host import Topology
from firstlight.core.look import Listener, Lock
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    bundle,
    ended,
    engine,
    file,
    folder,
    front,
    gpus,
    helper,
    host,
    interface,
    line,
    ordinary_cgroup,
    ordinary_facts,
    place,
    process,
    rank,
    socket,
    thread,
)

BATON = (
    "wait (torch/utils/file_baton.py:50): time.sleep(self.wait_seconds)",
    "_jit_compile (torch/utils/cpp_extension.py:2156)",
)
EXTENSION = "/root/.cache/torch_extensions/py312_cu129/c_dlpack"


def _dlpack(*, left: bool) -> Bundle:
    stack = (
        *BATON,
        "load_inline (torch/utils/cpp_extension.py:2057)",
        "load_torch_c_dlpack_extension (tvm_ffi/_optional_torch_c_dlpack.py:540)",
        "<module> (tvm_ffi/_optional_torch_c_dlpack.py:566)",
        "<module> (flashinfer/jit/core.py:9)",
    )
    main = process(
        FRONT, "python3", stack=stack if left else stack[3:], syscall="clock_nanosleep(0x0, 0x0)",
        role=Role.FRONT, ppid=1,
    )  # fmt: skip
    found = Lock(kind="file", path=f"{EXTENSION}/lock", holder=0, waiters=(FRONT,), age_s=90_000)
    still = folder("extensions", EXTENSION, bytes_=GB // 256)
    return bundle(main, phase=Phase.IMPORT, engine="sglang", locks=[found] if left else [], folders=[still])


def _equivariance(*, left: bool) -> Bundle:
    where = "/home/u/.cache/torch_extensions/py311_cu128/libtorch_tp_jit"
    stack = (
        *BATON,
        "load (torch/utils/cpp_extension.py:1681)",
        "<module> (openequivariance/extlib/__init__.py:105)",
    )
    facts = ordinary_facts(cgroup=ordinary_cgroup(pids=31, pids_max=100, pids_refused=4))
    main = process(FRONT, "nequip-compile", stack=stack, syscall="clock_nanosleep(0x0, 0x0)", ppid=1, facts=facts)
    found = Lock(kind="file", path=f"{where}/lock", holder=0, waiters=(FRONT,), age_s=7_400)
    return bundle(main, phase=Phase.IMPORT, engine="generic", locks=[found] if left else [])


def _pcie(count: int, name: str, topology: Topology, *, spins: bool, engine_: str = "vllm", **more: object) -> Bundle:
    cards = pcie_gpus(count, name, **more)
    return vllm(
        workers(count, FIRST_ALL_REDUCE, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.COMM_INIT,
        engine=engine_,
        host=host(topology=topology),
        gpus=spinning(cards, 38) if spins else cards,
        log=[using_nccl()],
    )


def _hicache(*, killed: bool) -> Bundle:
    stack = (
        "__init__ (sglang/srt/mem_cache/memory_pool_host.py:160)",
        "init_memory_pool (sglang/srt/managers/scheduler.py:700)",
        SCHEDULER_MAIN,
    )
    facts = ordinary_facts(cgroup=ordinary_cgroup(memory_max_bytes=100 * GB, oom_kills=int(killed)))
    alive = [one for one in range(8) if one != 5 or not killed]
    waits = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", *stack[1:])
    main = front(
        stack=[
            "_recv (multiprocessing/connection.py:379)",
            "recv (multiprocessing/connection.py:250)",
            "_wait_for_scheduler_ready (sglang/srt/entrypoints/engine.py:1490)",
        ],
        syscall="read(0x2b, 0x7f3a10, 0x4)",
        label="",
    )
    return bundle(
        main,
        helper(),
        [scheduler(n, waits, native=SYNCS, state="R", cpu=1.0, facts=facts) for n in alive],
        engine="sglang",
        phase=Phase.KV_CACHE,
        ranks=8,
        gpus=gpus(8, memory_used_bytes=12 * GB),
        exits=[ended(scheduler(5, stack), signal=9, oom=True)] if killed else [],
        log=[line("Allocating 15.00 GB host memory for hierarchical KV cache.", source="TP0", number=0)],
    )


def _aborted(*, dead: bool) -> Bundle:
    serves = ("recv_requests (sglang/srt/managers/scheduler.py:1400)", SCHEDULER_MAIN)
    second = scheduler(1, (), state="Z", syscall="", threads=()) if dead else scheduler(1, serves)
    return sglang(
        scheduler(0, serves, syscall="poll(0x7f41, 0x1, 0x64)"),
        second,
        phase=Phase.SERVING,
        ranks=2,
        nodes=2,
        node=1,
        gpus=gpus(2),
        question="no token within 60 s",
    )


def _noexec(*, dead: bool) -> Bundle:
    main = front(
        stack=[
            "select (selectors.py:415)",
            "wait (multiprocessing/connection.py:1136)",
            "_wait_for_scheduler_ready (sglang/srt/entrypoints/engine.py:1540)",
        ],
        label="",
    )
    state = "Z" if dead else "S"
    children = [process(4100 + n, "sglang_temp_fil", state=state, ppid=FRONT, memory=0, shared=0) for n in range(2)]
    return bundle(
        main, helper(), *children, engine="sglang", phase=Phase.SPAWN, ranks=1, host=host(container="docker"),
        log=["server_args=ServerArgs(model_path='/models/llm')"],
    )  # fmt: skip


def _xet(*, pulls: bool) -> Bundle:
    stack = (
        "xet_get (huggingface_hub/file_download.py:560)",
        "_download_to_tmp_and_move (huggingface_hub/file_download.py:1740)",
        "_hf_hub_download_to_local_dir (huggingface_hub/file_download.py:1300)",
        "_worker (concurrent/futures/thread.py:90)",
    )
    fetches = thread(
        stack if pulls else stack[3:], name="ThreadPoolExecutor-0_0", syscall="futex(0x7f3a10, 0x80, 0x0)"
    )
    main = process(
        FRONT,
        "python3",
        stack=[
            "wait (threading.py:355)",
            "result (concurrent/futures/_base.py:451)",
            *(["snapshot_download (huggingface_hub/_snapshot_download.py:420)"] if pulls else []),
            "main (fetch.py:12)",
        ],
        threads=[fetches, thread(name="hf-xet-0", syscall="epoll_wait(0x9, 0x7f, 0x400, 0xffffffff)", fds=(61, 62))],
        files=[socket(f"10.0.0.2:4410{n}", "18.164.174.118:443", fd=60 + n) for n in ((1, 2) if pulls else ())],
        ppid=1,
        memory=2 * GB,
    )
    still = folder("download", "/models/.cache/huggingface/download", files=3, bytes_=2 * GB)
    return bundle(main, phase=Phase.WEIGHTS, engine="generic", folders=[still] if pulls else [], quiet_s=1500)


def _soft_lock(*, left: bool) -> Bundle:
    where = "/model_dir/.cache/huggingface/.gitignore.lock"
    waits = thread(
        [
            "acquire (filelock/_api.py:344)",
            "WeakFileLock (huggingface_hub/utils/_fixes.py:95)",
            "_create_cache_dir (huggingface_hub/_local_folder.py:210)",
            "_worker (concurrent/futures/thread.py:83)",
        ],
        name="ThreadPoolExecutor-1_0",
        syscall="clock_nanosleep(0x0, 0x0)",
    )
    said = f"FileSystem does not appear to support flock. Falling back to SoftFileLock for {where}"
    main = process(
        FRONT,
        "python",
        stack=["wait (threading.py:320)", "snapshot_download (huggingface_hub/_snapshot_download.py:290)"],
        threads=[waits],
        ppid=1,
    )
    found = Lock(kind="file", path=where, holder=0, waiters=(FRONT,), age_s=5400, filesystem="fuse.gcsfuse")
    log = [line(said, level="WARNING")] if left else []
    return bundle(main, phase=Phase.WEIGHTS, engine="generic", locks=[found] if left else [], log=log)


def _gemm_warmup(*, compiles: bool) -> Bundle:
    stack = (
        "compile (deep_gemm/jit/compiler.py:150)",
        "_compile_one (sglang/srt/layers/quantization/deep_gemm_wrapper/compile_utils.py:210)",
        "_compile_deep_gemm_one_type_all (sglang/srt/layers/quantization/deep_gemm_wrapper/compile_utils.py:160)",
        "warmup (sglang/srt/model_executor/model_runner.py:1700)",
        SCHEDULER_MAIN,
    )
    waits = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", *stack[3:])
    native = ("nvvmCompileProgram (libnvrtc.so.12)", "nvrtcCompileProgram (libnvrtc.so.12)")
    slow = scheduler(0, stack, native=native, state="R", cpu=1.0) if compiles else scheduler(0, waits, native=SYNCS)
    return sglang(
        slow,
        [scheduler(n, waits, native=SYNCS, state="R", cpu=1.0) for n in (1, 2, 3)],
        phase=Phase.WARMUP,
        gpus=gpus(4),
        folders=[folder("engine_cache", "/root/.deep_gemm", bytes_=GB // 50, files=90, grows=200_000 * compiles)],
        log=[line("Entering DeepGEMM JIT Pre-Compile session.", source="TP0", number=0, ago_s=900)],
    )


def _fabric(state: str, *, said: bool) -> Bundle:
    message = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"
    return bundle(
        front(),
        engine(
            stack=["_lazy_init (torch/cuda/__init__.py:410)", "__init__ (vllm/v1/engine/core.py:90)"],
            native=["?? (libcuda.so.1)", "cuInit (libcuda.so.1)"],
        ),
        phase=Phase.SPAWN,
        gpus=gpus(4, name="NVIDIA H200", fabric=state),
        log=[line(message, source="EngineCore", level="ERROR")] if said else [],
    )


def _studio(*, proxied: bool) -> Bundle:
    parent = process(
        FRONT,
        "unsloth",
        stack=[
            "read (httpcore/_backends/sync.py:128)",
            "get (httpx/_api.py:195)",
            "_wait_for_health (studio/backend/core/inference/llama_cpp.py:5313)",
        ],
        syscall="recvfrom(0xd, 0x7f3a10, 0x10000)",
        fds=(13,),
        files=[socket("10.0.0.2:51020", "10.8.0.1:8888" if proxied else "127.0.0.1:8090", fd=13)],
        role=Role.FRONT,
        ppid=1,
    )
    server = process(
        4100, "llama-server", role=Role.WORKER, syscall="poll(0x7f, 0x1, 0xffffffff)", ppid=FRONT,
        files=[socket("127.0.0.1:8090", state="LISTEN", fd=5)],
    )  # fmt: skip
    variables = {"HTTP_PROXY": "http://10.8.0.1:8888"} if proxied else {}
    return bundle(
        parent, server, engine="generic", phase=Phase.HTTP_BIND, environment=variables,
        options={"host": "127.0.0.1", "port": "8090"}, listeners=[Listener(host="127.0.0.1", port=8090, pid=4100)],
        log=["main: server is listening on http://127.0.0.1:8090", "srv  update_slots: all slots are idle"],
    )  # fmt: skip


def _horovod(*, refused: bool) -> Bundle:
    stack = ("init (horovod/common/basics.py:80)", "<module> (train.py:30)")
    said = [
        nccl_line("Ring 00 : 0[1a000] -> 1[1b000] via direct shared memory"),
        *[
            nccl_line("Call to posix_fallocate failed : No space left on device", 1, level="WARN")
            for _ in range(refused)
        ],
    ]
    small = {"shm_bytes": 64 << 20, "shm_used_bytes": 63 << 20} if refused else {}
    return bundle(
        [rank(n, name="python", stack=stack, native=["ncclAllReduce (libnccl.so.2)"]) for n in range(4)],
        engine="generic",
        phase=Phase.COMM_INIT,
        host=host(container="docker", **small),
        gpus=gpus(4, name="Tesla V100-SXM2-16GB", architecture="70"),
        log=said,
    )


def _near_the_end(*, apart: bool) -> Bundle:
    runs = "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4300)"
    drafts = (
        "synchronize (torch/cuda/streams.py:108)",
        "all_gatherv (vllm/distributed/device_communicators/pynccl.py:250)",
        "dispatch (vllm/distributed/device_communicators/all2all.py:60)",
        "forward (vllm/model_executor/layers/fused_moe/layer.py:1900)",
        "propose (vllm/v1/spec_decode/eagle.py:300)",
        "sample_tokens (vllm/v1/worker/gpu_model_runner.py:3500)",
        WORKER_MAIN,
    )
    skipped = (
        "all_reduce (torch/distributed/distributed_c10d.py:2900)",
        "coordinate_batch_across_dp (vllm/v1/worker/dp_utils.py:160)",
        runs,
        "execute_dummy_batch (vllm/v1/worker/gpu_worker.py:700)",
        WORKER_MAIN,
    )
    return vllm(
        worker(0, skipped if apart else drafts, syscall="epoll_wait(0x4)"),
        worker(1, drafts, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=spinning(gpus(2), 160),
        options={"data-parallel-size": "2", "enable-expert-parallel": []},
    )


def _loopback(*, refused: bool) -> Bundle:
    stack = (
        "new_group (torch/distributed/distributed_c10d.py:5071)",
        "__init__ (vllm/distributed/parallel_state.py:240)",
        "init_world_group (vllm/distributed/parallel_state.py:1060)",
        WORKER_MAIN,
    )
    said = (
        "[W ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. Using the loopback "
        "address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME."
    )
    nics = (
        interface("lo", "127.0.0.1", kind="loopback"),
        interface("ens32", "10.0.14.9"),
        interface("docker0", "172.17.0.1", kind="bridge"),
    )
    peer = "127.0.0.1:14215" if refused else "10.0.14.8:14215"
    state = "SYN_SENT" if refused else "ESTABLISHED"
    return vllm(
        workers(2, stack, syscall="epoll_wait(0x9)", files=[socket("127.0.0.1:39000", peer, state=state, fd=44)]),
        phase=Phase.RENDEZVOUS,
        nodes=2,
        node=1,
        host=host(interfaces=nics, container="kubernetes"),
        log=[line(said, source="Worker_TP0", number=0, level="WARNING", ago_s=200)] if refused else [],
    )


def _fits() -> Bundle:
    server = process(
        FRONT, "llama-server", syscall="futex(0x7f3a10, 0x80, 0x0)", role=Role.FRONT, ppid=1, memory=GB,
        threads=idle_threads()[3:],
    )  # fmt: skip
    said = "common_params_fit_impl: getting device memory data for initial parameters:"
    return bundle(
        server, engine="generic", phase=Phase.MODEL_INIT, log=[said], quiet_s=28_000,
        gpus=gpus(2, name="Tesla V100-SXM2-32GB", architecture="70", fabric="not supported"),
    )  # fmt: skip


def _lmcache(*, pins: bool) -> Bundle:
    stack = (
        "_allocate_cpu_memory (lmcache/v1/memory_management.py:200)",
        "__init__ (lmcache/v1/memory_management.py:900)",
        "init_lmcache_engine (lmcache/integration/vllm/vllm_adapter.py:110)",
        WORKER_MAIN,
    )
    native = ("?? (libcuda.so.1)", "cudaHostAlloc (libcudart.so.12)") if pins else ()
    moves = Moves(memory_bytes=8 * GB, locked_bytes=8 * GB) if pins else Moves()
    return vllm(
        workers(4, stack, native=native, state="R" if pins else "S", cpu=0.9 * pins, moves=moves, memory=90 * GB),
        phase=Phase.KV_CACHE,
        host=host(memory_bytes=1800 * GB, memory_free_bytes=1300 * GB),
        gpus=gpus(4),
        log=[line("Creating LMCacheEngine instance vllm-instance", source="Worker_TP0", number=0)],
    )


def _efs(*, network: bool) -> Bundle:
    kind = "nfs4" if network else "ext4"
    weights = "/mnt/cache/model-00042-of-00241.safetensors"
    stack = (
        "_get_tensor (vllm/model_executor/model_loader/weight_utils.py:700)",
        "load_weights (vllm/model_executor/models/qwen3_moe.py:520)",
        WORKER_MAIN,
    )
    moves = Moves(faults=900, memory_bytes=GB // 50, read_bytes=0) if network else Moves()
    return vllm(
        workers(
            8, stack, state="D" if network else "S", wchan="folio_wait_bit_common" if network else "", moves=moves,
            syscall="none: it blocks outside of any system call" if network else "futex(0x7f)",
            kernel=["folio_wait_bit_common", "filemap_fault"] if network else (),
            files=[file(weights, fd=-2, size=4 * GB, filesystem=kind)],
        ),
        phase=Phase.WEIGHTS,
        host=host(places=(place("weights", "/mnt/cache", filesystem=kind, needed_bytes=894 * GB),)),
        gpus=gpus(8, name="NVIDIA H200"),
        log=[line("Loading safetensors checkpoint shards:  17% Completed | 41/241", source="Worker_TP0", number=0)],
    )  # fmt: skip


def _moe_kernel(*, spins: bool) -> Bundle:
    stack = (
        "synchronize (torch/cuda/streams.py:231)",
        "get_output (vllm/v1/worker/gpu_model_runner.py:250)",
        "execute_model (vllm/v1/executor/uniproc_executor.py:80)",
        "run_busy_loop (vllm/v1/engine/core.py:1000)",
    )
    card = gpus(1, name="NVIDIA GeForce RTX 5090", architecture="120", fabric="not supported", power_limit_w=575.0)
    return bundle(
        front(label="APIServer"),
        engine(stack=stack, native=SYNCS, state="R", cpu=1.0, facts=ordinary_facts()),
        phase=Phase.SERVING,
        gpus=spinning(card, 62) if spins else card,
        question="no token within 60 s",
        log=[line("GET /health HTTP/1.1 200 OK")],
    )


def _broken_memory(*, told: bool) -> Bundle:
    cards = list(gpus(4, name="NVIDIA A100 80GB PCIe", architecture="80", fabric="not supported"))
    if told:
        cards[2] = replace(cards[2], xid=(48, 63, 94, 154), ecc_errors=12, repair="pending")
    stack = ("synchronize (torch/cuda/streams.py:231)", "sample_tokens (vllm/v1/worker/gpu_model_runner.py:3500)")
    said = "NVRM: Xid (PCI:0000:9c:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error"
    return vllm(
        workers(4, (*stack, WORKER_MAIN), native=SYNCS, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=tuple(cards),
        kernel_log=[said] if told else [],
    )


WORKSTATION = Topology(iommu="on", acs=("0000:40:01.1", "0000:60:01.1"), bar1_bytes=96 * GB)
CLEAN = Topology(iommu="off", acs=(), bar1_bytes=96 * GB)
PRO = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"

FIRST_RUN = FirstRun(established=11, supported=5, missed=3, undecided=1)

CASES = (
    Case(
        id="flashinfer-2071",
        url="https://github.com/flashinfer-ai/flashinfer/issues/2071",
        cause="stale_jit_lock",
        shows="the main thread polls in FileBaton for a lock that is a day old; no compiler is there",
        bundle=_dlpack(left=True),
        twin=_dlpack(left=False),
    ),
    Case(
        id="openequivariance-207",
        url="https://github.com/PASSIONLab/OpenEquivariance/issues/207",
        cause="stale_jit_lock",
        shows="the main thread polls in FileBaton for a lock older than the start",
        bundle=_equivariance(left=True),
        twin=_equivariance(left=False),
        companions=frozenset({"cgroup_pids"}),
    ),
    Case(
        id="vllm-33041",
        url="https://github.com/vllm-project/vllm/issues/33041",
        cause="nccl_p2p_pcie",
        shows="IOMMU on, ACS on the bridges; both GPUs spin in the first all-reduce",
        bundle=_pcie(2, PRO, WORKSTATION, spins=True),
        twin=_pcie(2, PRO, CLEAN, spins=False),
    ),
    Case(
        id="nccl-257",
        url="https://github.com/NVIDIA/nccl/issues/257",
        cause="nccl_p2p_pcie",
        shows="an IOMMU that translates, no NVLink, and all GPUs spin in an all-reduce",
        bundle=_pcie(
            4, "NVIDIA GeForce GTX 1080 Ti", Topology(iommu="on"), spins=True, architecture="61", power_limit_w=250.0
        ),
        twin=_pcie(4, "NVIDIA GeForce GTX 1080 Ti", Topology(iommu="off"), spins=False, architecture="61"),
    ),
    Case(
        id="sglang-20287",
        url="https://github.com/sgl-project/sglang/pull/20287",
        cause="rank_died",
        shows="rank 5 was killed, and the kernel counts its OOM killer; the launcher reads the pipe of another",
        bundle=_hicache(killed=True),
        twin=_hicache(killed=False),
        companions=frozenset({"process_died"}),
    ),
    Case(
        id="sglang-21486",
        url="https://github.com/sgl-project/sglang/pull/21486",
        cause="rank_died",
        shows="a rank is a zombie, its parent answers the health check",
        bundle=_aborted(dead=True),
        twin=_aborted(dead=False),
        companions=frozenset({"process_died"}),
    ),
    Case(
        id="sglang-40627",
        url="https://github.com/sgl-project/sglang/issues/40627",
        cause="process_died",
        shows="every child of the launcher is a zombie",
        bundle=_noexec(dead=True),
        twin=_noexec(dead=False),
        companions=frozenset({"rank_died"}),
    ),
    Case(
        id="hfhub-4508",
        url="https://github.com/huggingface/huggingface_hub/issues/4508",
        cause="download_stuck",
        shows="threads wait in the hub's download, its unfinished file does not grow",
        bundle=_xet(pulls=True),
        twin=_xet(pulls=False),
        companions=frozenset({"hub_network"}),
    ),
    Case(
        id="hfhub-2399",
        url="https://github.com/huggingface/huggingface_hub/issues/2399",
        cause="download_lock",
        shows="a thread polls for a lock file of the hub on a file system without flock; nobody holds it",
        bundle=_soft_lock(left=True),
        twin=_soft_lock(left=False),
    ),
    Case(
        id="sglang-9867",
        url="https://github.com/sgl-project/sglang/issues/9867",
        cause="slow_jit",
        shows="one rank computes in NVRTC while its cache grows, the others wait in a collective",
        bundle=_gemm_warmup(compiles=True),
        twin=_gemm_warmup(compiles=False),
    ),
    Case(
        id="hfhub-4128",
        url="https://github.com/huggingface/huggingface_hub/issues/4128",
        cause="fabric_not_ready",
        shows="the fabric is in progress, and the start of CUDA is refused with 802",
        bundle=_fabric("in progress", said=True),
        twin=_fabric("completed", said=False),
    ),
    Case(
        id="unsloth-6752",
        url="https://github.com/unslothai/unsloth/pull/6752",
        cause="http_proxy",
        shows="the parent asks a server on loopback through a proxy",
        bundle=_studio(proxied=True),
        twin=_studio(proxied=False),
    ),
    Case(
        id="nccl-290",
        url="https://github.com/NVIDIA/nccl/issues/290",
        cause="shm_too_small",
        shows="NCCL was refused shared memory, and /dev/shm of 64 MiB is full",
        bundle=_horovod(refused=True),
        twin=_horovod(refused=False),
    ),
    Case(
        id="vllm-44185",
        url="https://github.com/vllm-project/vllm/issues/44185",
        cause="mismatched_collective",
        shows="one rank is in a collective of the drafter, the other in one of the next step",
        bundle=_near_the_end(apart=True),
        twin=_near_the_end(apart=False),
    ),
    Case(
        id="awsdoeks-50",
        url="https://github.com/aws-samples/aws-do-eks/pull/50",
        cause="wrong_interface",
        shows="Gloo says that it fell back to loopback, and a rank of the other node knocks there",
        bundle=_loopback(refused=True),
        twin=_loopback(refused=False),
    ),
    Case(
        id="llamacpp-25126",
        url="https://github.com/ggml-org/llama.cpp/issues/25126",
        cause="unknown",
        lacks="native frames of the main thread",
        bundle=_fits(),
    ),
    Case(
        id="lmcache-792",
        url="https://github.com/LMCache/LMCache/issues/792",
        cause="host_memory_pin",
        shows="ranks stand in cudaHostAlloc while their locked memory grows",
        bundle=_lmcache(pins=True),
        twin=_lmcache(pins=False),
    ),
    Case(
        id="modelplane-204",
        url="https://github.com/modelplaneai/modelplane/issues/204",
        cause="slow_storage",
        shows="all ranks wait for pages of weights on NFS",
        bundle=_efs(network=True),
        twin=_efs(network=False),
    ),
    Case(
        id="vllm-41725",
        url="https://github.com/vllm-project/vllm/issues/41725",
        cause="kernel_hang_sm",
        shows="one GPU without peers is busy at idle power and moves no memory, its process waits for it",
        bundle=_moe_kernel(spins=True),
        twin=_moe_kernel(spins=False),
    ),
    Case(
        id="vllmbackport-62",
        url="https://github.com/wtdcode/vllm-backport/issues/62",
        cause="gpu_fault",
        shows="Xid 48 and a repair that waits for a reset on the GPU of one rank",
        bundle=_broken_memory(told=True),
        twin=_broken_memory(told=False),
    ),
)
