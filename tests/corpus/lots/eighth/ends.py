"""Servers of the eighth lot that ended by themselves. Nobody is left to be looked at then: such a bundle holds the
exits, the log and the machine, and no look. Their logs are raw lines of that version."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from tests.corpus.lots.eighth.machines import heard

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Limit
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Motion, Phase
from firstlight.testing.bundles import (
    FRONT,
    GB,
    PACKAGES,
    bundle,
    ended,
    engine,
    front,
    host,
    process,
    rank,
)

FRONT_SAYS = (
    "(APIServer pid=4000) Traceback (most recent call last):",
    f'(APIServer pid=4000)   File "{PACKAGES}vllm/v1/engine/utils.py", line 964, in wait_for_engine_startup',
    "(APIServer pid=4000)     raise RuntimeError(",
    (
        "(APIServer pid=4000) RuntimeError: Engine core initialization failed. See root cause above. Failed "
        "core proc(s): []"
    ),
)
BOTH = (ended(engine(), ago_s=3), ended(front(), code=1, ago_s=1))
"""The engine core, whose exit status only its parent is told, then that parent."""


def trace(prefix: str, frames: Sequence[str], *error: str) -> list[str]:
    """A traceback as Python prints it, each line with `prefix`. A frame reads "file.py:12 function", perhaps with
    "| source"."""
    said = ["Traceback (most recent call last):"]
    for one in frames:
        place_, _, source = one.partition(" | ")
        where, _, function = place_.partition(" ")
        path, _, number = where.rpartition(":")
        said.append(f'  File "{path if path.startswith("/") else PACKAGES + path}", line {number}, in {function}')
        said += [f"    {source}"] * bool(source)
    return [prefix + one for one in (*said, *error)]


def over(
    raw: Iterable[str], *, exits: Iterable[Exit] = BOTH, phase: Phase = Phase.MODEL_INIT, **more: object
) -> Bundle:
    """A server that is gone, so that nothing was looked at."""
    told: dict[str, object] = {"motion": Motion.MOVING, "quiet_s": 4, **more}
    made = bundle(phase=phase, exits=tuple(exits), **told)
    return heard(replace(made, looks=()), raw, ago_s=6)


def core_failed(
    frames: Sequence[str], *error: str, version: str, tag: str = "EngineCore_DP0", **more: object
) -> Bundle:
    """An engine core that ran the model itself and failed, and the front that said so."""
    prefix = f"({tag} pid=4050) ERROR {{}} [core.py:946] "
    inner = (
        "vllm/v1/engine/core.py:937 run_engine_core",
        "vllm/v1/executor/uniproc_executor.py:47 _init_executor",
        *frames,
    )
    said = (prefix + "EngineCore failed to start.", *trace(prefix, inner, *error), *FRONT_SAYS)
    return over(said, version=version, **more)


def workers_failed(
    count: int, frames: Sequence[str], *error: str, version: str, before: Sequence[str] = (), **more: object
) -> Bundle:
    """Workers of which each failed alike."""
    prefix = "ERROR {} [multiproc_executor.py:783] "
    inner = ("vllm/v1/executor/multiproc_executor.py:754 worker_main", *frames)
    outer = "(EngineCore_DP0 pid=4050) ERROR {} [core.py:936] "
    said = [
        *before,
        prefix + "WorkerProc failed to start.",
        *trace(prefix, inner, *error),
        outer + "EngineCore failed to start.",
        outer + "Exception: WorkerProc initialization failed due to an exception in a background process. See stack "
        "trace for root cause.",
        *FRONT_SAYS,
    ]
    gone = [ended(rank(number), ago_s=4) for number in range(count)]
    return over(said, exits=(*gone, *BOTH), version=version, ranks=count, **{"phase": Phase.COMM_INIT, **more})


SET_DEVICE = (
    "vllm/v1/worker/worker_base.py:326 init_device",
    "vllm/v1/worker/gpu_worker.py:247 init_device | current_platform.set_device(self.device)",
    "vllm/platforms/cuda.py:123 set_device",
    "torch/cuda/__init__.py:567 set_device | torch._C._cuda_setDevice(device)",
)
COUNT = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error {}: {}"
)


def wrong_driver(*, told: bool) -> Bundle:
    said = COUNT.replace("{}: {}", "803: system has unsupported display driver / cuda driver combination")
    return core_failed(
        SET_DEVICE, *[said] * told, version="0.15.0", phase=Phase.RENDEZVOUS,
        host=host(container="docker", driver="580.95.05", cuda="13.0"), environment={"NVIDIA_VISIBLE_DEVICES": "0"},
    )  # fmt: skip


def no_fabric(*, told: bool) -> Bundle:
    said = COUNT.replace("{}: {}", "802: system not yet initialized")
    return workers_failed(
        4, SET_DEVICE[1:], *[said] * told, version="0.16.0", phase=Phase.RENDEZVOUS,
        host=host(driver="580.126.20", cuda="13.0"), options={"tensor_parallel_size": "4"},
    )  # fmt: skip


def bind_fails(*, told: bool) -> Bundle:
    frames = (
        "/usr/lib/python3.10/runpy.py:86 _run_code",
        "vllm/entrypoints/openai/api_server.py:585 <module> | uvloop.run(run_server(args))",
        'vllm/entrypoints/openai/api_server.py:544 run_server | sock.bind(("", args.port))',
    )
    said = trace("", frames, *["OSError: [Errno 98] Address already in use"] * told)
    return over(
        said, exits=BOTH[1:], version="0.6.3.post1", port=8000, phase=Phase.CONFIG, host=host(container="docker")
    )


def other_instance(*, told: bool) -> Bundle:
    frames = (
        "/usr/local/bin/vllm:8 <module> | sys.exit(main())",
        "vllm/entrypoints/openai/api_server.py:2010 setup_server | sock = create_server_socket(sock_addr)",
        "vllm/entrypoints/openai/api_server.py:1960 create_server_socket | sock.bind(addr)",
    )
    said = trace("(APIServer pid=4000) ", frames, *["OSError: [Errno 98] Address already in use"] * told)
    head = "(APIServer pid=4000) INFO {} [api_server.py:1977] vLLM API server version 0.11.1"
    return over(
        [head, *said], exits=BOTH[1:], version="0.11.1", port=40063, phase=Phase.CONFIG,
        host=host(container="docker"),
        options={"host": "10.128.43.156", "port": "40063", "gpu_memory_utilization": "0.35"},
    )  # fmt: skip


def own_child_binds(*, told: bool) -> Bundle:
    taken = "address already in use"
    owner = (
        "DEBUG 09-04 17:38:34 launcher.py:64] port 44319 is used by process psutil.Process(pid=4050, "
        "name='pt_main_thread', status='sleeping', started='17:37:05') launched with command:"
    )
    said = [
        "INFO:     Started server process [4000]",
        "INFO:     Waiting for application startup.",
        "INFO:     Application startup complete.",
        *[f"ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 44319): {taken}"] * told,
        "INFO:     Waiting for application shutdown.",
        "INFO:     Application shutdown complete.",
        *[owner] * told,
    ]
    return over(said, version="0.5.5", port=44319, phase=Phase.HTTP_BIND)


NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"


def no_fp4_kernel(*, told: bool) -> Bundle:
    frames = (
        "vllm/v1/worker/gpu_model_runner.py:3510 load_model",
        "vllm/model_executor/model_loader/utils.py:108 process_weights_after_loading",
        "vllm/model_executor/layers/quantization/modelopt.py:1290 process_weights_after_loading",
    )
    return core_failed(
        frames, *[f"torch.AcceleratorError: {NO_IMAGE}"] * told, version="0.12.0", phase=Phase.WEIGHTS,
        host=host(name="gb10-1", cpu_arch="aarch64", memory_bytes=119 * GB, driver="580.95.05", cuda="13.0"),
    )  # fmt: skip


def volta(*, told: bool) -> Bundle:
    prefix = "ERROR 06-04 22:38:36 [engine.py:458] "
    frames = (
        "vllm/engine/multiprocessing/engine.py:446 run_mp_engine",
        "vllm/model_executor/models/qwen3.py:174 __init__",
        "vllm/model_executor/layers/rotary_embedding.py:118 _compute_inv_freq",
    )
    said = [prefix + (f"{NO_IMAGE}" if told else ""), *trace(prefix, frames, *[f"RuntimeError: {NO_IMAGE}"] * told)]
    return over(said, version="0.9.0.1", host=host(container="docker", driver="550.90.07", cuda="12.4"))


def cpuset(*, told: bool) -> Bundle:
    frames = (
        "vllm/v1/worker/cpu_worker.py:120 initialize_from_config",
        (
            "vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py:714 __init__ | "
            "os.sched_setaffinity(0, rsv_cores_for_kv)"
        ),
    )
    error = ["OSError: [Errno 22] Invalid argument"] * told
    return workers_failed(
        1, frames if told else frames[:1], *error, version="0.30.0", phase=Phase.KV_CACHE,
        host=host(container="kubernetes", cpus=8, numa_nodes=2),
        options={"kv_transfer_config": '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'},
    )  # fmt: skip


def few_threads(*, told: bool) -> Bundle:
    nproc = 4096 if told else 2_060_000
    said = [
        "2024-07-10 15:24:06,387\tINFO worker.py:1771 -- Started a local Ray instance.",
        *[
            ("E0710 15:24:06.605366961 2474524 thd.cc:157]                           pthread_create failed: Resource "
            "temporarily unavailable"),
            ("[2024-07-10 15:24:06,819 E 4000 4000] core_worker.cc:251: Failed to register worker "
            "01000000ffffffffffffffffffffffffffffffffffffffffffffffff to Raylet. IOError: [RayletClient] Unable to "
            "register worker with raylet. No such file or directory"),
        ] * told,
    ]  # fmt: skip
    limits = (Limit(name="nofile", soft=65_536, hard=65_536), Limit(name="nproc", soft=nproc, hard=nproc))
    gone = ended(process(FRONT, "python", ppid=1), code=1, ago_s=1)
    return over(
        said, exits=[gone], root=gone.id, engine="generic", phase=Phase.SPAWN, host=host(limits=limits, cpus=128)
    )


def no_name(*, told: bool) -> Bundle:
    frames = (
        "vllm/model_executor/weight_utils.py:120 prepare_hf_model_weights",
        "huggingface_hub/_snapshot_download.py:186 snapshot_download",
        "requests/adapters.py:519 send | raise ConnectionError(e, request=request)",
    )
    error = (
        "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): "
        "Max retries exceeded with url: /api/models/org/model-7b/revision/main (Caused by NewConnectionError("
        "'<urllib3.connection.HTTPSConnection object at 0x2b27fbfbe550>: Failed to establish a new connection: "
        "[Errno -3] Temporary failure in name resolution'))\"), '(Request ID: 3b86)')"
    )
    return over(
        trace("", frames, *[error] * told),
        exits=BOTH[1:],
        version="0.1.7",
        phase=Phase.WEIGHTS,
        environment={"TRANSFORMERS_OFFLINE": "1"},
    )


def no_guard(*, told: bool) -> Bundle:
    again = (
        "/usr/lib/python3.10/multiprocessing/spawn.py:116 spawn_main",
        "/usr/lib/python3.10/multiprocessing/spawn.py:236 prepare | _fixup_main_from_path(data)",
        "/usr/lib/python3.10/multiprocessing/spawn.py:287 _fixup_main_from_path",
        '/scratch/run.py:12 <module> | llm = LLM(model="/scratch/model", tensor_parallel_size=2)',
        "vllm/distributed/device_communicators/custom_all_reduce_utils.py:123 can_actually_p2p | pi.start()",
        "/usr/lib/python3.10/multiprocessing/popen_spawn_posix.py:42 _launch",
        "/usr/lib/python3.10/multiprocessing/spawn.py:134 _check_not_importing_main",
    )
    reason = (
        "RuntimeError: ",
        "        An attempt has been made to start a new process before the",
        "        current process has finished its bootstrapping phase.",
    )
    child = process(4210, "python -c from multiprocessing.spawn import spawn_main", ppid=FRONT)
    exits = [ended(child, ago_s=5), ended(process(FRONT, "python", ppid=1), code=1, ago_s=1)]
    return over(
        trace("[rank0]: ", again, *reason) if told else [], exits=exits, engine="generic", phase=Phase.COMM_INIT
    )
