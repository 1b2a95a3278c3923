"""What is usual, or only unlucky, is no cause; and names from outside do no harm."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.host import Resolved
from firstlight.core.look import Leftover, Lock, OpenFile, Pressure
from firstlight.core.vocabulary import Phase
from firstlight.diagnose.causes import all_causes
from firstlight.diagnose.scene import scene_of
from firstlight.diagnose.weigh import weigh
from firstlight.testing.bundles import (
    GB,
    bundle,
    ended,
    engine,
    file,
    folder,
    front,
    helper,
    host,
    interface,
    line,
    ordinary_cgroup,
    ordinary_facts,
    place,
    rank,
    socket,
)

IN_MODEL = [
    "forward (vllm/model_executor/models/llama.py:300)",
    "worker_main (vllm/v1/executor/multiproc_executor.py:720)",
]
GATHER = ["all_reduce (vllm/distributed/device_communicators/pynccl.py:168)", *IN_MODEL]
HOSTILE = "\x1b[31m<script>alert(1)</script>\u202e../../" + "A" * 100_000
MINE = [
    "cgroup_pids",
    "container_caps",
    "download_lock",
    "download_stuck",
    "gpu_in_use",
    "host_memory_pin",
    "http_proxy",
    "hub_network",
    "ipv6",
    "jit_build_failure",
    "leftover_process",
    "memory_pressure",
    "model_too_large",
    "nfs_cache",
    "no_machine_code",
    "option_conflict",
    "port_in_use",
    "probe_kill",
    "rendezvous_unreachable",
    "resource_wait",
    "semaphore_never_posted",
    "shm_too_small",
    "slow_jit",
    "slow_network_load",
    "slow_storage",
    "socket_full",
    "stale_jit_lock",
    "ulimit",
    "unresolvable_host",
    "wrong_interface",
    "zmq_no_reply",
]
_REFUSALS = (
    "Address already in use",
    "still waiting to acquire lock on x.lock",
    "ibv_reg_mr failed",
    "mbind EPERM",
    "/dev/shm no space left",
    "ninja: build stopped",
    "Waiting for creating a placement group",
    "9/9 [1:00<",
)
CAUSES = [cause for cause in all_causes() if cause.id in MINE]


def _unlucky(phase: Phase, stack: list[str]) -> Bundle:
    """A machine with everything that could be a cause, and a stall that has to do with none of it."""
    facts = ordinary_facts(
        memlock=65_536, nofile=1024, capabilities=(), seccomp=2, cgroup=ordinary_cgroup(pids_max=20_000)
    )
    files = [
        file("/mnt/m/model-00001-of-00002.safetensors", filesystem="nfs4"),
        file("/root/.cache/flashinfer/x.lock", filesystem="nfs4"),
        socket("10.0.0.2:50000", "34.1.2.3:443", fd=70),
        socket("127.0.0.1:50001", "127.0.0.1:29500", fd=71),
    ]
    machine = host(
        shm_bytes=64 << 20,
        shm_used_bytes=30 << 20,
        places=(place("weights", "/mnt/m", filesystem="nfs4"), place("compile_cache", "/mnt/c", filesystem="nfs4")),
        interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"),
            interface("docker0", "172.17.0.1", kind="bridge"),
            interface("tun0", "10.8.0.2", kind="tunnel"),
        ),
        page_bytes=65_536,
        container="docker",
        devices=(),
    )
    return bundle(
        front(),
        engine(),
        helper(),
        [rank(number, stack=stack, files=files, facts=facts) for number in range(2)],
        phase=phase,
        host=machine,
        environment={"http_proxy": "http://p:3128", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
        locks=[Lock(kind="file", path="/root/.cache/torch_extensions/old/lock", holder=0, age_s=9e6)],
        folders=[folder("download", "/hub", bytes_=GB), folder("compile_cache", "/mnt/c", bytes_=GB)],
        leftovers=[Leftover(pid=9, name="VLLM::Worker", state="S", age_s=9.0, holds=("port 9999",))],
        log=["vLLM is using nccl==2.27.5", "Waiting for 1 core engine proc(s) to start"],
    )


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("stack", [IN_MODEL, GATHER, []], ids=["in the model", "in a collective", "no stack"])
def test_facts_of_the_machine_alone_are_no_cause(phase, stack):
    made = _unlucky(phase, stack)
    made = replace(made, looks=tuple(replace(look, pressure=Pressure(memory_some=4.0)) for look in made.looks))
    assert [one.id for one in weigh(scene_of(made), CAUSES).findings] == []


def _hostile() -> Bundle:
    bad = OpenFile(fd=9, kind="socket", target=HOSTILE, detail=HOSTILE, peers=(1, 2))
    return bundle(
        rank(
            0,
            name=HOSTILE,
            stack=["acquire (filelock/_api.py:3)", "hf_hub_download (huggingface_hub/file_download.py:9)"],
            syscall="clock_nanosleep(0x1)",
            files=[file(f"/hub/.locks/{HOSTILE}.lock"), file(f"/m/{HOSTILE}.safetensors", filesystem="nfs4"), bad],
        ),
        host=host(
            resolved=(Resolved(name=HOSTILE, addresses=()),), places=(place("weights", HOSTILE, filesystem="nfs"),)
        ),
        environment=dict.fromkeys(("http_proxy", "no_proxy", "MASTER_ADDR", "NCCL_SOCKET_IFNAME"), HOSTILE),
        options={
            **dict.fromkeys(("port", "nnodes"), "9" * 5000),
            **dict.fromkeys(("host", "dist-init-addr", "speculative-config"), HOSTILE),
        },
        locks=[Lock(kind="flock", path=f"/hub/.locks/{HOSTILE}.lock", holder=3, holder_name=HOSTILE)],
        leftovers=[Leftover(pid=9, name=HOSTILE, state="S", age_s=9.0, holds=(HOSTILE, f"port {HOSTILE}"))],
        exits=(ended(rank(1), signal=9),),
        log=[line(f"{word} {HOSTILE}", level="ERROR") for word in _REFUSALS],
        version=HOSTILE,
    )


@pytest.mark.parametrize("before", [False, True], ids=["a start", "a check"])
def test_names_from_outside_are_bounded_and_printable(before):
    findings = weigh(scene_of(_hostile()), CAUSES, before=before).findings
    assert findings
    for one in findings:
        for text in (one.title, *one.evidence, *one.advice, *one.against, *one.unseen):
            assert len(text) < 2000
            assert text.isprintable()


def test_an_empty_bundle_has_no_cause():
    empty = replace(bundle(), looks=())
    assert weigh(scene_of(empty), CAUSES).findings == ()


def test_every_one_of_them_is_here():
    assert sorted(cause.id for cause in CAUSES) == sorted(MINE)
