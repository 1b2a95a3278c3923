"""Machines of the eleventh lot that stand still for a reason that nobody found, or that nobody could see."""

from tests.corpus.starts import (
    BARE,
    NO_NATIVE,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    at,
    core,
    detokenizer,
    launcher,
    loaded,
    opened,
    raylet,
    started,
)
from tests.corpus.surroundings import idle_threads, pcie_gpus, schedulers, spinning

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.look import Listener
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    file,
    front,
    gpus,
    helper,
    host,
    interface,
    place,
    process,
    rank,
    socket,
    thread,
)

NO_SYSFS = Gap(what="PCI topology", reason=GapReason.NO_PERMISSION, detail="/sys is not mounted")
UNKNOWN_WAY = Topology(iommu=NO_SYSFS, acs=NO_SYSFS, bar1_bytes=48 * GB)
QUESTION = "no token within 60 s"
OLD_FRONT = ("wait (vllm/engine/multiprocessing/client.py:150)",)


def heals_with_a_reboot() -> Bundle:
    """Four of eight cards on PCIe switches: until the machine is started anew, the first meeting does not end."""
    stack = (
        "ncclCommInitRank (vllm/distributed/device_communicators/pynccl_wrapper.py:280)",
        "__init__ (vllm/distributed/device_communicators/pynccl.py:87)",
        "initialize_model_parallel (vllm/distributed/parallel_state.py:1080)",
        "init_device (vllm/worker/worker.py:150)",
    )
    told = {
        "stack": stack,
        "native": NO_NATIVE,
        "cpu": 1.0,
        "state": "R",
        "threads": idle_threads(),
        "memory": 3 * GB,
    }
    ranks = [
        process(4100, "python", role=Role.ENGINE, rank=0, label="MQLLMEngine", **told),  # type: ignore[arg-type]
        *(rank(n, name="python", label="VllmWorkerProcess", ppid=4100, **told) for n in (1, 2, 3)),
    ]
    log = [
        "INFO 01-22 03:12:01 api_server.py:712] vLLM API server version 0.6.6",
        "INFO 01-22 03:12:19 pynccl.py:69] vLLM is using nccl==2.21.5",
        *(f"(VllmWorkerProcess pid={4100 + n}) INFO 01-22 03:12:19 pynccl.py:69] vLLM is using nccl==2.21.5"
          for n in (1, 2, 3)),
    ]  # fmt: skip
    cards = pcie_gpus(8, "NVIDIA A100 80GB PCIe", architecture="80", memory_total_bytes=80 * GB, power_limit_w=300.0)
    return started(
        "vllm serve /models/llm72 --tensor-parallel-size 4", front(stack=OLD_FRONT, label=""), ranks, log=log,
        phase=Phase.COMM_INIT, quiet_s=1100, gpus=(*spinning(cards[:4], 71.0), *cards[4:]),
        host=host(topology=UNKNOWN_WAY, driver="560.28.03", cuda="12.6"),
    )  # fmt: skip


def never_ready() -> Bundle:
    """verl on H20: shards are loaded, and the client of the engine waits for a word that does not come."""
    waits = ("poll (zmq/sugar/poll.py:106)", "_wait_for_engine_startup (vllm/v1/engine/core_client.py:510)",
             "__init__ (vllm/v1/engine/core_client.py:460)", "__init__ (vllm/v1/engine/async_llm.py:118)",
             "init_engine (verl/workers/rollout/vllm_rollout/vllm_async_server.py:210)")  # fmt: skip
    server = process(FRONT, "ray::AsyncvLLMServer", ppid=4061, role=Role.FRONT, stack=waits, facts=BARE,
                     syscall="poll(0x7f3a10, 0x2, 0x2710)")  # fmt: skip
    one = core(**{**UNSEEN, "memory": 9 * GB})  # type: ignore[arg-type]
    return started(
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.mode=async actor_rollout_ref.rollout.name=vllm",
        server, one, raylet(), phase=Phase.WEIGHTS, quiet_s=2300, ranks=1,
        log=["(AsyncvLLMServer pid=4000) INFO 09-08 09:14:07 [core.py:58] Initializing a V1 LLM engine (v0.8.5)",
             "(AsyncvLLMServer pid=4000) Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:01<00:00]",
             "(AsyncvLLMServer pid=4000) INFO 09-08 09:14:31 [loader.py:458] Loading weights took 1.92 seconds"],
        gpus=gpus(8, name="NVIDIA H20-3e", memory_total_bytes=141 * GB, memory_used_bytes=9 * GB),
    )  # fmt: skip


def turbomind() -> Bundle:
    """LMDeploy on four of ten 4090s: with four of them nothing answers, and with two it would."""
    main = process(
        FRONT, "lmdeploy serve", ppid=1, role=Role.FRONT, memory=6 * GB, cpu=4.0, state="R", **UNSEEN,
        threads=[thread(name="lmdeploy", state="R") for _ in range(4)],
    )  # fmt: skip
    cards = pcie_gpus(4, "NVIDIA GeForce RTX 4090", architecture="89", memory_total_bytes=24 * GB,
                      memory_used_bytes=18 * GB)  # fmt: skip
    return started(
        "lmdeploy serve api_server /models/llm72-awq --server-port 23334 --tp 4 --quant-policy 4 --model-format awq",
        main, phase=Phase.SERVING, quiet_s=700, question=QUESTION, gpus=spinning(cards, 84.0), ranks=4,
        log=["[WARNING] gemm_config.in is not found; using default GEMM algo",
             "HINT:    Please open http://0.0.0.0:23334 in a browser for detailed api usage!!!",
             "INFO:     Uvicorn running on http://0.0.0.0:23334 (Press CTRL+C to quit)"],
        listeners=[Listener(host="0.0.0.0", port=23334, pid=FRONT)],
        host=host(topology=UNKNOWN_WAY, driver="535.54.03", cuda="12.2"),
    )  # fmt: skip


def stages() -> Bundle:
    """One of two nodes: the first communicator of two pipeline stages, over InfiniBand, does not come about."""
    stack = (
        "ncclCommInitRank (vllm/distributed/device_communicators/pynccl_wrapper.py:244)",
        "__init__ (vllm/distributed/device_communicators/pynccl.py:89)",
        "initialize_model_parallel (vllm/distributed/parallel_state.py:975)",
        "execute_method (vllm/worker/worker_base.py:440)",
    )
    ranks = [
        rank(n, name="ray::RayWorkerWrapper", label=f"rank {n}", ppid=4061, stack=stack, native=NO_NATIVE, cpu=0.3,
             memory=4 * GB, threads=idle_threads(),
             files=[socket(f"10.1.160.69:4{n}110", f"10.1.160.68:5{n}870", fd=71)])
        for n in range(8)
    ]  # fmt: skip
    log = [
        "INFO 09-12 23:40:47 utils.py:977] Found nccl from library libnccl.so.2",
        "INFO 09-12 23:40:47 pynccl.py:63] vLLM is using nccl==2.20.5",
        "vm-69:4100:4100 [0] NCCL INFO Using network IB",
        "vm-69:4100:4100 [0] NCCL INFO comm 0x1476dca0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 23000 - Init START",
        "vm-69:4100:4100 [0] NCCL INFO comm 0x1476dca0 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0",
        "vm-69:4100:4100 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1",
    ]
    main = process(FRONT, "python3 api_server.py", ppid=1, role=Role.FRONT, facts=BARE,
                   stack=("wait (ray/_private/worker.py:2900)",))  # fmt: skip
    return started(
        "python3 api_server.py --model /models/llm -tp 8 -pp 2 --enforce-eager --worker-use-ray", main, raylet(),
        ranks,
        log=log, phase=Phase.COMM_INIT, quiet_s=900, ranks=8, gpus=gpus(8, name="NVIDIA H20"),
        environment={"NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "1"},
        host=host(devices=("/dev/infiniband",), interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("eth1", "10.1.160.69"),
        )),
    )  # fmt: skip


def drafts_capture() -> Bundle:
    """One of two nodes: with a drafter, capturing does not begin to move; without graphs the same start comes up."""
    stack = (
        "run_once (sglang/srt/model_executor/cuda_graph_runner.py:480)",
        "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:510)",
        "init_cuda_graphs (sglang/srt/model_executor/model_runner.py:810)",
        "__init__ (sglang/srt/speculative/eagle_worker.py:110)",
        SCHEDULER_MAIN,
    )
    log = [
        *loaded(8),
        *(at(f"TP{n}", "Capture cuda graph begin. This can take up to several minutes.") for n in range(8)),
        "  0%|          | 0/4 [00:00<?, ?it/s]",
    ]
    return started(
        f"{SGLANG} --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 172.16.1.68:5000 --watchdog-timeout 3000 "
        "--speculative-algorithm EAGLE --speculative-num-steps 1 --speculative-num-draft-tokens 2",
        launcher(), detokenizer(), helper(), schedulers(8, stack, state="R", cpu=1.0, native=NO_NATIVE,
        memory=9 * GB),
        log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=2100, version="0.4.4",
        gpus=spinning(gpus(8, memory_used_bytes=71 * GB), 133.0),
    )  # fmt: skip


def backend_of_nobody() -> Bundle:
    """llama.cpp waits for an answer from a backend on another machine, which has closed earlier connections."""
    native = ("__recv (libc.so.6)", "recv_data (libggml-rpc.so)",
              "ggml_backend_rpc_buffer_init_tensor (libggml-rpc.so)",
              "llama_model_load (libllama.so)")  # fmt: skip
    main = process(
        FRONT, "llama-bench", ppid=1, role=Role.FRONT, facts=BARE, native=native, memory=3 * GB, fds=(9,),
        syscall="recvfrom(0x9, 0x7ffd10, 0x8)",
        files=[socket("192.168.90.31:41234", "192.168.90.190:50052", fd=9),
               file("/models/q7b.gguf", fd=8, size=3 * GB)],
    )  # fmt: skip
    return started(
        "llama-bench -m /models/q7b.gguf -v --rpc 192.168.90.190:50052", main, phase=Phase.WEIGHTS, quiet_s=900,
        gpus=(),
        log=["load_tensors: offloaded 29/29 layers to GPU",
             "load_tensors: RPC[192.168.90.190:50052] model buffer size =  2700.00 MiB",
             "load_tensors:   CPU_Mapped model buffer size =   170.54 MiB"],
        host=host(cpus=16, memory_bytes=64 * GB, driver="", cuda="",
                  places=(place("weights", "/models", needed_bytes=3 * GB),)),
    )  # fmt: skip


def mapped_on_ascend() -> Bundle:
    """SGLang on NPUs: with mapped weights nothing moves, with read ones it would; nobody looked where it stands."""
    ranks = [rank(n, name=f"sglang::scheduler_TP{n}", label=f"TP{n}", ppid=FRONT, memory=7 * GB, **UNSEEN)
             for n in range(8)]  # fmt: skip
    log = [*opened(8), *(at(f"TP{n}", "Load weight begin. avail mem=60.51 GB") for n in range(8)),
           "Loading safetensors checkpoint shards:   0% Completed | 0/61 [00:00<?, ?it/s]"]  # fmt: skip
    return started(
        f"{SGLANG} --tp 8 --device npu --attention-backend ascend", launcher(), detokenizer(), helper(), ranks,
        log=log,
        phase=Phase.WEIGHTS, quiet_s=1500, version="0.5.9", gpus=(),
        host=host(cpu_arch="aarch64", kernel="6.6.0-72.oe2403", driver="", cuda="", cpus=192, memory_bytes=1500 * GB,
                  places=(place("weights", "/models/llm", needed_bytes=240 * GB), place("home", "/root"))),
    )  # fmt: skip


def one_of_four() -> Bundle:
    """An embedding model with four data-parallel engines, of which one is there."""
    one = process(4050, "python", role=Role.ENGINE, rank=0, label="MQLLMEngine", memory=2 * GB, **UNSEEN)
    log = [
        "INFO 06-10 23:38:40 [api_server.py:1289] vLLM API server version 0.9.0",
        "INFO 06-10 23:38:40 [cli_args.py:300] non-default args: {'task': 'embed', 'data_parallel_size': 4}",
        "INFO 06-10 23:38:50 [api_server.py:257] Started engine process with PID 4050",
    ]
    return started(
        "vllm serve /models/embed4b --task embed --data-parallel-size 4", front(stack=OLD_FRONT, label=""), one,
        helper(),
        log=log, phase=Phase.SPAWN, quiet_s=500, version="0.9.0", motion=Motion.QUIET,
        gpus=gpus(4, name="NVIDIA A100-SXM4-80GB", architecture="80"),
    )  # fmt: skip
