"""Reports of the eighth lot of which nobody found out, or where what was to be seen does not decide."""

from tests.corpus.case import Case
from tests.corpus.lots.eighth.gpus import after_xid, amd_pair
from tests.corpus.lots.eighth.kills import lost_a_file
from tests.corpus.lots.eighth.machines import (
    CORE,
    LAN,
    RUN_CORE,
    WAITS_FOR_CORE,
    first_of_two,
    heard,
    spins_alone,
)
from tests.corpus.surroundings import pcie_gpus, vllm, workers

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.look import Pressure
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.testing.bundles import (
    GB,
    NO_PTRACE,
    bundle,
    engine,
    front,
    gpus,
    helper,
    host,
    place,
    process,
    rank,
    thread,
)

GH = "https://github.com/"
HIDDEN = Gap(what="PCI topology", reason=GapReason.NO_PERMISSION, detail="/sys is not mounted")
IN_CLOUD = Topology(iommu=HIDDEN, acs=HIDDEN, bar1_bytes=HIDDEN)
NO_NVML = Gap(what="GPUs", reason=GapReason.NOT_INSTALLED, detail="nvidia-ml-py")

LORA_CAPTURE = (
    "forward (vllm/model_executor/models/qwen2.py:340)",
    "_dummy_run (vllm/v1/worker/gpu_model_runner.py:1490)",
    "capture_model (vllm/v1/worker/gpu_model_runner.py:1595)",
    *RUN_CORE,
)


def beside_a_fork() -> Bundle:
    """A front that forks its engine while another of its threads prepares pictures and sound."""
    forks = [
        "_launch (multiprocessing/popen_fork.py:66)",
        "__init__ (multiprocessing/popen_fork.py:19)",
        "_Popen (multiprocessing/context.py:282)",
        "start (multiprocessing/process.py:121)",
        "__init__ (vllm/v1/engine/utils.py:160)",
        "launch_core_engines (vllm/v1/engine/utils.py:1010)",
    ]
    warms = thread(
        ["spectrogram (transformers/audio_utils.py:760)", "_warmup (vllm/renderers/base.py:140)"],
        name="renderer-warmup", syscall="futex(0x5581, 0x80, 0x2)",
    )  # fmt: skip
    made = bundle(
        front(stack=forks, threads=[warms], syscall="futex(0x7f2e44, 0x80, 0x2)"), phase=Phase.SPAWN,
        version="0.28.0",
        gpus=gpus(1, name="NVIDIA H200"), quiet_s=1200,
    )  # fmt: skip
    return heard(made, ["INFO {} [model.py:540] Resolved architecture: MossAudioModel"], ago_s=1200)


def _case(where: str, lacks: str, bundle_: Bundle, cause: str = "unknown", *beside: str) -> Case:
    id_, path = where.split()
    return Case(id=id_, url=GH + path, cause=cause, bundle=bundle_, lacks=lacks, companions=frozenset(beside))


UNDECIDED = (
    _case(
        "vllm-46190 vllm-project/vllm/pull/46190",
        "which kernel is resident on the GPUs",
        amd_pair(),
        "kernel_hang_sm",
        "kernel_hang_sm",
    ),
    _case(
        "opengpu-1355 NVIDIA/open-gpu-kernel-modules/issues/1355",
        "the kernel's log from before the start, which tells of Xid 145",
        after_xid(),
        "gpu_fault",
        "gpu_fault",
    ),
    _case(
        "vllm-34113 vllm-project/vllm/issues/34113",
        "any stack of the thread that computes",
        spins_alone(
            "AMD Radeon 8060S",
            "amd",
            NO_PTRACE,
            [CORE + "DEBUG {} [decorators.py:202] Inferred dynamic dimensions for forward method", WAITS_FOR_CORE],
            version="0.15.1",
            environment={"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "INFO"},
            quiet_s=8000,
        ),
    ),
    _case(
        "vllm-39682 vllm-project/vllm/issues/39682",
        "stacks of the worker, and the other node",
        heard(
            bundle(
                front(),
                engine(stack=NO_PTRACE, syscall=NO_PTRACE),
                rank(0, name="ray::RayWorkerWrapper", stack=NO_PTRACE, syscall=NO_PTRACE, state="R", cpu=1.0),
                helper(),
                phase=Phase.KV_CACHE,
                nodes=2,
                version="0.19.1",
                host=host(name="gb10-a", cpu_arch="aarch64", interfaces=LAN),
                gpus=gpus(1, name="NVIDIA GB10", architecture="121", fabric="not supported"),
                environment={"NCCL_P2P_DISABLE": "1"},
                quiet_s=2400,
            ),
            [(
                "(EngineCore pid=4050) INFO {} [gpu_model_runner.py:4820] Model loading took 14.53 GiB memory "
                "and 172.4 seconds"
            )],
        ),
    ),
    _case(
        "vllm-42063 vllm-project/vllm/issues/42063",
        "stacks of the workers, and the way between the GPUs of this virtual machine",
        heard(
            vllm(
                workers(4, NO_PTRACE, native=NO_PTRACE, syscall=NO_PTRACE, state="R", cpu=1.0),
                phase=Phase.WEIGHTS,
                version="0.20.0",
                ranks=4,
                host=host(topology=IN_CLOUD, kernel="6.12.68+"),
                gpus=pcie_gpus(4, "NVIDIA RTX PRO 6000 Blackwell Server Edition", memory_total_bytes=96 * GB),
            ),
            [
                "(Worker_TP0 pid=4100) INFO {} [pynccl.py:111] vLLM is using nccl==2.28.9",
                ("(Worker_TP0 pid=4100) WARNING {} [symm_mem.py:66] SymmMemCommunicator: Device capability 12.0 not "
                "supported, communicator is not available."),
                (
                    "(Worker_TP0 pid=4100) WARNING {} [custom_all_reduce.py:165] Custom allreduce is disabled "
                    "because it's "
                "not supported on more than two PCIe-only GPUs. To silence this warning, specify "
                "disable_custom_all_reduce=True explicitly."),
                "(Worker_TP0 pid=4100) INFO {} [gpu_model_runner.py:4777] Starting to load model org/model-NVFP4...",
            ],
        ),
    ),
    _case(
        "vllm-16961 vllm-project/vllm/issues/16961",
        "native frames of the thread that computes, at several looks",
        spins_alone(
            "NVIDIA GeForce RTX 4090",
            "nvidia",
            LORA_CAPTURE,
            ["INFO {} [backends.py:115] Directly load the compiled graph for shape None from the cache"],
            phase=Phase.GRAPH_CAPTURE,
            version="0.8.4",
            options={"enable_lora": (), "max_loras": "3"},
            gpus=pcie_gpus(1, "NVIDIA GeForce RTX 4090", architecture="89", memory_used_bytes=20 * GB),
            quiet_s=5000,
        ),
    ),
    _case(
        "pytorch-137695 pytorch/pytorch/issues/137695",
        "how many files the rank had open when it could not open another",
        lost_a_file(),
        "ulimit",
        "ulimit",
        "rank_died",
        "process_died",
        "program_failed",
    ),
    _case(
        "sparkrun-292 spark-arena/sparkrun/issues/292",
        "the second node, where nothing was started, and the launcher that waits for a port of the first",
        first_of_two(
            [(
                "(APIServer pid=4000) DEBUG {} [utils.py:1262] Waiting for 0 local, 1 remote core engine "
                "proc(s) to start."
            )],
            options={"data_parallel_size": "2", "data_parallel_address": "10.83.4.12", "tensor_parallel_size": "1"},
            port=8000,
        ),
    ),
    _case(
        "miaispark-48 MiaAI-Lab/Qwen3.8-Flash-Next-Dual-DGX-Sparks/issues/48",
        "the second node, which was told to be the first as well",
        first_of_two(
            [
                "(APIServer pid=4000) INFO {} [arg_utils.py:2180] Inferred data_parallel_rank 0 from node_rank 0",
                ("(EngineCore_DP0 pid=4050) INFO {} [parallel_state.py:1400] world_size=2 rank=0 local_rank=0 "
                "distributed_init_method=tcp://10.83.4.12:29501 backend=nccl"),
            ],
            options={"nnodes": "2", "master_addr": "10.83.4.12", "tensor_parallel_size": "2"},
        ),
    ),
    _case(
        "vllm-11139 vllm-project/vllm/issues/11139",
        "the other pod, and NCCL's own log",
        heard(
            bundle(
                process(4000, "python", stack=NO_PTRACE, native=NO_PTRACE, ppid=1, cpu=1.0, state="R"),
                helper(),
                phase=Phase.COMM_INIT,
                nodes=2,
                version="0.6.4",
                host=host(container="kubernetes", interfaces=LAN),
                gpus=pcie_gpus(4, "NVIDIA L4", architecture="89", memory_total_bytes=23 * GB),
            ),
            ["INFO 12-12 05:28:31 pynccl.py:69] vLLM is using nccl==2.21.5"],
        ),
    ),
    _case(
        "dynamo-515 ai-dynamo/dynamo/issues/515",
        "where in the kernel the process computes",
        heard(
            bundle(
                process(4000, "python3", stack=NO_PTRACE, native=NO_PTRACE, kernel=NO_PTRACE, state="R", cpu=1.0,
                        memory=6 * GB, ppid=1),
                helper(),
                phase=Phase.MODEL_INIT,
                version="0.7.2",
                host=host(container="kubernetes", cpus=224, memory_bytes=2000 * GB, memory_free_bytes=1500 * GB),
                pressure=Pressure(cpu_some=88.0, memory_some=0.0, memory_full=0.0, io_some=0.0),
                gpus=NO_NVML,
                quiet_s=1700,
            ),
            ["INFO 04-03 23:00:26 model_runner.py:1115] Loading model weights took 14.9888 GB"],
        ),
    ),
    _case(
        "vllm-4027 vllm-project/vllm/issues/4027",
        "stacks, and how fast the volume of the model is read",
        heard(
            bundle(
                process(4000, "python3", stack=NO_PTRACE, syscall=NO_PTRACE, ppid=1, cpu=0.05),
                rank(1, name="ray::RayWorkerVllm.execute_method", stack=NO_PTRACE, syscall=NO_PTRACE, cpu=0.05),
                phase=Phase.WEIGHTS,
                version="0.4.0.post1",
                host=host(container="kubernetes", places=(place("weights", "/data/model", filesystem="ext4"),)),
                gpus=gpus(2, name="NVIDIA A100-SXM4-80GB", architecture="80"),
                quiet_s=9000,
            ),
            ["INFO 04-13 14:32:20 selector.py:28] Using FlashAttention backend."],
        ),
    ),
    _case(
        "vllm-17167 vllm-project/vllm/issues/17167",
        "the other node, and stacks",
        vllm(
            workers(
                8,
                NO_PTRACE,
                name="ray::RayWorkerWrapper.execute_method",
                native=NO_PTRACE,
                state="R",
                cpu=1.0,
            ),
            phase=Phase.COMPILE,
            version="0.8.4",
            nodes=2,
            gpus=gpus(8, utilisation=100.0, power_w=150.0),
        ),
    ),
    _case(
        "vllm-54023 vllm-project/vllm/pull/54023",
        "native frames of the fork and of the thread beside it, and whether there is a child",
        beside_a_fork(),
        "fork_in_threads",
        "fork_in_threads",
        "deadlock",
    ),
)  # fmt: skip
