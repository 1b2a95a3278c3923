"""Reports whose cases were written before anybody ran a diagnosis of them: the seventh ones, most of them of other
programs than vLLM and SGLang. Who wrote them had read the causes, and just widened
them by mechanism; the causes were not touched between the writing and the first run."""

from tests.corpus.case import Case, FirstRun
from tests.corpus.lots.seventh.machines import (
    BLIND,
    BUS,
    JOINS,
    ORT,
    ORT_LOCK,
    PACK,
    PACK_LOCK,
    SHM,
    STATE,
    TORCH_LOAD,
    alone,
    baton,
    bisheng,
    bond,
    mesh,
    nixl,
    no_fabric,
    paged,
    pinned,
    probed,
    ray,
    ray_rank,
    runner,
    supervisor,
    tensor_table,
    tiny_shm,
    vocabulary,
    xet,
)
from tests.corpus.surroundings import IDLE_WORKER, SYNCS, nccl_line, pcie_gpus, using_nccl, vllm, workers

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import NO_PTRACE, gpus

GH = "https://github.com/"

FIRST_RUN = FirstRun(established=14, supported=4, missed=3, undecided=6)


def _decided(where: str, cause: str, shows: str, seen: Bundle, twin: Bundle, *beside: str) -> Case:
    id_, path = where.split()
    return Case(id=id_, url=GH + path, cause=cause, shows=shows, bundle=seen, twin=twin, companions=frozenset(beside))


CASES = (
    _decided(
        "vllm-19543 vllm-project/vllm/issues/19543",
        "rendezvous_unreachable",
        "Ray was told to join at loopback, and its log names a head that does not answer",
        ray(refused=True),
        ray(refused=False),
    ),
    _decided(
        "xinference-2978 xorbitsai/inference/issues/2978",
        "rendezvous_unreachable",
        "the supervisor's second address is knocked at in vain",
        supervisor(blocked=True),
        supervisor(blocked=False),
    ),
    _decided(
        "megatron-436 NVIDIA/Megatron-LM/issues/436",
        "wrong_interface",
        "a variable names an interface that is not there, and Gloo says so",
        bond(told=True),
        bond(told=False),
        "process_died",
        "rank_died",
        "program_failed",
    ),
    _decided(
        "sglang-3226 sgl-project/sglang/issues/3226",
        "wrong_interface",
        "a rank of two nodes listens for the others at loopback, which its own name means",
        mesh(loopback=True),
        mesh(loopback=False),
    ),
    _decided(
        "xetcore-898 huggingface/xet-core/issues/898",
        "download_stuck",
        "the main thread waits for Xet, and the files do not grow",
        xet(grows=False),
        xet(grows=True),
        "slow_network_load",
    ),
    _decided(
        "ollama-18144 ollama/ollama/issues/18144",
        "gpu_fault",
        "the kernel tells of Xid 62 by the runner, then that the GPU wants a reset",
        runner(event=True),
        runner(event=False),
    ),
    _decided(
        "awsdlami-33 aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop/issues/33",
        "fabric_not_ready",
        "CUDA is refused with 802, and the fabric is in progress",
        no_fabric(refused=True),
        no_fabric(refused=False),
    ),
    _decided(
        "triton-7154 triton-inference-server/server/issues/7154",
        "probe_kill",
        "asked to end from outside while it computed, in Kubernetes",
        probed(killed=True),
        probed(killed=False),
        "process_died",
    ),
    _decided(
        "llamacpp-5402 ggml-org/llama.cpp/issues/5402",
        "slow_storage",
        "mapped weights are fetched page by page, slower than a disk",
        paged(faults=9000, filesystem="ext4", path="/models/70b.gguf"),
        paged(faults=0, filesystem="ext4", path="/models/70b.gguf"),
    ),
    _decided(
        "comfyui-2288 Comfy-Org/ComfyUI/issues/2288",
        "slow_storage",
        "mapped weights on a network volume are fetched page by page",
        paged(faults=9000, filesystem="nfs4", stack=TORCH_LOAD, path="/vol/sdxl.safetensors"),
        paged(faults=0, filesystem="ext4", stack=TORCH_LOAD, path="/vol/sdxl.safetensors"),
    ),
    _decided(
        "fairseq2-547 facebookresearch/fairseq2/pull/547",
        "slow_storage",
        "the kernel holds the main thread for pages of weights on NFS",
        paged(faults=20, filesystem="nfs", stack=STATE, path="/checkpoint/model.pt"),
        paged(faults=0, filesystem="nfs", stack=STATE, path="/checkpoint/model.pt"),
    ),
    _decided(
        "onnxruntime-7740 microsoft/onnxruntime/pull/7740",
        "stale_jit_lock",
        "the main thread polls for a lock file of an interrupted build",
        baton(ORT, ORT_LOCK, left=True),
        baton(ORT, ORT_LOCK, left=False),
    ),
    _decided(
        "ragatouille-245 AnswerDotAI/RAGatouille/issues/245",
        "stale_jit_lock",
        "the main thread polls for a day-old lock file of an extension",
        baton(PACK, PACK_LOCK, left=True),
        baton(PACK, PACK_LOCK, left=False),
    ),
    _decided(
        "harmony-101 openai/harmony/issues/101",
        "hub_network",
        "the front knocks at a web port in vain, in the library that fetches its vocabulary",
        vocabulary(blocked=True),
        vocabulary(blocked=False),
    ),
    _decided(
        "trtllm-602 NVIDIA/TensorRT-LLM/issues/602",
        "shm_too_small",
        "NCCL was refused shared memory, and there are 64 MiB of it",
        tiny_shm(small=True, log=SHM),
        tiny_shm(small=False, log=SHM),
    ),
    _decided(
        "megatron-878 NVIDIA/Megatron-LM/issues/878",
        "shm_too_small",
        "a data loader died of a bus error, and /dev/shm is full",
        tiny_shm(small=True, log=BUS, bus=True),
        tiny_shm(small=False, log=BUS),
        "process_died",
        "rank_died",
    ),
    _decided(
        "vllmascend-7193 vllm-project/vllm-ascend/issues/7193",
        "slow_jit",
        "clang and Ascend's compiler work for a rank that waits for them",
        bisheng(works=True),
        bisheng(works=False),
    ),
    _decided(
        "vllm-53157 vllm-project/vllm/issues/53157",
        "rank_died",
        "rank 0 is gone, the others wait for the next step",
        ray_rank(died=True),
        ray_rank(died=False),
        "process_died",
    ),
    _decided(
        "trtllm-17429 NVIDIA/TensorRT-LLM/issues/17429",
        "host_memory_pin",
        "the rank is in the allocation of pinned memory, and grows",
        pinned(grows=True),
        pinned(grows=False),
    ),
    _decided(
        "horovod-3352 horovod/horovod/issues/3352",
        "gil_held",
        "one thread sleeps with the interpreter lock that another waits for",
        tensor_table(holds=True),
        tensor_table(holds=False),
    ),
    _decided(
        "srtslurm-158 NVIDIA/srt-slurm/pull/158",
        "pd_handshake",
        "a thread waits in NIXL's handshake, whose port at loopback is not open",
        nixl(absent=True),
        nixl(absent=False),
    ),
    Case(
        "pytorch-49846",
        GH + "pytorch/pytorch/issues/49846",
        "unknown",
        lacks="whether a second process was started",
        bundle=alone(stack=JOINS, syscall="poll(0x1)", told={"phase": Phase.RENDEZVOUS}),
    ),
    Case(
        "pytorch-15638",
        GH + "pytorch/pytorch/issues/15638",
        "unknown",
        lacks="sockets",
        bundle=alone(
            stack=JOINS,
            native=["connect (libc.so.6)", "c10d::tcputil::connect (libc10d.so)"],
            told={"phase": Phase.RENDEZVOUS},
        ),
    ),
    Case(
        "vllm-13273",
        GH + "vllm-project/vllm/issues/13273",
        "unknown",
        lacks="stacks, and the way between the GPUs",
        bundle=vllm(
            workers(2, NO_PTRACE, native=NO_PTRACE),
            phase=Phase.COMM_INIT,
            gpus=gpus(2),
            host=BLIND,
            log=[using_nccl()],
        ),
    ),
    Case(
        "vllm-19204",
        GH + "vllm-project/vllm/issues/19204",
        "unknown",
        lacks="stacks after the capture of graphs",
        bundle=vllm(
            workers(2, NO_PTRACE, native=NO_PTRACE, state="R", cpu=1.0),
            phase=Phase.GRAPH_CAPTURE,
            environment={"NCCL_P2P_DISABLE": "1"},
            gpus=gpus(2),
            log=[nccl_line("Init COMPLETE")],
        ),
    ),
    Case(
        "rocmsystems-11348",
        GH + "ROCm/rocm-systems/issues/11348",
        "unknown",
        lacks="anything of the moment",
        bundle=alone(
            "llama-server",
            native=SYNCS,
            state="R",
            cpu=1.0,
            told={"phase": Phase.SERVING, "gpus": pcie_gpus(4, "AMD Radeon AI PRO R9700"), "host": BLIND},
        ),
    ),
    Case(
        "lmcache-2144",
        GH + "LMCache/LMCache/issues/2144",
        "unknown",
        lacks="stacks of both sides",
        bundle=vllm(workers(2, IDLE_WORKER), phase=Phase.SERVING, question="no token within 60 s", gpus=gpus(2)),
    ),
)
