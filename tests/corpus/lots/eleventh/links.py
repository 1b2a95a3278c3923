"""Machines of the eleventh lot whose ranks do not get through to each other, or to the other machine."""

from tests.corpus.lots.eleventh.machines import gb10, spark
from tests.corpus.starts import BARE, NO_NATIVE, base, begun, broadcasts, started, v
from tests.corpus.surroundings import idle_threads, pcie_gpus, spinning, worker, workers

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    cuda_libraries,
    front,
    gpus,
    helper,
    host,
    interface,
    ordinary_facts,
    process,
    rank,
    socket,
)

NO_SYSFS = Gap(what="PCI topology", reason=GapReason.NO_PERMISSION, detail="/sys is not mounted")
UNKNOWN_WAY = Topology(iommu=NO_SYSFS, acs=NO_SYSFS, bar1_bytes=48 * GB)
TRANSLATED = Topology(iommu="on", acs=("0000:00:01.1", "0000:40:01.1", "0000:80:03.1"), bar1_bytes=64 * GB)


def _l40s(watts: float) -> tuple:  # type: ignore[type-arg]
    cards = pcie_gpus(4, "NVIDIA L40S", architecture="89", memory_total_bytes=45 * GB, memory_used_bytes=GB)
    return spinning(cards, watts)


def four_ada(*, seen: bool) -> Bundle:
    """vLLM 0.7: the first collective of four L40S does not end; the front end tells that it waits."""
    stack = (
        "synchronize (torch/cuda/streams.py:108)",
        "__init__ (vllm/distributed/device_communicators/pynccl.py:99)",
        "initialize_model_parallel (vllm/distributed/parallel_state.py:990)",
        "init_device (vllm/worker/worker.py:165)",
    )
    told = {
        "stack": stack, "state": "R", "cpu": 1.0, "threads": idle_threads(), "memory": 3 * GB,
    }  # fmt: skip
    ranks = [
        process(4100, "python", role=Role.ENGINE, rank=0, label="MQLLMEngine", **told),  # type: ignore[arg-type]
        *(rank(n, name="python", label="VllmWorkerProcess", ppid=4100, **told) for n in (1, 2, 3)),
    ]
    log = [
        "INFO 02-28 11:40:02 api_server.py:912] vLLM API server version 0.7.3",
        *(f"(VllmWorkerProcess pid={4100 + n}) INFO 02-28 11:40:19 pynccl.py:69] vLLM is using nccl==2.21.5"
          for n in (1, 2, 3)),
        *["DEBUG 02-28 11:41:02 client.py:192] Waiting for output from MQLLMEngine."] * 6,
    ]  # fmt: skip
    return started(
        "vllm serve /models/r1-32b --tensor-parallel-size 4 --gpu-memory-utilization 0.92",
        front(stack=("wait (vllm/engine/multiprocessing/client.py:190)",), label=""), ranks, helper(), log=log,
        phase=Phase.COMM_INIT, quiet_s=1500, gpus=_l40s(97.0), environment={"VLLM_LOGGING_LEVEL": "DEBUG"},
        host=host(container="kubernetes", driver="550.54.14", cuda="12.4",
                  topology=TRANSLATED if seen else UNKNOWN_WAY),
    )  # fmt: skip


def shards(*, seen: bool) -> Bundle:
    """TGI: four shards wait at the first barrier, each with a GPU at 100 % and a third of its power."""
    stack = (
        "barrier (torch/distributed/distributed_c10d.py:3685)",
        "__init__ (text_generation_server/models/flash_llama.py:44)",
        "get_model (text_generation_server/models/__init__.py:410)",
        "serve_inner (text_generation_server/server.py:212)",
    )
    ranks = [
        rank(n, name="text-generation-server", label=f"rank {n}", ppid=FRONT, stack=stack, state="R", cpu=1.0,
             memory=3 * GB, threads=idle_threads())
        for n in range(4)
    ]  # fmt: skip
    main = process(
        FRONT, "text-generation-launcher", ppid=1, role=Role.FRONT, facts=BARE, native=("nanosleep (libc.so.6)",),
        syscall="clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)",
    )  # fmt: skip
    when = "2024-05-01T01:17:02.618817Z"
    log = [
        f"{when}  INFO text_generation_launcher: Sharding model on 4 processes",
        *(f"{when}  INFO shard-manager: text_generation_launcher: Starting shard rank={n}" for n in range(4)),
        *[f"{when}  INFO shard-manager: text_generation_launcher: Waiting for shard to be ready... rank={n}"
          for n in range(4)] * 3,
    ]  # fmt: skip
    return started(
        "text-generation-launcher --model-id /data/llm-8b --num-shard 4", main, ranks, log=log, phase=Phase.COMM_INIT,
        quiet_s=900, ranks=4, gpus=_l40s(96.0),
        host=host(container="kubernetes", driver="550.54.14", cuda="12.4",
                  topology=TRANSLATED if seen else UNKNOWN_WAY),
    )  # fmt: skip


def multicast(*, seen: bool) -> Bundle:
    """TensorRT-LLM in a container without a fabric: NCCL's multicast bind fails and spoils the context."""
    native = ("ioctl (libc.so.6)", "?? (libcuda.so.1)", "cuMulticastBindMem (libcuda.so.1)",
              "ncclNvlsSetup (libnccl.so.2)", "ncclCommInitRankFunc (libnccl.so.2)")  # fmt: skip
    stack = (
        "_init_pp_tp_comm (tensorrt_llm/_torch/distributed/communicator.py:610)",
        "__init__ (tensorrt_llm/_torch/pyexecutor/model_engine.py:310)",
        "create_py_executor (tensorrt_llm/_torch/pyexecutor/py_executor_creator.py:430)",
        "worker_main (tensorrt_llm/executor/worker.py:250)",
    )
    told = {"native": native, "syscall": "ioctl(0x16, 0xc030462b, 0x7ffd10)"} if seen else {"native": NO_NATIVE}
    ranks = [
        rank(n, name="python -m mpi4py", label=f"rank {n}", ppid=4055, stack=stack, memory=3 * GB,
             threads=idle_threads(), **told)
        for n in range(8)
    ]  # fmt: skip
    main = process(FRONT, "trtllm-serve", ppid=1, stack=("wait (threading.py:331)",), role=Role.FRONT, facts=BARE)
    mpirun = process(4055, "mpirun", native=("poll (libc.so.6)",), facts=BARE, syscall="poll(0x55, 0x9, 0xffffffff)")
    warn = (
        "transport/nvls.cc:287 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA"
    )
    log = [
        "[09/07/2026-09:14:07] [TRT-LLM] [I] Starting TensorRT LLM server",
        *(f"node-a:{4100 + n}:{4100 + n} [{n}] NCCL INFO NVLS multicast support is available on dev {n}"
          for n in range(8) if seen),
        *(f"node-a:{4100 + n}:{4100 + n} [{n}] {warn} error 401 'the operation cannot be performed in the present "
          "state'." for n in range(8) if seen),
    ]  # fmt: skip
    return started(
        "trtllm-serve serve /models/moe --tp_size 8", main, mpirun, ranks, log=log, phase=Phase.COMM_INIT,
        quiet_s=800, ranks=8, environment={"NCCL_DEBUG": "INFO"} if seen else {},
        gpus=gpus(8, name="NVIDIA B200", architecture="100", memory_total_bytes=180 * GB,
                  fabric="in progress" if seen else Gap(what="fabric", reason=GapReason.NOT_SUPPORTED, detail="")),
        host=host(container="docker", driver="575.57.08", cuda="12.9", devices=()),
    )  # fmt: skip


def replayed(*, seen: bool) -> Bundle:
    """One of two Sparks: a graph that holds collectives is replayed, and does not end, with NCCL 2.28.9."""
    stack = (
        "synchronize (torch/cuda/streams.py:231)",
        "get_output (vllm/v1/worker/gpu_model_runner.py:310)",
        "async_output_busy_loop (vllm/v1/executor/multiproc_executor.py:890)",
    )
    nccl = "2.28.9" if seen else "2.30.4"
    libraries = cuda_libraries(nccl=nccl, cuda="13.0", driver="580.142")
    one = worker(
        0, stack, state="R", cpu=1.0, memory=9 * GB,
        facts=ordinary_facts(libraries=libraries, cpus_allowed="0-19", mems_allowed="0"),
        files=[socket("192.168.101.10:47110", "192.168.101.11:41870", fd=71)],
    )  # fmt: skip
    log = [
        *begun("/models/flash", "0.27.0"),
        v("Worker_TP0", f"vLLM is using nccl=={nccl}", "pynccl.py:111"),
        v("APIServer", "Application startup complete.", "on.py:62"),
        v("APIServer", '192.168.101.1:51214 - "POST /v1/completions HTTP/1.1" 200 OK', "httptools_impl.py:476"),
        *broadcasts("EngineCore"),
    ]
    loop = front(
        stack=("run_forever (asyncio/base_events.py:608)",), syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)"
    )
    return started(
        "vllm serve /models/flash --tensor-parallel-size 2 --nnodes 2 --node-rank 0 --master-addr 192.168.101.10",
        loop, base()[1:], one, log=log, phase=Phase.SERVING, quiet_s=350, question="no token within 60 s",
        gpus=gb10(101, utilisation=96.0, power_w=18.0),
        host=spark(devices=("/dev/infiniband",), interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("enp1s0f0np0", "192.168.101.10"),
        )),
    )  # fmt: skip


def profiled(*, seen: bool) -> Bundle:
    """Under Nsight Systems: graphs with the all-reduce over symmetric memory are replayed without end."""
    shim = Library(path="/opt/nvidia/nsight-systems/2026.2/target-linux-x64/libToolsInjection64.so", kind="profiler",
                   version="2026.2", build="7e")  # fmt: skip
    stack = (
        "replay (torch/cuda/graphs.py:139)",
        "__call__ (vllm/compilation/cuda_graph.py:340)",
        "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4790)",
        "execute_model (vllm/v1/worker/gpu_worker.py:610)",
        "worker_busy_loop (vllm/v1/executor/multiproc_executor.py:840)",
    )
    told = {"facts": ordinary_facts(libraries=(*cuda_libraries(), shim), variables={
        "CUDA_INJECTION64_PATH": shim.path, "NVTX_INJECTION64_PATH": shim.path,
    })} if seen else {}  # fmt: skip
    log = [
        *begun("/models/llm", "0.24.0"),
        v("APIServer", "Application startup complete.", "on.py:62"),
        *broadcasts("EngineCore"),
    ]
    loop = front(
        stack=("run_forever (asyncio/base_events.py:608)",), syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)"
    )
    return started(
        f"{'nsys profile --trace=cuda,nvtx --cuda-graph-trace=node ' if seen else ''}vllm serve /models/llm "
        "--tensor-parallel-size 4",
        loop, base()[1:], workers(4, stack, state="R", cpu=1.0, memory=9 * GB, **told), log=log, phase=Phase.SERVING,
        quiet_s=400, question="no token within 60 s", environment={"VLLM_ALLREDUCE_USE_SYMM_MEM": "1"},
        gpus=spinning(gpus(4, memory_used_bytes=71 * GB), 141.0),
    )  # fmt: skip
