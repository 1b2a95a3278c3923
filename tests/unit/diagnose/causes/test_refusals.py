"""The same refusal in the words of other programs and of the kernel, each beside a line that only sounds like it."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.facts import UNLIMITED, Cgroup, Limit
from firstlight.core.gap import Gap
from firstlight.core.host import Resolved
from firstlight.core.look import Leftover
from firstlight.core.process import Exit
from firstlight.core.vocabulary import GapReason, Motion, Phase
from firstlight.testing.bundles import (
    GB,
    bundle,
    ended,
    front,
    gpus,
    host,
    line,
    ordinary_cgroup,
    ordinary_facts,
    rank,
)

TINY = host(shm_bytes=64 << 20, shm_used_bytes=20 << 20)
FULL_GROUP = ordinary_facts(cgroup=ordinary_cgroup(pids=100, pids_max=100, pids_refused=3))
FEW_FILES = ordinary_facts(nofile=1024)
LEFT = Leftover(pid=77, name="vllm", state="S", age_s=900, holds=("GPU 0",))
NO_ADDRESS = Resolved(
    name="node-0.svc", addresses=Gap(what="address", reason=GapReason.FAILED, detail="Name or service not known")
)
LEFT_GPU = {"gpus": gpus(1, memory_used_bytes=70 * GB), "leftovers": [LEFT]}
MEETS = {"options": {"master-addr": "node-0.svc"}, "phase": Phase.RENDEZVOUS}
UNRESOLVED = MEETS | {"host": host(resolved=(NO_ADDRESS,))}


def _says(text: str, facts=None, **told: object) -> Bundle:
    return bundle(rank(0, facts=facts or ordinary_facts()), log=[line(text, level="ERROR")], **told)


SAID = {
    "a port, and its user shall choose": ("port_in_use", "address already in use; use a different port", {}),
    "a port that is occupied": ("port_in_use", "RuntimeError: port 30000 is occupied", {}),
    "a port that Docker has given away": ("port_in_use", "Bind for 0.0.0.0:80 failed: port is already allocated", {}),
    "Ray's workers": ("resource_wait", "Wait for all ray workers to be active. 1/2 is active", {}),
    "Ray Serve's scheduler": ("resource_wait", "has 1 replicas that have taken more than 30s to be scheduled", {}),
    "Kubernetes' scheduler": ("resource_wait", "0/5 nodes are available: 3 Insufficient amd.com/gpu", {}),
    "Slurm's steps": ("resource_wait", "step creation still disabled, retrying (Requested nodes are busy)", {}),
    "torch's shared memory": ("shm_too_small", "unable to write to file </torch_12_34_0>", {"host": TINY}),
    "UCX's shared memory": ("shm_too_small", "posix: Not enough memory to write, check /dev/shm", {"host": TINY}),
    "Python's shared memory": ("shm_too_small", "[Errno 28] No space left on device: '/psm_a1'", {"host": TINY}),
    "NCCL's shared memory": ("shm_too_small", "Error: failed to extend /dev/shm/nccl-a3 to 9637892", {"host": TINY}),
    "a file that was mapped without room": ("shm_too_small", "OSError: [Errno 14] Bad address", {"host": TINY}),
    "a bus error in the log": ("shm_too_small", "Signal: Bus error (7)", {"host": TINY}),
    "descriptors that are dropped": ("ulimit", "RuntimeError: received 0 items of ancdata", {"facts": FEW_FILES}),
    "threads of Go": ("cgroup_pids", "runtime: failed to create new OS thread (errno=11)", {"facts": FULL_GROUP}),
    "threads of OpenMP": ("cgroup_pids", "OMP: Error #35: System error #11: Resource", {"facts": FULL_GROUP}),
    "Go's resolver": ("unresolvable_host", "lookup node-0.svc on 10.96.0.10:53: no such host", UNRESOLVED),
    "Rust's resolver": ("unresolvable_host", "failed to lookup address information: node-0.svc", UNRESOLVED),
    "a name nobody looked up": (
        "unresolvable_host",
        "(node-0.svc, 29500) cannot be retrieved (gai error: -2)",
        MEETS,
    ),
    "SGLang's memory": ("leftover_process", "Not enough memory. Try to increase the fraction", LEFT_GPU),
}
SOUNDS_LIKE = {
    "another port was taken": ("port_in_use", "port 8000 is occupied, using port 8001", {}),
    "what a port is for": ("port_in_use", "port 8000 is used by the API server", {}),
    "nobody may write there": ("shm_too_small", "failed to open /dev/shm/x: Permission denied", {"host": TINY}),
    "room on another disk": ("shm_too_small", "[Errno 28] No space left: '/root/.cache/x'", {"host": TINY}),
    "Triton's shared memory": ("shm_too_small", "OutOfResources: shared memory, Required: 163840", {"host": TINY}),
    "a queue without an item": ("cgroup_pids", "zmq.error.Again: Resource temporarily unavailable", {}),
    "files without a limit": ("ulimit", "RuntimeError: received 0 items of ancdata", {}),
    "a name without IPv6": ("unresolvable_host", "The IPv6 addresses of (node-0.svc, 1) cannot be retrieved", MEETS),
    "a name that resolves": ("unresolvable_host", "node-0.svc: no such host", MEETS | {
        "host": host(resolved=(Resolved(name="node-0.svc", addresses=("10.0.0.9",)),))
    }),
    "workers that start": ("resource_wait", "Waiting for 2 core engine proc(s) to start", {}),
}  # fmt: skip


@pytest.mark.parametrize(("cause", "text", "told"), SAID.values(), ids=SAID)
def test_a_refusal_is_known_in_other_words(judge, cause, text, told):
    assert judge(_says(text, **told), cause).word in {"established", "supported"}
    assert judge(_says("loading", **told), cause).word != "established"


@pytest.mark.parametrize(("cause", "text", "told"), SOUNDS_LIKE.values(), ids=SOUNDS_LIKE)
def test_what_only_sounds_like_it_is_none(judge, cause, text, told):
    assert judge(_says(text, **told), cause).finding is None


def test_the_hosts_memory_is_not_the_gpus(judge):
    said = judge(_says("not enough memory on the host", **LEFT_GPU), "leftover_process")
    assert said.word == "supported"


@pytest.mark.parametrize(("signal", "word"), [(24, "established"), (25, "established"), (15, "not seen")])
def test_a_limit_has_signals_of_its_own(judge, signal, word):
    assert judge(bundle(front(), exits=[ended(rank(0), signal=signal)]), "ulimit").word == word


def test_a_bus_error_by_exit_status(judge):
    gone = [ended(rank(0), code=135)]
    assert judge(bundle(front(), host=TINY, exits=gone), "shm_too_small").word == "supported"
    assert judge(bundle(front(), exits=gone), "shm_too_small").finding is None


@pytest.mark.parametrize(("most", "word"), [(64 * GB, "supported"), (UNLIMITED, "not seen")])
def test_a_process_that_may_not_map_more(judge, most, word):
    facts = ordinary_facts()
    bounded = replace(facts, limits=(*facts.limits, Limit(name="as", soft=most, hard=most)))
    assert judge(_says("OSError: [Errno 12] Cannot allocate memory", facts=bounded), "ulimit").word == word


def test_the_kernel_tells_of_refused_forks(judge):
    unseen = ordinary_facts(cgroup=Cgroup(path="/docker/1f"))
    told = ["cgroup: fork rejected by pids controller in /docker/1f"]
    assert judge(bundle(rank(0, facts=unseen), kernel_log=told), "cgroup_pids").word == "supported"
    assert judge(bundle(rank(0, facts=unseen), kernel_log=[]), "cgroup_pids").finding is None


def _given_up(text: str, *exits: Exit) -> Bundle:
    told = [line(text, level="WARNING", ago_s=4)]
    return bundle(front(), exits=exits, phase=Phase.WEIGHTS, motion=Motion.STALLED, log=told)


@pytest.mark.parametrize(
    "text",
    [
        "slurmstepd: *** STEP 9.0 ON n CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "model startup timed out after 600s, terminating the worker",
        "no answer of the replica to a health check after 30 s, marking it unhealthy",
    ],
)
def test_who_gave_up_said_so_and_killed(judge, text):
    killed = ended(rank(0), signal=9, ago_s=3)
    assert judge(_given_up(text, killed), "probe_kill").word == "supported"
    assert judge(_given_up(text), "probe_kill").finding is None
    assert judge(_given_up(text, ended(rank(0), code=1, ago_s=3)), "probe_kill").finding is None


def test_a_server_that_ends_in_good_order_when_it_is_asked(judge):
    told = {"phase": Phase.WEIGHTS, "motion": Motion.MOVING, "exits": [ended(front(), code=0, ago_s=3)]}
    asked = [line("Received SIGTERM, shutting down", ago_s=4)]
    assert judge(bundle(rank(0), log=asked, **told), "probe_kill").word == "established"
    assert judge(bundle(rank(0), log=[line("shutting down", ago_s=4)], **told), "probe_kill").finding is None
    assert judge(bundle(rank(0), log=asked, **{**told, "motion": Motion.STALLED}), "probe_kill").finding is None


def test_a_call_that_a_filter_forbids(judge):
    said = "io_uring_queue_init: Operation not permitted"
    assert judge(_says(said, facts=ordinary_facts(seccomp=2)), "container_caps").word == "supported"
    assert judge(_says(said), "container_caps").finding is None
    mempolicy = "get_mempolicy: Operation not permitted"
    assert judge(_says(mempolicy, facts=ordinary_facts(seccomp=2)), "container_caps").finding is None


def test_whoever_guards_the_memory_did_not_lose_patience(judge):
    killed = ended(front(), signal=9, ago_s=3)
    told = {"phase": Phase.WEIGHTS, "motion": Motion.MOVING, "exits": [killed], "kernel_log": []}
    assert judge(bundle(rank(0), **told), "probe_kill").word == "established"
    guarded = [line("a worker was killed due to the node running low on memory", level="ERROR", ago_s=4)]
    assert judge(bundle(rank(0), log=guarded, **told), "probe_kill").word != "supported"
