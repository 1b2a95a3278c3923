"""Machines of the ninth lot that stand still for a reason that nobody found, or that nobody could see."""

from collections.abc import Sequence

from msgspec.structs import replace
from tests.corpus.lots.ninth.machines import SGLANG, at, begun, launcher, loaded, started
from tests.corpus.lots.ninth.others import BARE
from tests.corpus.lots.ninth.stalls import AFTER_LOAD, GLOO_WAIT, detokenizer
from tests.corpus.surroundings import SGLANG_INIT, pcie_gpus, scheduler, schedulers, spinning

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.host import Topology
from firstlight.core.look import Listener
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    NO_PTRACE,
    Made,
    cuda_libraries,
    file,
    gpus,
    helper,
    host,
    ordinary_facts,
    place,
    process,
    rank,
    socket,
    thread,
)

NO_SYSFS = Gap(what="PCI topology", reason=GapReason.NO_PERMISSION, detail="/sys is not mounted")
UNKNOWN_WAY = Topology(iommu=NO_SYSFS, acs=NO_SYSFS, bar1_bytes=48 * GB)
NO_NATIVE = Gap(what="native stacks", reason=GapReason.NOT_INSTALLED, detail="neither pystack nor gdb is there")


def _stands(command: str, ranks: Sequence[Made], log: Sequence[str], phase: Phase, **more: object) -> Bundle:
    told = {"phase": phase, "quiet_s": 600, **more}
    return started(command, launcher(), detokenizer(), helper(), ranks, log=log, **told)  # type: ignore[arg-type]


def first_prefill() -> Bundle:
    stack = (
        "synchronize (torch/cuda/streams.py:231)",
        "resolve_last_batch_result (sglang/srt/managers/tp_worker_overlap_thread.py:176)",
        "process_batch_result_prefill (sglang/srt/managers/scheduler.py:1240)",
        "event_loop_overlap (sglang/srt/managers/scheduler.py:560)",
        "run_scheduler_process (sglang/srt/managers/scheduler.py:1816)",
    )
    line = "Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00, #running-req: 0"
    return _stands(
        f"{SGLANG} --tp 2 --max-total-tokens 10240 --port 30001",
        schedulers(2, stack, state="R", cpu=1.0),
        [*loaded(2), at("TP0", "Capture cuda graph end. Time elapsed: 9.72 s"), at("TP0", line)],
        Phase.WARMUP,
        gpus=spinning(pcie_gpus(2, "NVIDIA A10", architecture="86", memory_total_bytes=24 * GB), 61.0),
        host=host(topology=UNKNOWN_WAY),
    )


def four_percent() -> Bundle:
    stack = (
        "synchronize (torch/cuda/__init__.py:985)",
        "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:352)",
        "capture (sglang/srt/model_executor/cuda_graph_runner.py:279)",
        "__init__ (sglang/srt/model_executor/cuda_graph_runner.py:220)",
        "init_cuda_graphs (sglang/srt/model_executor/model_runner.py:725)",
        "run_scheduler_process (sglang/srt/managers/scheduler.py:1773)",
    )
    log = [
        *loaded(8),
        *(at(f"TP{number}", "Capture cuda graph begin. This can take up to several minutes.") for number in range(8)),
        "  4%|4         | 1/23 [00:08<03:05,  8.44s/it]",
    ]
    return _stands(
        f"{SGLANG} --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.2:5000 --trust-remote-code",
        schedulers(8, stack, state="R", cpu=1.0, native=NO_NATIVE),
        log,
        Phase.GRAPH_CAPTURE,
        gpus=spinning(gpus(8, name="NVIDIA H20", memory_total_bytes=96 * GB, memory_used_bytes=88 * GB), 128.0),
    )


def after_last_shard() -> Bundle:
    ranks = [
        scheduler(
            number, NO_PTRACE, native=NO_PTRACE, syscall=NO_PTRACE, cpu=1.0, memory=50 * GB,
            name=f"sglang::scheduler_PP{number // 2}_TP{number % 2}", label=f"PP{number // 2} TP{number % 2}",
        )
        for number in range(6)
    ]  # fmt: skip
    log = [*begun(0), "Loading safetensors checkpoint shards: 100% Completed | 163/163 [11:20<00:00,  4.17s/it]"]
    where = "/orange/lab/weights/llm"
    return _stands(
        f"python -m sglang.launch_server --model-path {where} --tp 2 --pp 3 --trust-remote-code", ranks, log,
        Phase.WEIGHTS, gpus=gpus(6, name="NVIDIA B200", architecture="100", memory_used_bytes=112 * GB),
        host=host(places=(place("weights", where, filesystem="lustre", needed_bytes=641 * GB),)),
    )  # fmt: skip


def other_node_loads() -> Bundle:
    mesh = socket("10.0.0.2:41002", "10.0.0.3:38112", fd=71)
    log = [
        *begun(8)[:3],
        "Loading safetensors checkpoint shards: 100% Completed | 62/62 [03:12<00:00,  3.10s/it]",
        *(at(f"TP{number}", "Load weight end. type=DeepseekV3ForCausalLM") for number in range(8)),
    ]
    return _stands(
        f"{SGLANG} --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.2:20000 --cuda-graph-bs 2",
        schedulers(8, AFTER_LOAD, native=GLOO_WAIT, memory=9 * GB, files=[mesh]), log, Phase.WEIGHTS, quiet_s=90,
        gpus=gpus(8, memory_used_bytes=66 * GB), motion=Motion.QUIET,
    )  # fmt: skip


def ada_init() -> Bundle:
    cards = pcie_gpus(
        8, "NVIDIA RTX 6000 Ada Generation", architecture="89", memory_total_bytes=48 * GB, bar1_bytes=64 * GB
    )
    return _stands(
        f"{SGLANG} --tp 2 --trust-remote-code",
        schedulers(2, SGLANG_INIT, state="R", cpu=1.0),
        [*begun(2), at("TP0", "sglang is using nccl==2.21.5"), at("TP1", "sglang is using nccl==2.21.5")],
        Phase.COMM_INIT,
        gpus=cards,
        host=host(topology=UNKNOWN_WAY, driver="560.35.03", cuda="12.6"),
    )


def host_pool() -> Bundle:
    """A prefill server with a host cache in Mooncake's store; nobody looked where it stands."""
    store = [
        socket("127.0.0.1:51844", "127.0.0.1:50051", fd=61),
        socket("127.0.0.1:38010", "127.0.0.1:8080", fd=62),
    ]
    rank = scheduler(
        0, NO_PTRACE, native=NO_PTRACE, syscall=NO_PTRACE, name="sglang::scheduler", label="scheduler", files=store
    )
    made = replace(rank.look.sample, memory_bytes=9 * GB)
    log = [
        *loaded(),
        at("", "Memory pool end. avail mem=9.51 GB"),
        at("", "Allocating 15.58 GB host memory for hierarchical KV cache."),
    ]
    return _stands(
        f"{SGLANG} --page-size 64 --enable-hierarchical-cache --hicache-storage-backend mooncake "
        "--disaggregation-mode prefill --base-gpu-id 0 --port 30000",
        [rank._replace(look=replace(rank.look, sample=made))], log, Phase.KV_CACHE, gpus=gpus(1),
        environment={"MOONCAKE_PROTOCOL": "tcp", "MOONCAKE_MASTER": "127.0.0.1:50051"},
        host=host(container="docker"),
    )  # fmt: skip


def _spin(count: int, name: str, watts: float, **more: object) -> tuple[Gpu, ...]:
    return spinning(pcie_gpus(count, name, **more), watts)


def ray_pair() -> Bundle:
    """LMDeploy's two workers compute for an hour after the start; peer access switched off lets them through."""
    ranks = [
        rank(
            number, name="ray::RayWorkerWrapper", label=f"rank {number}", ppid=4061, state="R", cpu=1.0,
            stack=NO_PTRACE, native=NO_PTRACE, memory=12 * GB,
        )
        for number in range(2)
    ]  # fmt: skip
    asks = ("get (ray/_private/worker.py:2822)",)
    main = process(FRONT, "lmdeploy serve", ppid=1, role=Role.FRONT, facts=BARE, stack=asks)
    raylet = process(4061, "raylet", native=("epoll_wait (libc.so.6)",), syscall="epoll_wait(0x9)", facts=BARE)
    return started(
        "lmdeploy serve api_server --server-port 8080 --tp 2 --backend pytorch --session-len 32768 /models/vl", main,
        raylet,
        ranks, log=["INFO worker.py:1942 -- Started a local Ray instance."], phase=Phase.COMM_INIT, quiet_s=3600,
        gpus=_spin(2, "NVIDIA RTX A6000", 84.0, architecture="86", memory_total_bytes=48 * GB),
        host=host(topology=UNKNOWN_WAY), ranks=2,
    )  # fmt: skip


def turbomind() -> Bundle:
    native = Gap(what="native stacks", reason=GapReason.TIMED_OUT, detail="pystack did not come back within 5 s")
    main = process(
        FRONT, "lmdeploy serve", ppid=1, role=Role.FRONT, stack=("wait (threading.py:324)",
        "join (threading.py:1096)"),
        threads=[thread(name=f"Thread-{at + 4}", state="R", native=native) for at in range(4)], memory=20 * GB,
    )  # fmt: skip
    log = [
        "[TM][DEBUG] void turbomind::UnifiedAttentionLayer::Forward(turbomind::UnifiedAttentionLayer::ForwardParam)",
        "[TM][DEBUG] T* turbomind::Tensor::getPtr() const [with T = __nv_bfloat16] start",
    ]
    cards = pcie_gpus(4, "NVIDIA A100-PCIE-40GB", architecture="80", memory_total_bytes=40 * GB, power_w=51.0)
    return started(
        "lmdeploy serve api_server /models/vl-40b --tp 4 --server-port 23333 --log-level DEBUG", main, helper(),
        log=log,
        phase=Phase.WARMUP, quiet_s=1800, gpus=cards, host=host(container="docker", topology=UNKNOWN_WAY),
        environment={"NCCL_P2P_DIRECT_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "0,3,4,7"},
    )  # fmt: skip


def mpi_import() -> Bundle:
    stack = (
        "local_init (tensorrt_llm/_ipc_utils.py:30)",
        "_init (tensorrt_llm/_common.py:65)",
        "<module> (tensorrt_llm/__init__.py:72)",
    )
    main = process(
        FRONT, "python", ppid=1, stack=stack, native=NO_NATIVE, cpu=0.0,
        facts=ordinary_facts(libraries=cuda_libraries(cuda="12.4", driver="535.129.03")),
    )  # fmt: skip
    log = [
        "WARNING: No preset parameters were found for the device that Open MPI",
        "detected:",
        "  Local host:            gpu-a",
        "  Device name:           mlx5_4",
        "Default device parameters will be used, which may result in lower",
        "performance.",
    ]
    return started(
        "python serve.py --engine_dir /models/engine", main, log=log, phase=Phase.IMPORT, quiet_s=900,
        gpus=gpus(1, name="NVIDIA L40", architecture="89", memory_total_bytes=48 * GB),
        host=host(kernel="3.10.0-1160", driver="535.129.03", cuda="12.2", devices=("/dev/infiniband",)),
    )  # fmt: skip


def radeon_load() -> Bundle:
    main = process(
        FRONT, "llama-server", ppid=1, role=Role.FRONT, native=NO_NATIVE, syscall=NO_PTRACE, cpu=1.0, state="R",
        facts=BARE, memory=3 * GB, files=[file("/models/q4.gguf", fd=9, size=2871947674)],
    )  # fmt: skip
    card = gpus(
        1, name="AMD Radeon 890M", vendor="amd", architecture="gfx1150", memory_total_bytes=32 * GB, power_w=9.0,
        power_limit_w=54.0, memory_used_bytes=GB, fabric="not supported",
    )  # fmt: skip
    return started(
        "./llama-server -m ./models/q4.gguf --host 0.0.0.0 --port 8080 -ngl 50 --parallel 1 --metrics", main,
        log=[
            "ggml_cuda_init: found 1 ROCm devices:",
            "srv    load_model: loading model './models/q4.gguf'",
        ],
        phase=Phase.WEIGHTS, quiet_s=700, gpus=card, listeners=(Listener(host="0.0.0.0", port=8080, pid=FRONT),),
        host=host(cpus=24, memory_bytes=32 * GB, memory_free_bytes=24 * GB, driver="amdgpu 6.12.12", cuda=""),
    )  # fmt: skip
