"""Reports whose cases were written before anybody looked at how their causes are found: the fourth ones, when
the causes had been mended by the first three."""

from tests.corpus.case import Case, FirstRun
from tests.corpus.surroundings import (
    IN_COMM_INIT,
    SCHEDULER_MAIN,
    SGLANG_INIT,
    SYNCS,
    WORKER_MAIN,
    pcie_gpus,
    schedulers,
    sglang,
    spinning,
    using_nccl,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.host import Resolved
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    bundle,
    cuda_libraries,
    ended,
    engine,
    file,
    front,
    gpus,
    helper,
    host,
    interface,
    line,
    ordinary_facts,
    place,
    process,
    rank,
    socket,
)

LAN = (interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.41.0.7"))

FALLBACK = line(
    "[W806 ProcessGroupGloo.cpp:524] Warning: Unable to resolve hostname to a (local) address. Using the loopback "
    "address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME.",
    level="WARNING",
    ago_s=500,
)


def _subset(*, meets: bool) -> Bundle:
    stack = (
        "rendezvous (torch/distributed/_symmetric_memory/__init__.py:1700)",
        "__init__ (vllm/distributed/device_communicators/symm_mem.py:90)",
        "__init__ (vllm/distributed/device_communicators/cuda_communicator.py:80)",
        "initialize_model_parallel (vllm/distributed/parallel_state.py:1400)",
        WORKER_MAIN,
    )
    return vllm(
        workers(2, stack if meets else stack[4:], cpu=0.02),
        phase=Phase.COMM_INIT,
        environment={"CUDA_VISIBLE_DEVICES": "0,1"},
        gpus=gpus(8, name="NVIDIA B200", architecture="100"),
        log=[using_nccl("2.27.7")],
    )


def _engine_gone(*, gone: bool) -> Bundle:
    core = engine(state="Z", stack=(), syscall="") if gone else engine()
    return bundle(
        front(stack=["select (selectors.py:468)", "run_forever (asyncio/base_events.py:608)"]),
        core,
        phase=Phase.SERVING,
        question="no token within 60 s",
        gpus=gpus(1, name="NVIDIA A30"),
        log=['"GET /version HTTP/1.1" 200 OK', "Running: 0 reqs, Waiting: 3 reqs"],
    )


def _model_card(*, asks: bool) -> Bundle:
    stack = [
        "create_connection (urllib3/util/connection.py:73)",
        "send (requests/adapters.py:640)",
        "model_info (huggingface_hub/hf_api.py:2200)",
        "is_on_huggingface (setfit/model_card.py:565)",
        "from_pretrained (setfit/modeling.py:700)",
        "<module> (/srv/classify.py:8)",
    ]
    main = process(
        FRONT,
        "python",
        stack=stack if asks else stack[5:],
        syscall="poll(0x7f, 0x1, 0xffffffff)" if asks else "futex(0x7f)",
        fds=(14,) if asks else (),
        files=[socket("10.0.0.2:43120", "18.64.174.110:443", state="SYN_SENT", fd=14)] if asks else [],
        ppid=1,
        memory=GB,
    )
    return bundle(main, engine="generic", phase=Phase.CONFIG)


def _shared_caches(*, stale: bool) -> Bundle:
    said = (
        "FileNotFoundError: [Errno 2] No such file or directory: '/cache/huggingface/triton/9f2/fused_moe.cubin.tmp'",
        "OSError: [Errno 116] Stale file handle: '/cache/huggingface/vllm-cache/torch_compile_cache/aa/rank_0_0'",
    )
    waits = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", WORKER_MAIN)
    kind = "nfs4" if stale else "ext4"
    return vllm(
        [] if stale else worker(1, waits),
        worker(0, waits, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.COMPILE,
        nodes=2,
        ranks=2,
        host=host(places=(place("compile_cache", "/cache/huggingface/vllm-cache", filesystem=kind),)),
        exits=[ended(worker(1, waits), code=1)] if stale else [],
        log=[line(one, source="Worker_TP1", number=1, level="ERROR", ago_s=41) for one in said] if stale else [],
    )


def _no_threads(*, refused: bool) -> Bundle:
    said = "terminate called after throwing an instance of 'std::system_error'\n  what():  Operation not permitted"
    main = front(facts=ordinary_facts(libraries=(), capabilities=("chown",), seccomp=2))
    return bundle(
        [] if refused else [main],
        helper(facts=ordinary_facts(libraries=(), capabilities=("chown",), seccomp=2)),
        phase=Phase.SPAWN,
        host=host(container="docker"),
        exits=[ended(main, signal=6, ago_s=2)] if refused else [],
        log=[line(said, level="ERROR", ago_s=2)] if refused else [],
    )


def _resolve(*, preloaded: bool) -> Bundle:
    shim = Library(path="/usr/local/vgpu/libvgpu.so", kind="preload", version="", preloaded=True)
    main = process(
        FRONT,
        "resolve",
        native=["futex_wait (libc.so.6)", "cuInit (libvgpu.so)", "cudaGetDeviceCount (libcudart.so.12)"]
        if preloaded
        else ["poll (libc.so.6)"],
        facts=ordinary_facts(libraries=(*cuda_libraries(driver="595.58"), *([shim] if preloaded else []))),
        ppid=1,
    )
    return bundle(
        main, engine="generic", phase=Phase.SPAWN, gpus=gpus(1, name="NVIDIA RTX A6000", architecture="86"),
        host=host(preload=("/usr/local/vgpu/libvgpu.so",) if preloaded else (), container="kubernetes"),
    )  # fmt: skip


def _writes_on(*, dead: bool) -> Bundle:
    writes = (
        "acquire_write (vllm/distributed/device_communicators/shm_broadcast.py:660): sched_yield()",
        "enqueue (vllm/distributed/device_communicators/shm_broadcast.py:760)",
        "collective_rpc (vllm/v1/executor/multiproc_executor.py:330)",
        "run_busy_loop (vllm/v1/engine/core.py:1000)",
    )
    waits = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", WORKER_MAIN)
    return bundle(
        front(),
        engine(stack=writes if dead else ["select (selectors.py:415)"], state="R" if dead else "S", cpu=1.0 * dead),
        worker(0, waits, native=SYNCS, state="R", cpu=1.0),
        [] if dead else worker(1, waits),
        phase=Phase.SERVING,
        ranks=2,
        exits=[ended(worker(1, waits), signal=6, ago_s=400)] if dead else [],
        gpus=gpus(2),
    )


def _shard(*, missing: bool) -> Bundle:
    stack = (
        "init_process_group (torch/distributed/distributed_c10d.py:900)",
        "initialize_torch_distributed (text_generation_server/utils/dist.py:60)",
        "serve_inner (text_generation_server/server.py:120)",
    )
    launcher = process(FRONT, "text-generation", role=Role.FRONT, ppid=1, facts=ordinary_facts(libraries=()))
    there = [
        rank(n, name="text-generation-server", stack=stack, syscall="poll(0x7f)", ppid=FRONT)
        for n in range(1 if missing else 0, 4)
    ]
    return bundle(
        launcher, there, engine="generic", phase=Phase.RENDEZVOUS, ranks=4, gpus=gpus(4, name="NVIDIA A10G"),
        log=[line("Waiting for shard to be ready... rank=0", ago_s=8)], quiet_s=14_000,
    )  # fmt: skip


def _vader(*, refused: bool) -> Bundle:
    said = [line(f"Read -1, expected {size}, errno = 1", number=0, level="ERROR", ago_s=60) for size in (4128, 8196)]
    stack = ("Allreduce (mpi4py/MPI.py:1)", "<module> (bench.py:20)")
    return bundle(
        [
            rank(
                n,
                name="python",
                stack=stack,
                native=["mca_btl_vader_component_progress (libopen-pal.so.40)", "MPI_Allreduce (libmpi.so.40)"],
                state="R",
                cpu=1.0,
                facts=ordinary_facts(capabilities=("chown", "kill"), seccomp=2),
            )
            for n in range(2)
        ],
        engine="generic",
        phase=Phase.WARMUP,
        host=host(container="docker"),
        log=said if refused else [],
    )


def _numactl(*, cold: bool) -> Bundle:
    mapped = file("/opt/models/gpt-oss-120b-mxfp4.gguf", fd=-2, size=63 * GB)
    main = process(
        FRONT,
        "llama-server",
        state="D" if cold else "S",
        kernel=["folio_wait_bit_common", "filemap_fault", "do_fault"] if cold else (),
        syscall="none: it blocks outside of any system call" if cold else "futex(0x7f)",
        wchan="folio_wait_bit_common" if cold else "",
        moves=Moves(faults=40_000, memory_bytes=160 << 20) if cold else Moves(),
        files=[mapped],
        role=Role.FRONT,
        ppid=1,
        memory=9 * GB,
    )
    return bundle(
        main, engine="generic", phase=Phase.WEIGHTS, motion=Motion.SLOW, options={"numa": "numactl"},
        host=host(places=(place("weights", "/opt/models", needed_bytes=63 * GB),)),
    )  # fmt: skip


def _from_the_head(*, told: bool) -> Bundle:
    stack = (
        "new_group (torch/distributed/distributed_c10d.py:4300)",
        "init_distributed_environment (vllm/distributed/parallel_state.py:860)",
        "init_device (vllm/worker/worker.py:170)",
        "execute_method (vllm/worker/worker_base.py:375)",
    )
    other = "(RayWorkerWrapper pid=1978, ip=10.41.0.8)"
    said = (
        f"{other} {FALLBACK.message}",
        f"{other} Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144]",
    )
    return vllm(
        workers(8, stack, syscall="epoll_wait(0x9)", files=[socket("10.41.0.7:40121", state="LISTEN", fd=41)]),
        phase=Phase.RENDEZVOUS,
        nodes=2,
        environment={"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"},
        host=host(interfaces=LAN),
        log=[line(one, level="WARNING", ago_s=290) for one in said] if told else [],
    )


def _mpirun() -> Bundle:
    native = ["poll (libc.so.6)", "opal_progress (libopen-pal.so.40)", "ompi_mpi_init (libmpi.so.40)"]
    return bundle(
        [rank(n, name="python", stack=["init (horovod/common/basics.py:80)"], native=native) for n in range(1)],
        engine="generic",
        phase=Phase.RENDEZVOUS,
        nodes=3,
        environment={"OMPI_MCA_btl_tcp_if_exclude": "lo,docker0"},
        host=host(interfaces=(*LAN, interface("docker0", "172.17.0.1", kind="bridge"))),
    )


FIRST_RUN = FirstRun(established=4, supported=0, missed=7, undecided=7)

CASES = (
    Case(
        id="vllm-38550",
        url="https://github.com/vllm-project/vllm/issues/38550",
        cause="custom_allreduce",
        shows="both ranks stand in the rendezvous of torch's symmetric memory",
        bundle=_subset(meets=True),
        twin=_subset(meets=False),
    ),
    Case(
        id="vllm-39863",
        url="https://github.com/vllm-project/vllm/issues/39863",
        cause="process_died",
        shows="the engine is a zombie, the front answers",
        bundle=_engine_gone(gone=True),
        twin=_engine_gone(gone=False),
    ),
    Case(
        id="setfit-495",
        url="https://github.com/huggingface/setfit/issues/495",
        cause="hub_network",
        shows="the main thread waits in the hub's code for a connection to port 443",
        bundle=_model_card(asks=True),
        twin=_model_card(asks=False),
    ),
    Case(
        id="dspark-27",
        url="https://github.com/tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark/issues/27",
        cause="nfs_cache",
        shows="a rank ended over a file of a cache that is gone or stale, and the cache lies on NFS",
        bundle=_shared_caches(stale=True),
        twin=_shared_caches(stale=False),
        companions=frozenset({"rank_died"}),
    ),
    Case(
        id="vllm-14416",
        url="https://github.com/vllm-project/vllm/issues/14416",
        cause="container_caps",
        shows="the server aborts since an operation is not permitted, under a seccomp filter",
        bundle=_no_threads(refused=True),
        twin=_no_threads(refused=False),
        companions=frozenset({"process_died"}),
    ),
    Case(
        id="hami-1834",
        url="https://github.com/Project-HAMi/HAMi/issues/1834",
        cause="preload_shim",
        shows="the main thread waits in the preloaded library's own cuInit",
        bundle=_resolve(preloaded=True),
        twin=_resolve(preloaded=False),
    ),
    Case(
        id="vllm-45644",
        url="https://github.com/vllm-project/vllm/pull/45644",
        cause="rank_died",
        shows="a rank was aborted, and the engine waits for room in the queue that it should read",
        bundle=_writes_on(dead=True),
        twin=_writes_on(dead=False),
    ),
    Case(
        id="tgi-675",
        url="https://github.com/huggingface/text-generation-inference/issues/675",
        cause="rank_died",
        shows="one of four ranks is not there, the others wait for it",
        bundle=_shard(missing=True),
        twin=_shard(missing=False),
    ),
    Case(
        id="ompi-4948",
        url="https://github.com/open-mpi/ompi/issues/4948",
        cause="container_caps",
        shows="MPI may not read another rank's memory, and ranks lack CAP_SYS_PTRACE under a seccomp filter",
        bundle=_vader(refused=True),
        twin=_vader(refused=False),
    ),
    Case(
        id="llamacpp-19191",
        url="https://github.com/ggml-org/llama.cpp/issues/19191",
        cause="slow_storage",
        shows="thousands of pages of the mapped weights are fetched one by one",
        bundle=_numactl(cold=True),
        twin=_numactl(cold=False),
    ),
    Case(
        id="vllm-7074",
        url="https://github.com/vllm-project/vllm/issues/7074",
        cause="wrong_interface",
        shows="the other node's ranks say that Gloo fell back to loopback, this node's wait for them",
        bundle=_from_the_head(told=True),
        twin=_from_the_head(told=False),
    ),
    Case(
        id="sglang-7478",
        url="https://github.com/sgl-project/sglang/issues/7478",
        cause="unknown",
        lacks="the sockets of NCCL's bootstrap on both nodes",
        bundle=sglang(
            schedulers(8, SGLANG_INIT, cpu=0.01),
            phase=Phase.COMM_INIT,
            nodes=2,
            environment={"NCCL_SOCKET_IFNAME": "enx", "GLOO_SOCKET_IFNAME": "enxa088c2393978"},
            options={"dist-init-addr": "node-0.company.net:20000"},
            host=host(
                interfaces=(LAN[0], interface("enxa088c2393978", "fd00:40::11")),
                resolved=(Resolved(name="node-0.company.net", addresses=("fd00:40::11",)),),
            ),
            gpus=gpus(8),
        ),
    ),
    Case(
        id="vllmbackport-14",
        url="https://github.com/wtdcode/vllm-backport/issues/14",
        cause="unknown",
        lacks="native frames, and the way between the GPUs",
        bundle=vllm(
            workers(8, IN_COMM_INIT, cpu=0.01),
            phase=Phase.COMM_INIT,
            gpus=pcie_gpus(8, "NVIDIA L40S", architecture="89"),
            log=[FALLBACK, using_nccl()],
        ),
    ),
    Case(
        id="vllm-45198",
        url="https://github.com/vllm-project/vllm/issues/45198",
        cause="unknown",
        lacks="native frames of the rank that loads the kernel",
        bundle=vllm(
            worker(
                0,
                (
                    "_init_handles (triton/compiler/compiler.py:480)",
                    "run (triton/runtime/jit.py:740)",
                    "_zero_kv_blocks (vllm/v1/worker/gpu_model_runner.py:1200)",
                    WORKER_MAIN,
                ),
            ),
            worker(1, ("synchronize (torch/cuda/streams.py:231)", WORKER_MAIN), native=SYNCS, state="R", cpu=1.0),
            phase=Phase.SERVING,
            gpus=gpus(2, name="NVIDIA RTX A5000", architecture="86"),
        ),
    ),
    Case(
        id="horovod-281",
        url="https://github.com/horovod/horovod/issues/281",
        cause="unknown",
        lacks="what MPI waits for, and whether the other hosts can reach this one",
        bundle=_mpirun(),
    ),
    Case(
        id="tritonbackend-390",
        url="https://github.com/triton-inference-server/tensorrtllm_backend/issues/390",
        cause="unknown",
        lacks="any stack of the two ranks",
        bundle=bundle(
            [rank(n, name="tritonserver", native=SYNCS, state="R", cpu=1.0) for n in range(2)],
            engine="generic",
            phase=Phase.SERVING,
            gpus=spinning(gpus(2, name="NVIDIA A100-SXM4-40GB", architecture="80"), 95, memory=1.0),
            host=host(driver="545.23.08", cuda="12.3"),
        ),
    ),
    Case(
        id="mooncake-1639",
        url="https://github.com/kvcache-ai/Mooncake/issues/1639",
        cause="unknown",
        lacks="which memory the transfer engine may reach",
        bundle=sglang(
            schedulers(4, ("wait (torch/distributed/distributed_c10d.py:500)", SCHEDULER_MAIN), cpu=0.3),
            phase=Phase.COMM_INIT,
            nodes=4,
            gpus=gpus(4, name="NVIDIA GB200", architecture="100"),
            log=[line(f"Rank {n} got invalid buffer data from {n + 8}.", level="WARNING", ago_s=2) for n in range(4)],
        ),
    ),
    Case(
        id="qwenvl-2018",
        url="https://github.com/QwenLM/Qwen3-VL/issues/2018",
        cause="unknown",
        lacks="the stacks of all ranks while it hangs",
        bundle=vllm(
            workers(4, ("wait (threading.py:327)", WORKER_MAIN)),
            phase=Phase.SERVING,
            gpus=gpus(4, name="NVIDIA H200"),
            log=[line("Symmetric memory is not supported on this device", level="WARNING", ago_s=600)],
        ),
    ),
)
