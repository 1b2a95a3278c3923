"""Servers that ended by themselves: the cause that the error and the end tell, beside what only looks like it."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Limit
from firstlight.core.host import Host
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Motion, Phase
from firstlight.diagnose.causes import all_causes
from firstlight.diagnose.scene import scene_of
from firstlight.diagnose.weigh import weigh
from firstlight.testing.bundles import bundle, ended, front, host, interface, line, place, rank

CAUSES = all_causes()
TRACE = ("Traceback (most recent call last):", '  File "{}", line 7, in run', "    {}")
IPV6 = host(interfaces=(interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "fd00:1::2")))
IPV4 = host(interfaces=(interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.0.0.2")))
LIMITS = host(limits=(Limit(name="nproc", soft=4096, hard=4096), Limit(name="nofile", soft=1024, hard=4096)))
NO_MODEL = host(places=(place("weights", "/models/llm", there=False),))
READ_ONLY = host(places=(place("home", "/", writable=False), place("home", "/root", writable=False)))
FULL = host(places=(place("hub_cache", "/data/hub", free_bytes=0),))
TINY = host(shm_bytes=64 << 20, shm_used_bytes=60 << 20)
SHIM = host(preload=("/usr/local/vgpu/libvgpu.so",))
DATACLASS = "/x/pydantic/_internal/_dataclasses.py"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB "
    "of which 0.50 GiB is free. Process 7 has {} GiB memory in use. Including non-PyTorch memory, this process has "
    "{} GiB memory in use."
)
FREE = "ValueError: Free memory on device cuda:0 ({}/24.0 GiB) on startup is less than desired GPU memory utilization"


def raised(error: str, *, source: str = "work()", file: str = "/srv/run.py") -> tuple[str, ...]:
    """A traceback as Python prints it."""
    return (TRACE[0], TRACE[1].format(file), TRACE[2].format(source), error)


def died(said: Sequence[str], *gone: Exit, code: int = 1, **more: object) -> Bundle:
    """A server that is gone, and with it everybody who could have been looked at."""
    exits = gone or (ended(front(), code=code, ago_s=2),)
    log = [line(one, level="", ago_s=5 - 0.01 * at) for at, one in enumerate(said)]
    made = bundle(phase=Phase.MODEL_INIT, exits=exits, log=log, motion=Motion.MOVING, quiet_s=5, **more)  # type: ignore[arg-type]
    return replace(made, looks=())


def told(made: Bundle) -> dict[str, str]:
    return {one.id: one.verdict for one in weigh(scene_of(made), CAUSES).findings}


def crash(*frames: str, on: Host) -> Bundle:
    return died(frames, ended(rank(0), signal=11, ago_s=3), ended(front(), code=1, ago_s=2), host=on)


ESTABLISHED = {
    "an option": ("option_conflict", died(["vllm: error: unrecognized arguments: --foo"], code=2)),
    "an option of click": ("option_conflict", died(["Error: No such option: --foo"], code=2)),
    "a model": ("model_not_found", died(raised("OSError: /models/llm does not exist"), host=NO_MODEL)),
    "a file of it": (
        "model_not_found",
        died(raised("FileNotFoundError: [Errno 2] No such file or directory: '/models/llm/a.json'"), host=NO_MODEL),
    ),
    "a port": ("port_in_use", died(raised("OSError: [Errno 98] Address already in use"))),
    "a cache": (
        "not_writable",
        died(raised("PermissionError: [Errno 13] Permission denied: '/.triton'"), host=READ_ONLY),
    ),
    "a disk": ("disk_full", died(raised("OSError: [Errno 28] No space left on device: '/data/hub/x'"), host=FULL)),
    "a module": ("broken_installation", died(raised("ModuleNotFoundError: No module named 'vllm_flash_attn'"))),
    "an architecture": (
        "unsupported_model",
        died(raised("ValueError: Model architectures ['NewForCausalLM'] are not supported for now.")),
    ),
}
SUPPORTED = {
    "an option, without the status for it": ("option_conflict", died(["error: unrecognized arguments: --foo"])),
    "options that do not go together": (
        "option_conflict",
        died(raised("ValueError: A needs B", file="/opt/vllm/engine/arg_utils.py")),
    ),
    "a model that may be there": (
        "model_not_found",
        died(raised("OSError: /models/b does not exist"), command=("vllm", "serve", "/models/b")),
    ),
    "a path that was not seen": ("not_writable", died(raised("OSError: [Errno 30] Read-only file system: '/x/y'"))),
    "a disk that was not seen": ("disk_full", died(raised("OSError: [Errno 28] No space left on device"))),
    "a name": ("unresolvable_host", died(raised("socket.gaierror: [Errno -2] Name or service not known"))),
    "the hub": (
        "hub_network",
        died(raised("ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded")),
    ),
    "a hub that is overloaded": (
        "hub_network",
        died(raised("HfHubHTTPError: 504 Server Error: Gateway Time-out for url: https://huggingface.co/api/x")),
    ),
    "a lock": (
        "download_lock",
        died(raised("Exception: Lock acquisition failed: /hf/models--org--v3/blobs/0a7d.lock")),
    ),
    "a gated model": ("hub_refused", died(raised("GatedRepoError: 403 Client Error. Cannot access gated repo"))),
    "memory of its own": ("model_too_large", died(raised(OOM.format("0.20", "23.30")))),
    "no room for a cache": ("model_too_large", died(raised("ValueError: No available memory for the cache blocks."))),
    "memory of others": ("gpu_in_use", died(raised(OOM.format("13.00", "10.50")))),
    "memory that was taken before": ("gpu_in_use", died(raised(FREE.format("4.0")))),
    "too few GPUs": ("too_few_gpus", died(raised("RuntimeError: CUDA error: invalid device ordinal"), ranks=8)),
    "threads": ("ulimit", died(raised("RuntimeError: can't start new thread"), host=LIMITS)),
    "files": ("ulimit", died(raised("OSError: [Errno 24] Too many open files: '/models/x'"), host=LIMITS)),
    "cores": (
        "numa_binding",
        died(raised("OSError: [Errno 22] Invalid argument", source="os.sched_setaffinity(0, cores)")),
    ),
    "memory of a node": ("numa_binding", died(["setting membind: Invalid argument"])),
    "a bus error": ("shm_too_small", died(["Shard was signaled to shutdown with signal 7 rank=2"], host=TINY)),
    "a build": ("jit_build_failure", died(raised("RuntimeError: Error building extension 'sampling'"))),
    "an IPv4 address": (
        "ipv6",
        died(raised("OSError: [Errno 101] Network is unreachable", source='s.connect(("8.8.8.8", 80))'), host=IPV6),
    ),
    "a library before CUDA": (
        "preload_shim",
        crash('  File "/libvgpu/src/cuda/memory.c", line 690, in cuMemCreate', on=SHIM),
    ),
    "where ranks meet, with nobody there": (
        "rendezvous_unreachable",
        died(
            raised(
                "DistNetworkError: The client socket has failed to connect to 10.0.0.7:29500 (errno: 111 - Connect"
                "ion refused)."
            ),
            options={"master-addr": "10.0.0.7", "master-port": "29500"},
            nodes=2,
            node=1,
        ),
    ),
    "a library of another CUDA": (
        "driver_toolkit_mismatch",
        died(raised("ImportError: libcudart.so.13: cannot open shared object file: No such file or directory")),
    ),
    "a driver that cannot tell": (
        "gpu_fault",
        died(raised("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment")),
    ),
    "settings that pydantic refuses": (
        "option_conflict",
        died(raised("ValidationError: 1 validation error for CacheConfig", file=DATACLASS)),
    ),
    "an instruction": ("cpu_too_old", died([], ended(front(), signal=4, ago_s=2))),
    "a kernel": ("kernel_fault", died(raised("RuntimeError: CUDA error: an illegal memory access was encountered"))),
}
LOOK_ALIKES = {
    "an address at which no ranks meet": (
        "rendezvous_unreachable",
        died(raised("ConnectionRefusedError: [Errno 111] Connection refused: 10.0.0.9:80"),
        options={"master-addr": "10.0.0.7", "master-port": "29500"}, nodes=2, node=1),
    ),
    "a library that is none of CUDA": (
        "driver_toolkit_mismatch",
        died(raised("ImportError: libnuma.so.1: cannot open shared object file: No such file or directory")),
    ),
    "settings whose model is missing": (
        "option_conflict",
        died((*raised("ValidationError: 1 validation error for ModelConfig", file=DATACLASS),
        "  Value error, Invalid repository ID or local directory specified: '/m/x'.")),
    ),
    "a lock of something else": ("download_lock", died(raised("Exception: Lock acquisition failed: /x/y.lock"))),
    "an option that a helper was given": ("option_conflict", died(["INFO parser: --foo is an option"], code=2)),
    "an error of its own in a server": ("option_conflict", died(raised("ValueError: A needs B"))),
    "a path of something else": ("model_not_found", died(raised("OSError: /etc/x does not exist"), host=NO_MODEL)),
    "memory that is full in equal parts": ("model_too_large", died(raised(OOM.format("13.00", "10.50")))),
    "memory that nobody else has": ("gpu_in_use", died(raised(OOM.format("0.20", "23.30")))),
    "what a driver and a desktop take": ("gpu_in_use", died(raised(FREE.format("23.0")))),
    "threads, of which many are allowed": ("ulimit", died(raised("RuntimeError: can't start new thread"))),
    "an argument that is no core": ("numa_binding", died(raised("OSError: [Errno 22] Invalid argument"))),
    "a bus error with room": ("shm_too_small", died(["Shard was signaled to shutdown with signal 7"], host=host())),
    "no way, with IPv4": (
        "ipv6",
        died(raised("OSError: [Errno 101] Network is unreachable", source='s.connect(("8.8.8.8", 80))'), host=IPV4),
    ),
    "a crash without the library": ("preload_shim", crash('  File "/nccl/src/init.cc", line 1', on=SHIM)),
    "a library that is not preloaded": ("preload_shim", crash('  File "/libvgpu/src/x.c", line 1', on=host())),
}  # fmt: skip


@pytest.mark.parametrize("case", ESTABLISHED)
def test_error_and_end_together_leave_nothing_else(case: str) -> None:
    cause, made = ESTABLISHED[case]
    assert told(made)[cause] == "established"


@pytest.mark.parametrize("case", SUPPORTED)
def test_the_error_that_ended_it_speaks_for_its_cause(case: str) -> None:
    cause, made = SUPPORTED[case]
    assert told(made)[cause] == "supported"


@pytest.mark.parametrize("case", LOOK_ALIKES)
def test_what_only_looks_like_it_does_not(case: str) -> None:
    cause, made = LOOK_ALIKES[case]
    assert cause not in told(made)


@pytest.mark.parametrize("case", [*ESTABLISHED, *SUPPORTED])
def test_the_same_words_in_a_server_that_is_there_establish_nothing(case: str) -> None:
    """The last line of a log alone never does."""
    cause, made = (ESTABLISHED | SUPPORTED)[case]
    alive = bundle(front(), rank(0), phase=Phase.MODEL_INIT, log=[one for tail in made.logs for one in tail.lines])
    assert told(replace(alive, host=made.host)).get(cause) != "established"


@pytest.mark.parametrize("case", [*ESTABLISHED, *SUPPORTED])
def test_the_same_words_of_an_hour_before_establish_nothing(case: str) -> None:
    cause, made = (ESTABLISHED | SUPPORTED)[case]
    old = tuple(
        replace(tail, lines=tuple(replace(one, at=one.at - 3600) for one in tail.lines)) for tail in made.logs
    )
    assert told(replace(made, logs=old)).get(cause) != "established"
