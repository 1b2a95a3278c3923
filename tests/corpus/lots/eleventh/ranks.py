"""Machines of the eleventh lot whose ranks went different ways, or stand where nothing ends."""

from collections.abc import Sequence

from tests.corpus.lots.eleventh.machines import gb10, spark
from tests.corpus.starts import (
    BARE,
    CORE_MAIN,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    at,
    begun,
    core,
    detokenizer,
    launcher,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, pcie_gpus, scheduler, spinning

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Leftover
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    cuda_libraries,
    device,
    front,
    gpus,
    helper,
    host,
    interface,
    ordinary_facts,
    process,
    rank,
    socket,
    thread,
)

GLOO = (
    "pthread_cond_wait (libc.so.6)",
    "gloo::transport::tcp::UnboundBuffer::waitRecv (libtorch_cpu.so)",
    "c10d::ProcessGroupGloo::AsyncWork::execute (libtorch_cpu.so)",
)
LOOP = ("run_forever (asyncio/base_events.py:608)",)
EPOLL = "epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)"


def cutoff(*, apart: bool) -> Bundle:
    """Each rank asked its own GPU for free memory: two capture the draft's graphs, two hold that there is no room."""
    captures = (
        "barrier (torch/distributed/distributed_c10d.py:4980)",
        "capture_one (sglang/srt/model_executor/runner/full_cuda_graph_backend.py:170)",
        "_init_draft_graphs (sglang/srt/speculative/dspark_components/dspark_worker_v2.py:410)",
        "init_cuda_graphs (sglang/srt/speculative/dspark_components/dspark_worker_v2.py:380)",
        SCHEDULER_MAIN,
    )
    past = (
        "all_reduce (torch/distributed/distributed_c10d.py:3007)",
        "get_available_gpu_memory (sglang/srt/utils/common.py:610)",
        "__init__ (sglang/srt/managers/scheduler.py:610)",
        SCHEDULER_MAIN,
    )
    ranks = [
        scheduler(n, past if apart and n in {1, 3} else captures, native=GLOO, memory=9 * GB, label=f"DP{n} TP{n}",
                  name=f"sglang::scheduler_DP{n}_TP{n}")
        for n in range(4)
    ]  # fmt: skip
    log = [
        at("", "server_args=ServerArgs(model_path='/models/llm', tokenizer_path='/models/llm', port=30000)"),
        *(at(f"DP{n} TP{n}", "Init torch distributed begin.") for n in range(4)),
        *(at(f"DP{n} TP{n}", "Memory pool end. avail mem=2.05 GB") for n in range(4)),
        *(at(f"DP{n} TP{n}", "Capture draft decode CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem="
             "1.01 GB") for n in range(4) if not (apart and n in {1, 3})),
    ]  # fmt: skip
    return started(
        f"{SGLANG} --tp 4 --dp 4 --enable-dp-attention --speculative-algorithm DSPARK", launcher(), detokenizer(),
        helper(), ranks, log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=700, version="0.5.23",
        gpus=gpus(4, name="NVIDIA H200", memory_total_bytes=141 * GB, memory_used_bytes=139 * GB),
    )  # fmt: skip


def dummy_batches(*, apart: bool) -> Bundle:
    """Two engines of a dense model: one is idle and coordinates a dummy batch, the other asks who is done."""
    coordinates = (
        "all_reduce (torch/distributed/distributed_c10d.py:2937)",
        "_run_ar (vllm/v1/worker/dp_utils.py:48)",
        "coordinate_batch_across_dp (vllm/v1/worker/dp_utils.py:210)",
        "_dummy_run (vllm/v1/worker/gpu_model_runner.py:3980)",
        "execute_dummy_batch (vllm/v1/engine/core.py:420)",
        "run_busy_loop (vllm/v1/engine/core.py:1180)",
        CORE_MAIN[2],
    )
    asks = (
        "all_reduce (torch/distributed/distributed_c10d.py:2937)",
        "has_unfinished_dp (vllm/config/parallel.py:390)",
        "_has_global_unfinished_reqs (vllm/v1/engine/core.py:1230)",
        "run_busy_loop (vllm/v1/engine/core.py:1190)",
        CORE_MAIN[2],
    )

    def one(n: int, stack: Sequence[str]) -> object:
        return process(
            4050 + n, f"VLLM::EngineCore_DP{n}", role=Role.ENGINE, label=f"EngineCore_DP{n}", rank=n, stack=stack,
            native=GLOO, memory=7 * GB, threads=idle_threads(),
            files=[socket(f"127.0.0.1:4111{n}", f"127.0.0.1:4211{n}", fd=70, peers=(4051 - n,))],
        )  # fmt: skip

    cores = [one(0, asks if apart else coordinates), one(1, coordinates)]
    log = [
        *begun("/models/dense8b", "0.11.1"),
        v("APIServer", "Application startup complete.", "on.py:62"),
        *[v("APIServer", '127.0.0.1:51214 - "POST /v1/chat/completions HTTP/1.1" 200 OK', "httptools_impl.py:476")]
        * 4,
    ]
    return started(
        "vllm serve /models/dense8b -dp 2", front(stack=LOOP, syscall=EPOLL), cores, helper(),
        log=log, phase=Phase.SERVING, quiet_s=500, question="no token within 60 s",
        gpus=gpus(2, memory_used_bytes=72 * GB),
    )  # fmt: skip


def chat_worker(*, told: bool) -> Bundle:
    """FastChat had started CUDA before vLLM forked its worker; the worker is refused, the first rank waits."""
    store = (
        "_create_c10d_store (torch/distributed/rendezvous.py:189)",
        "init_process_group (torch/distributed/distributed_c10d.py:1361)",
        "init_worker_distributed_environment (vllm/worker/worker.py:380)",
        "_run_workers (vllm/executor/multiproc_gpu_executor.py:160)",
        "<module> (fastchat/serve/vllm_worker.py:290)",
    )
    native = ("poll (libc.so.6)", "c10d::TCPStore::waitForWorkers (libtorch_cpu.so)")
    many = [thread(name=f"cuda-EvtHandlr{n}", syscall="poll(0x7f3d00, 0xa, 0x64)") for n in range(4)]
    main = process(
        FRONT, "python3 -m fastchat.serve.vllm_worker", ppid=1, role=Role.FRONT, rank=0, memory=4 * GB,
        threads=(*idle_threads(), *many), files=[device("/dev/nvidia0", fd=21), device("/dev/nvidia-uvm", fd=22)],
        **({"stack": store, "native": native} if told else UNSEEN),
    )  # fmt: skip
    idle = (
        "get (multiprocessing/queues.py:103)",
        "_run_worker_process (vllm/executor/multiproc_worker_utils.py:221)",
    )
    other = rank(
        1, name="python3 -m fastchat.serve.vllm_worker", label="VllmWorkerProcess", ppid=FRONT, memory=2 * GB,
        facts=ordinary_facts(forked=True, parent_threads=19) if told else BARE,
        **({"stack": idle, "syscall": "futex(0x7f91c0, 0x189, 0x0)"} if told else UNSEEN),
    )  # fmt: skip
    who = "(VllmWorkerProcess pid=4101) ERROR 08-30 09:14:20 multiproc_worker_utils.py:226]"
    errors = [
        (
            f"{who} Exception in worker VllmWorkerProcess while processing method init_device: Cannot re-initialize "
            "CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"
        ),
        f'{who}   File "/opt/venv/lib/python3.10/site-packages/torch/cuda/__init__.py", line 279, in _lazy_init',
        (
            f"{who} RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
            "you must use the 'spawn' start method"
        ),
    ]
    log = [
        "INFO 08-30 09:14:07 config.py:813] Defaulting to use mp for distributed inference",
        "INFO 08-30 09:14:08 llm_engine.py:184] Initializing an LLM engine (v0.5.5) with config: model='/models/llm'",
        "(VllmWorkerProcess pid=4101) INFO 08-30 09:14:19 multiproc_worker_utils.py:215] Worker ready; awaiting",
        *(errors if told else []),
    ]
    return started(
        "python3 -m fastchat.serve.vllm_worker --model-path /models/llm --tensor-parallel-size 2", main, other,
        log=log,
        phase=Phase.RENDEZVOUS, quiet_s=400, ranks=2, gpus=gpus(2, name="NVIDIA A100 80GB PCIe", architecture="80"),
    )  # fmt: skip


def once_more(*, seen: bool) -> Bundle:
    """A script quantises a model and then serves it; the engine that it spawns runs it all again."""
    again = (
        "_update_layer (llmcompressor/modifiers/awq/base.py:560)",
        "oneshot (llmcompressor/entrypoints/oneshot.py:210)",
        "<module> (/home/ml/quantise.py:41)",
        "_run_code (<frozen runpy>:88)",
        "_run_module_code (<frozen runpy>:98)",
        "run_path (<frozen runpy>:291)",
        "_fixup_main_from_path (multiprocessing/spawn.py:297)",
        "prepare (multiprocessing/spawn.py:246)",
        "spawn_main (multiprocessing/spawn.py:122)",
    )
    main = process(
        FRONT, "python quantise.py", ppid=1, role=Role.FRONT, memory=6 * GB, threads=idle_threads(),
        stack=("poll (zmq/sugar/poll.py:106)", "wait_for_engine_startup (vllm/v1/engine/core_client.py:480)",
               "__init__ (vllm/entrypoints/llm.py:240)", "<module> (/home/ml/quantise.py:52)"),
    )  # fmt: skip
    told = {"stack": again, "state": "R", "cpu": 1.0} if seen else UNSEEN
    child = process(
        4050, "python", role=Role.ENGINE, memory=19 * GB, threads=idle_threads(), **told,
        cmdline=("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=21)",
                 "--multiprocessing-fork"),
    )  # fmt: skip
    log = [
        "2025-04-17T09:14:07.120 | reset | INFO - Compression lifecycle reset",
        "INFO 04-17 09:31:12 [core.py:58] Initializing a V1 LLM engine (v0.8.4) with config: model='/home/ml/out'",
        *(["2025-04-17T09:31:40.311 | reset | INFO - Compression lifecycle reset",
           "(1/33): Calibrating: 100%|##########| 256/256 [00:21<00:00]"] if seen else []),
    ]  # fmt: skip
    return started(
        "python quantise.py", main, child, log=log, phase=Phase.SPAWN, quiet_s=60 if seen else 600, ranks=1,
        motion=Motion.SLOW if seen else Motion.STALLED, version="0.8.4",
        gpus=gpus(1, utilisation=71.0 if seen else 0.0, memory_activity=33.0 if seen else 0.0, power_w=320.0,
                  memory_used_bytes=44 * GB),
    )  # fmt: skip


def table_on_host(*, seen: bool) -> Bundle:
    """A graph waits for the host to hand it rows of a table; the thread that should has never been asked."""
    stack = (
        "replay (torch/cuda/graphs.py:186)",
        "__call__ (vllm/compilation/cuda_graph.py:360)",
        "warmup_kernels (vllm/v1/worker/gpu/warmup.py:330)",
        "compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:925)",
        "collective_rpc (vllm/v1/executor/uniproc_executor.py:103)",
        *CORE_MAIN,
    )
    serves = thread(
        ["get (queue.py:171)", "_request_loop (vllm/v1/ple_offload/connector.py:263)", "run (threading.py:1012)"],
        name="ple-offload-dp0", syscall="futex(0x7f3b20, 0x189, 0x0, 0x0)",
    )  # fmt: skip
    one = core(stack, state="R", cpu=1.0, threads=(*idle_threads(), serves)) if seen else core(**UNSEEN)  # type: ignore[arg-type]
    cards = pcie_gpus(1, "NVIDIA RTX PRO 6000 Blackwell Max-Q", memory_total_bytes=96 * GB, memory_used_bytes=81 * GB)
    log = [
        *begun("/models/flash-next", "0.28.0"),
        v("EngineCore", "Graph capturing finished in 31 secs, took 1.12 GiB", "model_runner.py:788"),
    ]
    return started(
        "vllm serve /models/flash-next --max-model-len 65536", front(), one, helper(), log=log, phase=Phase.WARMUP,
        quiet_s=900, gpus=spinning(cards, 88.0), environment={"VLLM_PLE_CPU_OFFLOAD": "1"},
        host=host(driver="610.57.04", cuda="13.2"),
    )  # fmt: skip


def hybrid(*, seen: bool) -> Bundle:
    """A Spark that served for hours: its engine waits for the GPU, which is at 96 % with 17 W."""
    stack = (
        "synchronize (torch/cuda/streams.py:231)",
        "_to_list (vllm/v1/worker/gpu_model_runner.py:6010)",
        "_bookkeeping_sync (vllm/v1/worker/gpu_model_runner.py:3480)",
        "sample_tokens (vllm/v1/worker/gpu_model_runner.py:3690)",
        "step_with_batch_queue (vllm/v1/engine/core.py:540)",
        "run_busy_loop (vllm/v1/engine/core.py:1180)",
        CORE_MAIN[2],
    )
    facts = ordinary_facts(libraries=cuda_libraries(nccl="2.29.7", cuda="13.0", driver="580.142"))
    one = core(stack, state="R", cpu=1.0, facts=facts)
    log = [
        *begun("/models/gdn35b", "0.24.0"),
        v("APIServer", "Application startup complete.", "on.py:62"),
        *[v("APIServer", "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, "
            "Running: 8 reqs, Waiting: 3 reqs", "loggers.py:259")] * 4,
    ]  # fmt: skip
    busy = gb10(94, utilisation=96.0, power_w=17.0)
    return started(
        "vllm serve /models/gdn35b --max-num-seqs 8", front(stack=LOOP, syscall=EPOLL), one, helper(), log=log,
        phase=Phase.SERVING, quiet_s=600, question="no token within 60 s", gpus=busy if seen else gb10(94),
        host=spark(interfaces=(interface("lo", "127.0.0.1", kind="loopback"), interface("enP7s7", "10.0.0.31"))),
    )  # fmt: skip


def spin_loop(*, seen: bool) -> Bundle:
    """The engine of an earlier server cannot be killed; it spins in the driver, and the next waits for the driver."""
    held = {
        "state": "D", "wchan": "rwsem_down_write_slowpath", "syscall": "ioctl(0x14, 0x4b, 0x7ffd10)",
        "kernel": ("rwsem_down_write_slowpath", "down_write", "uvm_va_space_create", "uvm_api_initialize",
                   "uvm_ioctl", "uvm_unlocked_ioctl_entry"),
        "native": ("ioctl (libc.so.6)", "?? (libcuda.so.1)", "cuInit (libcuda.so.1)"),
        "files": [device("/dev/nvidia-uvm", fd=20)],
    }  # fmt: skip
    stack = ("_lazy_init (torch/cuda/__init__.py:372)", "set_device (torch/cuda/__init__.py:567)",
             "init_device (vllm/v1/worker/gpu_worker.py:180)", *CORE_MAIN)  # fmt: skip
    one = core(stack, memory=GB, **held) if seen else core(**UNSEEN)  # type: ignore[arg-type]
    late = Gap(what="GPUs", reason=GapReason.TIMED_OUT, detail="nvmlDeviceGetUtilizationRates(0) did not come back")
    said = ["INFO: task VLLM::EngineCor:4050 blocked for more than 120 seconds.",
            "rcu: INFO: rcu_sched self-detected stall on CPU"]  # fmt: skip
    left = Leftover(pid=77637, name="VLLM::EngineCore", state="R", age_s=86_000, holds=("GPU 0",))
    return started(
        "vllm serve /models/llm --gpu-memory-utilization 0.6", front(), one, helper(),
        log=begun("/models/llm", "0.10.2"),
        phase=Phase.MODEL_INIT, quiet_s=600, gpus=late if seen else gpus(1, name="NVIDIA H100 80GB HBM3"),
        kernel_log=said if seen else [], leftovers=[left] if seen else [],
        host=host(kernel="5.4.0-216-generic", driver="550.54.15", cuda="12.4"),
    )  # fmt: skip
