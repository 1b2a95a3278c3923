"""Machines of the eleventh lot of which something has ended, or that say what they were refused."""

from tests.corpus.lots.eleventh.machines import gb10, spark
from tests.corpus.starts import BARE, NO_NATIVE, SGLANG, UNSEEN, at, begun, launcher, serves, started, v
from tests.corpus.surroundings import idle_threads, scheduler

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Cgroup
from firstlight.core.gpu import GpuProcess
from firstlight.core.look import Leftover
from firstlight.core.vocabulary import Motion, Phase
from firstlight.testing.bundles import (
    FRONT,
    GB,
    PACKAGES,
    ended,
    engine,
    front,
    gpus,
    helper,
    host,
    interface,
    ordinary_cgroup,
    ordinary_facts,
    place,
    process,
    rank,
)

DIES = {"motion": Motion.MOVING, "quiet_s": 4}


def certificate(*, killed: bool) -> Bundle:
    """A pod of KServe is ended by its liveness probe, 120 s after its start, while a model is loading."""
    one = engine()
    log = [
        *begun("/mnt/models", "0.11.0"),
        v("EngineCore_DP0", "Starting to load model /mnt/models...", "gpu_model_runner.py:2600"),
        "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:41<00:41, 41.2s/it]",
        *([v("APIServer", "Shutting down FastAPI HTTP server.", "launcher.py:110")] if killed else []),
    ]
    gone = {"signal": 15} if killed else {}
    return started(
        "vllm serve /mnt/models --served-model-name facebook/opt --port 8000 --ssl-certfile /etc/ssl/tls.crt",
        helper(ppid=1), log=log, phase=Phase.WEIGHTS, exits=[ended(one, ago_s=3, **gone),
        ended(front(), ago_s=2, **gone)], started=1_799_999_850.0, ranks=1,
        gpus=gpus(1, name="NVIDIA L4", architecture="89", memory_total_bytes=24 * GB, memory_used_bytes=3 * GB),
        host=host(container="kubernetes"), **DIES,
    )  # fmt: skip


def orphan(*, left: bool) -> Bundle:
    """The API server was killed yesterday, its engine was not: it holds 102 GiB, which the next start lacks."""
    text = (
        "ValueError: Free memory on device (14.61/121.69 GiB) on startup is less than desired GPU memory utilization"
    )
    log = [
        *begun("/models/nano30b", "0.21.0"),
        v("EngineCore", "EngineCore failed to start.", "core.py:910", "ERROR"),
        v("EngineCore", "Traceback (most recent call last):", "core.py:910", "ERROR"),
        *([v("EngineCore", f"{text} (0.85, 103.44 GiB). Decrease GPU memory utilization or reduce GPU memory used by "
             "other processes.", "core.py:910", "ERROR")] if left else []),
    ]  # fmt: skip
    old = Leftover(pid=31_207, name="VLLM::EngineCore", state="S", age_s=81_000, holds=("GPU 0",))
    held = (GpuProcess(pid=31_207, memory_bytes=102 * GB, here=True),)
    return started(
        "vllm serve /models/nano30b --gpu-memory-utilization 0.85", helper(ppid=1), log=log, phase=Phase.MODEL_INIT,
        exits=[ended(engine(), code=1, ago_s=3), ended(front(), code=1, ago_s=2)], leftovers=[old] if left else [],
        gpus=gb10(104, processes=held) if left else gb10(2), host=spark(memory_free_bytes=(14 if left else 110) * GB),
        **DIES,
    )  # fmt: skip


def locked_memory(*, told: bool) -> Bundle:
    """One of two pods of a Horovod job: a rank may not register memory, and the others wait for it."""
    stack = (
        "_blocking_get (horovod/tensorflow/mpi_ops.py:210)",
        "broadcast_variables (horovod/tensorflow/__init__.py:110)",
        "main (/bench/tf_cnn_benchmarks.py:60)",
    )
    facts = ordinary_facts(memlock=65_536 if told else -1, capabilities=() if told else ("ipc_lock",), seccomp=2)
    ranks = [
        rank(n, name="python tf_cnn_benchmarks.py", label=f"rank {n}", ppid=4050, memory=5 * GB, facts=facts,
             threads=idle_threads(), **({"stack": stack, "native": NO_NATIVE} if told else UNSEEN))
        for n in (2, 3)
    ]  # fmt: skip
    main = process(FRONT, "sshd", ppid=1, facts=BARE, native=("poll (libc.so.6)",))
    orted = process(4050, "orted", facts=BARE, native=("poll (libc.so.6)",), syscall="poll(0x55, 0x9, 0xffffffff)")
    who = [f"ib-job-1:125{n}:148{n} [{n - 2}]" for n in (2, 3)]
    log = [
        *(f"{one} NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.8.1.7<0>" for one in who),
        *(line for one in who for line in (
            f"{one} misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed",
            f"{one} NCCL INFO transport/net_ib.cc:640 -> 2",
            f"{one} NCCL INFO init.cc:950 -> 2",
        ) if told),
    ]  # fmt: skip
    return started(
        "python /bench/tf_cnn_benchmarks.py --model=resnet101 --variable_update=horovod", main, orted, ranks, log=log,
        phase=Phase.COMM_INIT, quiet_s=900, ranks=2, nodes=2, node=1, environment={"NCCL_DEBUG": "INFO"},
        gpus=gpus(2, name="Tesla V100-PCIE-16GB", architecture="70", memory_total_bytes=16 * GB),
        host=host(container="kubernetes", devices=("/dev/infiniband",), driver="410.79", cuda="10.0", interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.8.1.7", kind="virtual"),
            interface("ib0", "10.10.0.7", kind="infiniband"),
        )),
    )  # fmt: skip


def memory_policy(*, told: bool) -> Bundle:
    """vLLM for CPUs in an app's container: it may not ask for the memory policy of its pages, and gives up."""
    facts = ordinary_facts(libraries=(), capabilities=("chown", "setuid"), seccomp=2 if told else 0)
    log = [
        *begun("/data/smol", "0.24.0"),
        *(["get_mempolicy: Operation not permitted", "set_mempolicy: Operation not permitted"] if told else []),
        v("Worker", "WorkerProc failed to start.", "multiproc_executor.py:860", "ERROR"),
        v("EngineCore", "EngineCore failed to start.", "core.py:910", "ERROR"),
        *([v("EngineCore", "RuntimeError: numa_migrate_pages failed. errno: 1", "core.py:910", "ERROR")]
          if told else []),
    ]  # fmt: skip
    return started(
        "vllm serve /data/smol --host 0.0.0.0", helper(ppid=1, facts=facts), log=log, phase=Phase.MODEL_INIT,
        exits=[ended(rank(0), code=1, ago_s=4), ended(engine(), code=1, ago_s=3), ended(front(), code=1, ago_s=2)],
        gpus=(), environment={"VLLM_CPU_KVCACHE_SPACE": "8"},
        host=host(container="docker", driver="", cuda="", cpus=24, memory_bytes=128 * GB, numa_nodes=2, places=(
            place("weights", "/data/smol", needed_bytes=GB // 3),
        )), **DIES,
    )  # fmt: skip


def spark_killed(*, seen: bool) -> Bundle:
    """The kernel killed the scheduler of a Spark while the weights were staged; its parent tells how it ended."""
    main = launcher(
        stack=("_poll (multiprocessing/connection.py:440)", "kill_process_tree (sglang/srt/utils/common.py:1010)")
    )
    gone = scheduler(0, (), memory=80 * GB)
    log = [
        at("", "server_args=ServerArgs(model_path='/models/vision', tokenizer_path='/models/vision', port=30000)"),
        at("TP0", "Init torch distributed ends. elapsed=9.81 s, mem usage=0.91 GB"),
        at("TP0", "Load weight begin. avail mem=112.4 GB"),
        "Multi-thread loading shards:  71% Completed | 29/41 [03:12<01:22,  6.8s/it]",
        *([at("", "Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a "
              "common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.")] if seen else []),
    ]  # fmt: skip
    kills = ["python3 invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0",
             "Out of memory: Killed process 4100 (sglang::schedul) total-vm:311802412kB"]  # fmt: skip
    return started(
        "python -m sglang.launch_server --model-path /models/vision --tp 2 --nnodes 2 --node-rank 0 --dist-init-addr "
        "192.168.100.10:20000",
        main, helper(), () if seen else scheduler(0, memory=80 * GB, **UNSEEN), log=log, phase=Phase.WEIGHTS,
        quiet_s=15 if seen else 600, version="0.5.20", gpus=gb10(3 if seen else 81),
        exits=[ended(gone, signal=9, oom=True, ago_s=14)] if seen else [], kernel_log=kills if seen else [],
        host=spark(memory_free_bytes=(96 if seen else 3) * GB,
                   cgroup=Cgroup(path="/", oom_kills=1) if seen else ordinary_cgroup()),
    )  # fmt: skip


def bad_gateway(*, told: bool) -> Bundle:
    """A server that listens on every address asks 0.0.0.0 for its first token, and a proxy answers."""
    log = [
        *serves(4)[:-1],
        at("TP0", "Prefill batch, #new-seq: 1, #new-token: 2163, #cached-token: 41, #running-req: 6, #queue-req: 0"),
        at("", "Initialization failed. warmup error: Traceback (most recent call last):"),
        f'  File "{PACKAGES}sglang/srt/entrypoints/http_server.py", line 1434, in _execute_server_warmup',
        '    assert res.status_code == 200, f"{res=}, {res.text=}"',
        *(["AssertionError: res=<Response [502]>, res.text=''"] if told else []),
    ]
    gone = [ended(scheduler(n, ()), signal=9, ago_s=3) for n in range(4)]
    proxy = {"http_proxy": "http://10.9.0.8:3128", "no_proxy": "localhost,127.0.0.1"}
    return started(
        f"{SGLANG} --tp 4 --host 0.0.0.0 --port 18089 --mem-fraction-static 0.7", log=log, phase=Phase.WARMUP,
        exits=[*gone, ended(launcher(), signal=9, ago_s=2)], version="0.5.7", environment=proxy if told else {},
        gpus=gpus(4, name="NVIDIA A100 80GB PCIe", architecture="80", memory_used_bytes=GB), **DIES,
    )  # fmt: skip
