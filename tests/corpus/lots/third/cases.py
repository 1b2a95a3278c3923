"""Reports whose cases were written before anybody looked at how their causes are found: the third ones, written after
the causes had been mended by the first two."""

from msgspec.structs import replace
from tests.corpus.case import Case, FirstRun
from tests.corpus.surroundings import (
    BROADCAST_LINE,
    IDLE_WORKER,
    IN_COMM_INIT,
    SCHEDULER_MAIN,
    SYNCS,
    WORKER_MAIN,
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
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.look import Listener
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    NO_PTRACE,
    Moves,
    bundle,
    cuda_libraries,
    device,
    ended,
    engine,
    file,
    folder,
    front,
    gpus,
    host,
    interface,
    line,
    ordinary_cgroup,
    ordinary_facts,
    place,
    process,
    rank,
    socket,
)

UNSEEN = Gap(what="PCI bridges", reason=GapReason.NOT_SUPPORTED, detail="a virtual machine shows its own")
THINKS = (
    "synchronize (torch/cuda/streams.py:231)",
    "execute_model (vllm/v1/worker/gpu_model_runner.py:3300)",
    WORKER_MAIN,
)


def _over_rpc(*, sends: bool) -> Bundle:
    link = socket("192.168.100.100:40112", "192.168.100.101:50052", fd=19, unsent=240_000 if sends else 0)
    server = process(
        FRONT,
        "llama-server",
        native=[
            "send (libc.so.6)",
            "send_rpc_cmd(socket_t, rpc_cmd) (libggml-rpc.so)",
            "llama_model_load (libllama.so)",
        ]
        if sends
        else (),
        syscall="sendto(0x13, 0x7f, 0x100000)" if sends else "futex(0x7f)",
        fds=(19,) if sends else (),
        files=[link] if sends else [],
        moves=Moves(read_bytes=130 << 20) if sends else Moves(),
        cpu=0.05 * sends,
        role=Role.FRONT,
        ppid=1,
    )
    made = bundle(server, engine="generic", phase=Phase.WEIGHTS, motion=Motion.SLOW, log=["load_tensors: loading"])
    if not sends:
        return made
    looks = []
    for look, sent in zip(made.looks, (8 << 30, (8 << 30) + (130 << 20)), strict=True):
        one = look.processes[0]
        grown = replace(link, socket=replace(link.socket, sent_bytes=sent, received_bytes=9000))
        looks.append(replace(look, processes=(replace(one, files=(grown,)), *look.processes[1:])))
    return replace(made, looks=tuple(looks))


def _gpfs(*, slow: bool) -> Bundle:
    path = "/models/preset/llama4/model-00017-of-00084.safetensors"
    stack = (
        "get_tensor (safetensors/__init__.py:30)",
        "safetensors_weights_iterator (vllm/model_executor/model_loader/weight_utils.py:560)",
        "load_weights (vllm/model_executor/models/mllama4.py:800)",
        WORKER_MAIN,
    )
    kind = "gpfs" if slow else "xfs"
    stands = {
        "state": "D",
        "kernel": ("cxiWaitEventWait", "gpfs_i_fault", "filemap_fault"),
        "syscall": "none: it blocks outside of any system call",
        "moves": Moves(faults=400, memory_bytes=20 << 20),
        "files": [file(path, fd=-2, size=5 * GB, filesystem=kind)],
    }
    return vllm(
        workers(8, stack if slow else stack[3:], **(stands if slow else {})),
        phase=Phase.WEIGHTS,
        host=host(
            container="kubernetes",
            places=(place("weights", "/models/preset/llama4", filesystem=kind, slow=slow, needed_bytes=400 * GB),),
        ),
        gpus=gpus(8),
        motion=Motion.SLOW,
    )


def _turing(*, compiles: bool) -> Bundle:
    native = ("?? (libnvidia-ptxjitcompiler.so.1)", "cuModuleLoadDataEx (libcuda.so.1)", "ggml_cuda_mul (libggml.so)")
    jit = Library(path="/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1", kind="ptx_jit", version="")
    main = process(
        FRONT, "audiocpp", native=native if compiles else (), state="R" if compiles else "S", cpu=1.0 * compiles,
        ppid=1, facts=ordinary_facts(libraries=(*cuda_libraries(), *([jit] if compiles else []))),
    )  # fmt: skip
    return bundle(
        main, engine="generic", phase=Phase.WARMUP, gpus=gpus(1, name="Quadro RTX 8000", architecture="75"),
        folders=[folder("engine_cache", "/root/.nv/ComputeCache", bytes_=9 << 20, grows=400_000 * compiles)],
    )  # fmt: skip


def _slots(*, native: bool) -> Bundle:
    appends = ("sched_yield (libc.so.6)", "ncclLocalOpAppend (libnccl.so.2)", "SaveProxy (libnccl.so.2)")
    stack = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", *THINKS[1:])
    return vllm(
        worker(0, stack, native=appends if native else NO_PTRACE, state="R", cpu=1.0,
               facts=ordinary_facts(libraries=cuda_libraries(nccl="2.28.9"))),
        phase=Phase.SERVING,
        nodes=2,
        gpus=gpus(1, name="NVIDIA GB10", architecture="121"),
        host=host(cpu_arch="aarch64"),
    )  # fmt: skip


def _sgmv(*, spins: bool) -> Bundle:
    stack = (
        "synchronize (torch/cuda/streams.py:95)",
        "lora_a_sgmv_cutlass (lorax_server/utils/sgmv.py:120)",
        "generate_token (lorax_server/models/flash_causal_lm.py:900)",
        "Prefill (lorax_server/server.py:80)",
    )
    card = gpus(1)
    return bundle(
        process(FRONT, "lorax-launcher", role=Role.FRONT, ppid=1, facts=ordinary_facts(libraries=())),
        rank(0, name="lorax-server", stack=stack, native=SYNCS, state="R", cpu=1.0, ppid=FRONT),
        engine="generic",
        phase=Phase.SERVING,
        gpus=spinning(card, 128) if spins else card,
        question="no token within 60 s",
    )


def _two_amd(*, bridge: bool) -> Bundle:
    nics = (interface("lo", "127.0.0.1", kind="loopback"), interface("enp6s0", "192.168.8.20"))
    taken = interface("docker0", "172.17.0.1", kind="bridge")
    return vllm(
        worker(
            0,
            IN_COMM_INIT if bridge else THINKS[1:],
            native=["poll (libc.so.6)", "ncclSocketAccept (librccl.so.1)", "bootstrapInit (librccl.so.1)"],
            files=[socket("172.17.0.1:41233", state="LISTEN", fd=50)] if bridge else [],
        ),
        phase=Phase.COMM_INIT,
        nodes=2,
        gpus=gpus(1, name="Radeon RX 9070 XT", vendor="amd", architecture="gfx1201"),
        host=host(interfaces=(*nics, taken) if bridge else nics),
        log=[nccl_line("Bootstrap : Using docker0:172.17.0.1<0>")] if bridge else [],
    )


def _store(*, knocks: bool) -> Bundle:
    stack = (
        "_create_c10d_store (torch/distributed/rendezvous.py:189)",
        "init_process_group (torch/distributed/distributed_c10d.py:1200)",
        "init_distributed_environment (vllm/distributed/parallel_state.py:840)",
        WORKER_MAIN,
    )
    said = "[E socket.cpp:957] [c10d] The client socket has timed out after 60s while trying to connect to "
    return vllm(
        worker(
            1,
            stack,
            syscall="connect(0x20)",
            files=[socket("192.168.41.80:50122", "192.168.41.79:29502", state="SYN_SENT", fd=32)] if knocks else [],
        ),
        phase=Phase.RENDEZVOUS,
        nodes=2,
        node=1,
        environment={"MASTER_ADDR": "192.168.41.79", "MASTER_PORT": "29502"},
        log=[line(f"{said}(192.168.41.79, 29502).", source="Worker_TP1", number=1, level="ERROR")] if knocks else [],
    )


def _two_mpis(*, both: bool) -> Bundle:
    own = Library(path="/opt/conda/envs/trt/lib/libmpi.so.12", kind="mpi", version="12", build="m1")
    theirs = Library(path="/usr/lib/x86_64-linux-gnu/libmpi.so.40", kind="mpi", version="40", build="o1")
    main = process(
        FRONT,
        "python",
        stack=["<module> (mpi4py/MPI.py:1)", "<module> (tensorrt_llm/_utils.py:30)", "<module> (run.py:1)"],
        native=["poll (libc.so.6)", "MPIDU_Sock_wait (libmpi.so.12)", "MPI_Init_thread (libmpi.so.12)"],
        ppid=1,
        facts=ordinary_facts(libraries=(*cuda_libraries(), own, *([theirs] if both else []))),
    )
    return bundle(main, engine="generic", phase=Phase.IMPORT, gpus=gpus(8))


def _off_the_bus(*, told: bool) -> Bundle:
    said = (
        "NVRM: Xid (PCI:0000:10:00): 79, pid=4050, name=sglang, GPU has fallen off the bus.",
        "NVRM: GPU 0000:10:00.0: GPU has fallen off the bus.",
    )
    return bundle(
        front(),
        engine(stack=THINKS[:2], native=SYNCS, state="R", cpu=1.0, facts=ordinary_facts()),
        phase=Phase.SERVING,
        gpus=gpus(1, name="NVIDIA GeForce RTX 5080", architecture="120", fault="GPU is lost" if told else ""),
        kernel_log=said if told else (),
    )


def _runner_oom(*, killed: bool) -> Bundle:
    main = process(
        FRONT, "ollama", role=Role.FRONT, ppid=1,
        facts=ordinary_facts(libraries=(), cgroup=ordinary_cgroup(memory_max_bytes=6 * GB, oom_kills=int(killed))),
    )  # fmt: skip
    return bundle(
        [] if killed else [main], engine="generic", phase=Phase.SERVING, host=host(container="kubernetes"),
        exits=[ended(main, signal=9, oom=True)] if killed else [],
    )  # fmt: skip


def _membind(*, refused: bool) -> Bundle:
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


def _swap(*, killed: bool) -> Bundle:
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


def _forked(*, forked: bool) -> Bundle:
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


def _evicts(*, busy: bool) -> Bundle:
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


def _read_by_nobody() -> Bundle:
    reads = (
        "acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:802)",
        "dequeue (vllm/distributed/device_communicators/shm_broadcast.py:850)",
        "get_response (vllm/v1/executor/multiproc_executor.py:390)",
        "run_busy_loop (vllm/v1/engine/core.py:1000)",
    )
    return bundle(
        front(), engine(stack=reads), worker(0, IDLE_WORKER), phase=Phase.SERVING, nodes=4,
        host=host(cpu_arch="aarch64"), gpus=gpus(1, name="NVIDIA GB10", architecture="121"), log=[BROADCAST_LINE],
    )  # fmt: skip


def _each_for_the_other() -> Bundle:
    reads = (
        "poll (zmq/sugar/poll.py:106)",
        "recv (vllm/distributed/device_communicators/shm_broadcast.py:802)",
        "dequeue (vllm/distributed/device_communicators/shm_broadcast.py:794)",
    )
    core = (
        *reads,
        "get_response (vllm/v1/executor/multiproc_executor.py:387)",
        "step_with_batch_queue (vllm/v1/core.py:590)",
    )
    return bundle(
        front(),
        engine(stack=core, syscall="poll(0x7f, 0x1, 0xffffffff)"),
        worker(0, (*reads, "worker_busy_loop (vllm/v1/executor/ray_executor_v2.py:300)"), syscall="poll(0x7f, 0x1)"),
        phase=Phase.SERVING,
        nodes=2,
        gpus=gpus(1),
    )


def _inductor() -> Bundle:
    stack = (
        "wait (threading.py:327)",
        "result (concurrent/futures/_base.py:451)",
        "_wait_futures (torch/_inductor/async_compile.py:420)",
        "compile_to_module (torch/_inductor/graph.py:2100)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:1500)",
        "run_engine_core (vllm/v1/engine/core.py:400)",
    )
    pool = process(
        4300, "python", role=Role.COMPILER, ppid=4050, stack=["read (torch/_inductor/compile_worker/pool.py:60)"],
        syscall="read(0x5, 0x7f, 0x10)", facts=ordinary_facts(libraries=()),
    )  # fmt: skip
    return bundle(front(), engine(stack=stack), pool, phase=Phase.COMPILE, gpus=gpus(1, name="NVIDIA A10G"))


def _other_node() -> Bundle:
    stack = (
        "synchronize (torch/cuda/streams.py:231)",
        "all_reduce (vllm/distributed/device_communicators/pynccl.py:168)",
        "profile_run (vllm/worker/model_runner.py:1200)",
        WORKER_MAIN,
    )
    card = gpus(1, name="NVIDIA A100 80GB PCIe", architecture="80", power_limit_w=300.0)
    return vllm(
        worker(0, stack, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.WARMUP,
        nodes=2,
        gpus=spinning(card, 72),
        log=[line("Directly load the compiled graph for shape None from the cache", source="Worker_TP0", number=0)],
    )


def _shmem() -> Bundle:
    stack = (
        "internode_dispatch (deep_ep/buffer.py:490)",
        "dispatch (deep_ep/buffer.py:377)",
        "test_main (/home/u/DeepEP/tests/test_internode.py:138)",
    )
    cards = gpus(8)
    return bundle(
        [rank(n, name="python", stack=stack, state="R", cpu=1.0, ppid=FRONT) for n in range(8)],
        engine="generic",
        phase=Phase.WARMUP,
        nodes=2,
        gpus=spinning(cards, 190, memory=3.0),
    )


FIRST_RUN = FirstRun(established=6, supported=4, missed=4, undecided=11)

CASES = (
    Case(
        id="llamacpp-27653",
        url="https://github.com/ggml-org/llama.cpp/issues/27653",
        cause="slow_network_load",
        shows="the loader sends to the RPC server without a pause, at a hundredth of the line's speed",
        bundle=_over_rpc(sends=True),
        twin=_over_rpc(sends=False),
    ),
    Case(
        id="vllm-16152",
        url="https://github.com/vllm-project/vllm/issues/16152",
        cause="slow_storage",
        shows="all ranks wait for pages of weights on GPFS",
        bundle=_gpfs(slow=True),
        twin=_gpfs(slow=False),
    ),
    Case(
        id="audiocpp-559",
        url="https://github.com/0xShug0/audio.cpp/pull/559",
        cause="ptx_jit",
        shows="the main thread computes in the driver's PTX compiler, whose cache grows",
        bundle=_turing(compiles=True),
        twin=_turing(compiles=False),
    ),
    Case(
        id="nccl-2353",
        url="https://github.com/NVIDIA/nccl/issues/2353",
        cause="nccl_version",
        shows="a rank spins in ncclLocalOpAppend",
        bundle=_slots(native=True),
        twin=_slots(native=False),
    ),
    Case(
        id="lorax-149",
        url="https://github.com/predibase/lorax/issues/149",
        cause="kernel_hang_sm",
        shows="the only GPU is busy at idle power and moves no memory",
        bundle=_sgmv(spins=True),
        twin=_sgmv(spins=False),
    ),
    Case(
        id="rocm-5567",
        url="https://github.com/ROCm/legacy-rocm-build/issues/5567",
        cause="wrong_interface",
        shows="a rank of two nodes listens on docker's bridge while communicators are made",
        bundle=_two_amd(bridge=True),
        twin=_two_amd(bridge=False),
    ),
    Case(
        id="vllm-5779",
        url="https://github.com/vllm-project/vllm/issues/5779",
        cause="rendezvous_unreachable",
        shows="a rank knocks where it was told to meet, without an answer",
        bundle=_store(knocks=True),
        twin=_store(knocks=False),
    ),
    Case(
        id="trtllm-2405",
        url="https://github.com/NVIDIA/TensorRT-LLM/issues/2405",
        cause="mpi_mismatch",
        shows="two MPIs of different makers are mapped, and the main thread waits in the start of one",
        bundle=_two_mpis(both=True),
        twin=_two_mpis(both=False),
    ),
    Case(
        id="opengpu-1151",
        url="https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1151",
        cause="gpu_fault",
        shows="Xid 79, and the driver says that the GPU is lost",
        bundle=_off_the_bus(told=True),
        twin=_off_the_bus(told=False),
    ),
    Case(
        id="homeops-13936",
        url="https://github.com/rwlove/home-ops/pull/13936",
        cause="process_died",
        shows="the server was killed, and the kernel counts its OOM killer",
        bundle=_runner_oom(killed=True),
        twin=_runner_oom(killed=False),
    ),
    Case(
        id="vllm-45438",
        url="https://github.com/vllm-project/vllm/pull/45438",
        cause="numa_binding",
        shows="both workers ended when set_mempolicy was not permitted, and the container lacks the capability",
        bundle=_membind(refused=True),
        twin=_membind(refused=False),
        companions=frozenset({"container_caps", "rank_died"}),
    ),
    Case(
        id="llamaswap-92",
        url="https://github.com/mostlygeek/llama-swap/issues/92",
        cause="probe_kill",
        shows="the proxy gave up waiting, and ended a runner that still loaded",
        bundle=_swap(killed=True),
        twin=_swap(killed=False),
        companions=frozenset({"process_died", "rank_died"}),
    ),
    Case(
        id="vlmevalkit-1363",
        url="https://github.com/open-compass/VLMEvalKit/issues/1363",
        cause="fork_after_cuda",
        shows="the engine was forked from a process with many threads, and stands in the start of CUDA",
        bundle=_forked(forked=True),
        twin=_forked(forked=False),
        companions=frozenset({"fork_in_threads"}),
    ),
    Case(
        id="sglang-30314",
        url="https://github.com/sgl-project/sglang/issues/30314",
        cause="cpu_spin",
        shows="the scheduler computes in the same place at both looks",
        bundle=_evicts(busy=True),
        twin=_evicts(busy=False),
    ),
    Case(
        id="vllm-51921",
        url="https://github.com/vllm-project/vllm/issues/51921",
        cause="unknown",
        lacks="the stacks of the other three nodes",
        bundle=_read_by_nobody(),
    ),
    Case(
        id="sglang-23342",
        url="https://github.com/sgl-project/sglang/issues/23342",
        cause="pd_handshake",
        lacks="the address that the transfer advertised, and the other side",
        bundle=sglang(
            scheduler(
                0,
                (
                    "recv_requests (sglang/srt/managers/scheduler.py:1100)",
                    "event_loop_overlap_disagg_decode (sglang/srt/disaggregation/decode.py:800)",
                    SCHEDULER_MAIN,
                ),
            ),
            phase=Phase.SERVING,
            gpus=gpus(1, name="AMD Instinct MI300X", vendor="amd", architecture="gfx942"),
            options={"disaggregation-mode": "decode"},
            question="no token within 60 s",
            listeners=[Listener(host="0.0.0.0", port=30001, pid=FRONT)],
        ),
    ),
    Case(
        id="trtllm-9680",
        url="https://github.com/NVIDIA/TensorRT-LLM/issues/9680",
        cause="unknown",
        lacks="any stack, and the way between the GPUs",
        bundle=bundle(
            [rank(n, name="trtllm-serve", stack=NO_PTRACE, native=NO_PTRACE, ppid=FRONT) for n in range(4)],
            engine="generic",
            phase=Phase.COMM_INIT,
            gpus=pcie_gpus(4, "NVIDIA L40S", architecture="89"),
            host=host(topology=Topology(iommu="off", acs=(), bar1_bytes=64 * GB)),
            log=["[TensorRT-LLM][INFO] Rank 2 is using GPU 2"],
        ),
    ),
    Case(
        id="tinygrad-45",
        url="https://github.com/tinygrad/open-gpu-kernel-modules/issues/45",
        cause="unknown",
        lacks="the bridges of the host, which a virtual machine does not show",
        bundle=bundle(
            [rank(n, name="all_reduce_perf", native=SYNCS, state="R", cpu=1.0) for n in range(8)],
            engine="generic",
            phase=Phase.WARMUP,
            gpus=spinning(pcie_gpus(8, "NVIDIA GeForce RTX 4090", architecture="89"), 90, memory=2.0),
            host=host(topology=Topology(iommu="off", acs=UNSEEN, bar1_bytes=32 * GB)),
        ),
    ),
    Case(
        id="vllm-15360",
        url="https://github.com/vllm-project/vllm/issues/15360",
        cause="unknown",
        lacks="what became of the compile that the pool was given",
        bundle=_inductor(),
    ),
    Case(
        id="vllm-15935",
        url="https://github.com/vllm-project/vllm/issues/15935",
        cause="unknown",
        lacks="the other node",
        bundle=_other_node(),
    ),
    Case(
        id="vllm-50835",
        url="https://github.com/vllm-project/vllm/issues/50835",
        cause="unknown",
        lacks="the state of the queue in shared memory, and the other node",
        bundle=_each_for_the_other(),
    ),
    Case(
        id="vllm-46509",
        url="https://github.com/vllm-project/vllm/issues/46509",
        cause="unknown",
        lacks="why the other node did not answer over RDMA",
        bundle=vllm(
            workers(
                2, ("wait (threading.py:320)", "shutdown (vllm/v1/executor/multiproc_executor.py:500)", WORKER_MAIN)
            ),
            phase=Phase.WARMUP,
            nodes=2,
            gpus=gpus(2),
            log=[line("RuntimeError: DeepEP error: timeout (dispatch CPU)", source="Worker_DP7", level="ERROR")],
        ),
    ),
    Case(
        id="deepep-707",
        url="https://github.com/deepseek-ai/DeepEP/issues/707",
        cause="unknown",
        lacks="which NVSHMEM the library was built against",
        bundle=_shmem(),
    ),
    Case(
        id="vllm-16140",
        url="https://github.com/vllm-project/vllm/issues/16140",
        cause="unknown",
        lacks="where the tokenizer's actor stands",
        bundle=bundle(
            front(
                stack=[
                    "get (ray/_private/worker.py:2770)",
                    "ping (vllm/transformers_utils/tokenizer_group/ray.py:90)",
                ]
            ),
            process(4500, "ray::IDLE", role=Role.OTHER, ppid=1, memory=GB),
            phase=Phase.MODEL_INIT,
            options={"tokenizer-pool-size": "1"},
        ),
    ),
    Case(
        id="nccl-1936",
        url="https://github.com/NVIDIA/nccl/issues/1936",
        cause="unknown",
        lacks="NCCL's log of all ranks, and the sockets of its bootstrap",
        bundle=vllm(workers(2, IN_COMM_INIT, cpu=0.01), phase=Phase.COMM_INIT, gpus=gpus(2), log=[using_nccl()]),
    ),
)
