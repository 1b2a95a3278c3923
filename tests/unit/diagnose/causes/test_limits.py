"""Limits, capabilities, ports, leftovers, clusters, ends from outside, and what is foreseen of a command."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.facts import UNLIMITED, Limit
from firstlight.core.gap import Gap
from firstlight.core.host import Coverage
from firstlight.core.look import Leftover, Listener
from firstlight.core.vocabulary import GapReason, Motion, Phase
from firstlight.testing.bundles import (
    FIRST_RANK,
    GB,
    Moves,
    bundle,
    device,
    ended,
    front,
    gpus,
    host,
    line,
    ordinary_cgroup,
    ordinary_facts,
    place,
    rank,
)

REG = line("NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", level="WARNING")
FILES = line("OSError: [Errno 24] Too many open files", level="ERROR")
THREADS = line("RuntimeError: can't start new thread", level="ERROR")
UNSEEN = Gap(what="limits", reason=GapReason.NO_PERMISSION)


def _limited(log=(), **facts: object) -> Bundle:
    return bundle(front(), rank(0, facts=ordinary_facts(**{"capabilities": (), **facts})), log=log)


def test_a_refusal_together_with_its_limit_decides(judge):
    assert judge(_limited([REG], memlock=8 << 20), "ulimit").word == "established"
    assert judge(_limited([FILES], nofile=1024), "ulimit").word == "established"
    assert judge(_limited([THREADS], nproc=1), "ulimit").word == "established"


def test_either_alone_does_not(judge):
    assert judge(_limited([REG]), "ulimit").finding is None
    assert judge(_limited([REG], memlock=8 << 20, capabilities=("ipc_lock",)), "ulimit").word == "supported"
    assert judge(_limited(memlock=8 << 20, nofile=1024), "ulimit").finding is None
    assert judge(_limited([FILES], nofile=1_048_576), "ulimit").finding is None
    watches = line("inotify_init: Too many open files", level="ERROR")
    assert judge(_limited([watches], nofile=1024), "ulimit").finding is None


def test_limits_that_could_not_be_seen_are_told(judge):
    made = bundle(front(), rank(0, facts=replace(ordinary_facts(), limits=UNSEEN)), log=[REG])
    said = judge(made, "ulimit")
    assert said.word == "supported"
    assert any("no permission" in unseen for unseen in said.finding.unseen)


def test_a_billion_descriptors_are_closed_one_by_one(judge):
    closes = ["_execute_child (subprocess.py:1800)", "Popen (subprocess.py:1000)"]
    busy = rank(0, stack=closes, state="R", cpu=1.0, facts=ordinary_facts(nofile=1 << 30))
    assert judge(bundle(front(), busy), "ulimit").word == "established"
    usual = rank(0, stack=closes, state="R", cpu=1.0, facts=ordinary_facts())
    assert judge(bundle(front(), usual), "ulimit").finding is None


def test_limits_are_foreseen(judge):
    low = host(
        limits=(Limit(name="nofile", soft=256, hard=1024), Limit(name="memlock", soft=0, hard=65_536)),
        devices=("/dev/infiniband",),
    )
    said = judge(bundle(host=low), "ulimit", before=True)
    assert len(said.finding.evidence) == 2
    high = host(
        limits=(Limit(name="nofile", soft=1024, hard=524_288), Limit(name="memlock", soft=0, hard=UNLIMITED)),
        devices=(),
    )
    assert judge(bundle(host=high), "ulimit", before=True).finding is None


def test_forks_that_a_control_group_refused(judge):
    full = ordinary_cgroup(pids=1000, pids_max=1000, pids_refused=3)
    assert judge(_limited([THREADS], cgroup=full), "cgroup_pids").word == "established"
    assert judge(_limited(cgroup=full), "cgroup_pids").word == "supported"
    assert judge(_limited([THREADS]), "cgroup_pids").word == "excluded"
    few = host(cgroup=ordinary_cgroup(pids_max=512))
    assert judge(bundle(host=few), "cgroup_pids", before=True).word == "supported"


def test_a_forbidden_call_together_with_its_capability_decides(judge):
    refused = line("RuntimeError: pidfd_getfd(5) failed with errno 1: Operation not permitted", level="ERROR")
    said = judge(_limited([refused]), "container_caps")
    assert said.word == "established"
    assert any("--cap-add=SYS_PTRACE" in advice for advice in said.finding.advice)
    assert judge(_limited([refused], capabilities=("sys_ptrace",)), "container_caps").word == "supported"
    assert judge(_limited(), "container_caps").finding is None


@pytest.mark.parametrize(
    "text",
    [
        "PermissionError: [Errno 13] Permission denied: '/models/config.json'",
        "mbind: Operation not permitted",
        "py-spy: Error: Permission denied (os error 13): ptrace",
    ],
)
def test_a_refusal_that_does_no_harm_is_none(judge, text):
    assert judge(_limited([line(text, level="ERROR")]), "container_caps").finding is None


WAITING = line("Waiting for creating a placement group of specs for 40 seconds. specs=[{'GPU': 1.0}]")
RAY = ["_wait_until_pg_ready (vllm/executor/ray_utils.py:180)"]


def test_resources_that_a_cluster_has_not(judge):
    assert judge(bundle(front(stack=RAY), log=[WAITING]), "resource_wait").word == "established"
    assert judge(bundle(front(), log=[WAITING]), "resource_wait").word == "supported"
    assert (
        judge(bundle(front(), log=["No current placement group found. Creating one."]), "resource_wait").finding
        is None
    )


def _ended(signal: int, *, motion: Motion = Motion.MOVING, oom: bool = False, log=(), **more: object) -> Bundle:
    gone = (ended(front(), signal=signal, oom=oom, ago_s=2), ended(rank(0), signal=9, ago_s=1))
    told = {"phase": Phase.WEIGHTS, **more}
    return replace(bundle(exits=gone, motion=motion, log=log, **told), looks=())


def test_an_end_from_outside_counts_with_the_movement_before(judge):
    assert judge(_ended(15), "probe_kill").word == "established"
    assert judge(_ended(15, motion=Motion.STALLED), "probe_kill").finding is None
    assert judge(_ended(2), "probe_kill").finding is None
    assert judge(_ended(9), "probe_kill").word == "supported"
    assert judge(_ended(9, oom=True), "probe_kill").finding is None
    assert judge(_ended(15, phase=Phase.SERVING), "probe_kill").finding is None


def test_a_shells_word_for_a_kill_counts(judge):
    told = replace(_ended(9), exits=(ended(front(), code=137, ago_s=2),))
    assert judge(told, "probe_kill").word == "supported"


def test_a_counter_that_rose_until_the_end_is_movement(judge):
    rose = [line(f"{n}/46 shards", ago_s=90 - n) for n in (10, 40)]
    assert judge(_ended(15, motion=Motion.STALLED, log=rose), "probe_kill").word == "established"
    long_ago = [line(f"{n}/46 shards", ago_s=5000 - n) for n in (10, 40)]
    assert judge(_ended(15, motion=Motion.STALLED, log=long_ago), "probe_kill").finding is None


def test_a_rank_that_ended_first_is_no_end_from_outside(judge):
    gone = (ended(rank(0), signal=11, ago_s=9), ended(front(), signal=15, ago_s=2))
    assert judge(bundle(exits=gone, motion=Motion.MOVING, phase=Phase.WEIGHTS), "probe_kill").finding is None


def test_somebody_who_gave_up_while_it_moved(judge):
    gave_up = [line("timed out waiting for llama runner to start")]
    moves = rank(0, moves=Moves(read_bytes=5 * GB))
    assert judge(bundle(front(), moves, log=gave_up), "probe_kill").word == "supported"
    assert judge(bundle(front(), rank(0), log=gave_up), "probe_kill").finding is None


LEFT = Leftover(pid=2201, name="VLLM::Worker_TP0", state="D", age_s=7200.0, holds=("port 8000", "GPU 0"))
IN_USE = line("OSError: [Errno 98] Address already in use: ('0.0.0.0', 8000)", level="ERROR")


def test_a_leftover_that_has_what_is_needed(judge):
    said = judge(bundle(front(), leftovers=[LEFT], log=[IN_USE]), "leftover_process")
    assert said.word == "supported"
    assert "Address already in use" in said.evidence
    assert said.finding.pids == (2201,)
    on_its_gpu = bundle(front(), rank(0, files=[device("/dev/nvidia0")]), leftovers=[LEFT])
    assert judge(on_its_gpu, "leftover_process").word == "supported"
    elsewhere = bundle(front(), rank(0), leftovers=[LEFT], environment={"CUDA_VISIBLE_DEVICES": "3"})
    assert judge(elsewhere, "leftover_process").finding is None
    assert (
        judge(bundle(front(), leftovers=[replace(LEFT, holds=())], log=[IN_USE]), "leftover_process").finding is None
    )
    oom = line("ValueError: Free memory on device (2/80 GiB) is less than desired", level="ERROR")
    full = bundle(
        front(),
        rank(0, files=[device("/dev/nvidia0")]),
        leftovers=[LEFT],
        gpus=gpus(1, memory_used_bytes=70 * GB),
        log=[oom],
    )
    assert judge(full, "leftover_process").word == "established"


def test_leftovers_are_foreseen(judge):
    assert judge(bundle(leftovers=[LEFT]), "leftover_process", before=True).word == "supported"
    unseen = Gap(what="processes", reason=GapReason.TIMED_OUT)
    assert judge(bundle(leftovers=unseen), "leftover_process", before=True).word == "not examined"


def test_a_bar_that_stood_at_its_last_state_for_less_than_its_pace_was_moving(judge):
    bar = "Loading safetensors checkpoint shards:  43% Completed | 13/30 [04:02<05:17, 18.6s/it]"
    recent = _ended(15, motion=Motion.STALLED, log=[line(bar, ago_s=50)])
    assert judge(recent, "probe_kill").word == "established"
    stood = _ended(15, motion=Motion.STALLED, log=[line(bar, ago_s=400)])
    assert judge(stood, "probe_kill").finding is None
    full = _ended(15, motion=Motion.STALLED, log=[line("100% | 30/30 [09:02<00:00, 18.6s/it]", ago_s=50)])
    assert judge(full, "probe_kill").finding is None


def test_vllm_says_that_it_was_asked_to_end_and_ends_as_if_interrupted(judge):
    asked = line("KeyboardInterrupt: terminated", ago_s=2)
    assert judge(_ended(2, log=[asked]), "probe_kill").word == "established"
    by_hand = line("KeyboardInterrupt", ago_s=2)
    assert judge(_ended(2, log=[by_hand]), "probe_kill").finding is None


def test_a_listener_on_another_port_is_in_nobodys_way(judge):
    other = [Listener(host="10.0.0.1", port=6379, pid=77)]
    assert judge(bundle(front(), listeners=other, port=8000), "port_in_use").finding is None


def test_a_port_that_any_rank_is_refused(judge):
    other = line("zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.2:41877')", level="ERROR")
    assert judge(bundle(front(), log=[other]), "port_in_use").word == "supported"
    assert judge(bundle(front(), log=[IN_USE], leftovers=[LEFT]), "port_in_use").word == "established"
    taken = [Listener(host="0.0.0.0", port=8000, pid=77)]
    assert judge(bundle(front(), listeners=taken), "port_in_use").word == "established"
    assert judge(bundle(front()), "port_in_use").finding is None
    another = line("Port 8000 is already in use, trying port 8001", level="WARNING")
    assert judge(bundle(front(), log=[another]), "port_in_use").finding is None
    assert judge(bundle(listeners=taken), "port_in_use", before=True).word == "established"


SPECULATES = {"speculative-algorithm": "EAGLE3", "speculative-num-steps": "3"}


@pytest.mark.parametrize(
    ("engine", "version", "options", "word"),
    [
        ("sglang", "0.5.23", {"cuda-graph-max-bs": "8"}, "established"),
        ("sglang", "0.5.9", {"cuda-graph-max-bs": "8"}, "not seen"),
        ("sglang", "", {"cuda-graph-max-bs": "8"}, "not seen"),
        ("vllm", "0.5.23", {"cuda-graph-max-bs": "8"}, "not seen"),
        ("sglang", "0.5.23", SPECULATES, "established"),
        ("sglang", "0.5.23", {**SPECULATES, "speculative-algorithm": "NGRAM"}, "not seen"),
        (
            "sglang",
            "0.5.23",
            {**SPECULATES, "speculative-eagle-topk": "1", "speculative-num-draft-tokens": "4"},
            "not seen",
        ),
        ("sglang", "0.5.9", {"enable-deterministic-inference": (), "attention-backend": "torch_native"}, "supported"),
        (
            "vllm",
            "0.32.0",
            {"speculative-config": '{"method": "extract_hidden_states", "num_speculative_tokens": 3}'},
            "established",
        ),
        ("vllm", "0.32.0", {"speculative-config": "[[[[" * 9000}, "not seen"),
        ("vllm", "nonsense", {"attention-backend": "X"}, "not seen"),
    ],
)
def test_options_that_an_engine_refuses(judge, engine, version, options, word):
    made = bundle(engine=engine, version=version, options=options)
    assert judge(made, "option_conflict", before=True).word == word


def test_a_variable_without_effect_is_told(judge):
    made = bundle(version="0.20.0", environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    assert judge(made, "option_conflict", before=True).word == "supported"


def test_kernels_for_other_gpus(judge):
    covered = Coverage(library="/v/flash_kernels.so", machine_code=("80", "90"), ptx=(), missing=("120",))
    bare = host(coverage=(covered,))
    assert judge(bundle(host=bare), "no_machine_code", before=True).word == "supported"
    told = line("CUDA error: no kernel image is available for execution on the device", level="ERROR")
    assert judge(bundle(front(), rank(0), host=bare, log=[told]), "no_machine_code").word == "established"
    assert judge(bundle(front(), rank(0), log=[told]), "no_machine_code").finding is None
    assert judge(bundle(front(), rank(0), host=bare), "no_machine_code").finding is None
    from_ptx = host(coverage=(replace(covered, runs_from_ptx=True),))
    assert judge(bundle(host=from_ptx), "no_machine_code", before=True).finding is None


def test_whoever_holds_a_port_is_named_first(judge):
    said = judge(bundle(front(), log=[IN_USE], leftovers=[LEFT]), "port_in_use")
    assert said.finding.pids[0] == 2201
    assert FIRST_RANK not in said.finding.pids


def test_a_leftover_that_listens_may_be_a_server_and_is_not_to_be_killed(judge):
    listens = replace(LEFT, holds=("GPU 0", "port 8000"))
    advice = " ".join(judge(bundle(leftovers=[listens]), "leftover_process", before=True).finding.advice)
    assert "see whether it answers" in advice
    assert "8000" in advice
    assert "kill" not in advice
    holds = replace(LEFT, holds=("GPU 0",))
    assert "kill" in " ".join(judge(bundle(leftovers=[holds]), "leftover_process", before=True).finding.advice)


def test_a_command_that_cannot_be_run_is_foreseen(judge):
    refused = replace(bundle(), refused="cannot run 'vlm': there is no such command", command=("vlm", "serve"))
    said = judge(refused, "not_startable", before=True)
    assert said.word == "established"
    assert "vlm" in said.title
    assert judge(bundle(), "not_startable", before=True).finding is None


@pytest.mark.parametrize(
    ("path", "there", "program", "word"),
    [
        ("/models/llm", False, "vllm", "established"),
        ("/models/llm", False, "/venv/bin/python3.12", "established"),
        ("/models/llm", False, "docker", "supported"),
        ("/models/llm", True, "vllm", "not seen"),
        ("/root/.cache/huggingface/hub/models--a--b", False, "vllm", "not seen"),
    ],
)
def test_a_path_without_a_model_is_foreseen(judge, path: str, there: bool, program: str, word: str):
    weights = replace(place("weights", path), there=there)
    made = replace(bundle(host=host(places=(weights,))), command=(program, "serve", path))
    assert judge(made, "model_not_found", before=True).word == word


@pytest.mark.parametrize(
    ("more", "seen", "word"),
    [
        ({"engine": "sglang", "ranks": 8}, 4, "established"),
        ({"ranks": 8, "options": (("distributed-executor-backend", ("mp",)),)}, 4, "established"),
        ({"ranks": 8}, 4, "supported"),
        ({"engine": "sglang", "ranks": 8, "nodes": 2}, 4, "supported"),
        ({"engine": "sglang", "ranks": 4}, 4, "not seen"),
        ({"engine": "sglang", "ranks": 2, "environment": (("CUDA_VISIBLE_DEVICES", "3"),)}, 4, "established"),
        ({"engine": "sglang", "ranks": 8, "environment": (("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2"),)}, 4, "not seen"),
        ({"engine": "sglang", "ranks": 8, "options": (("device", ("cpu",)),)}, 4, "not seen"),
        ({"engine": "generic", "ranks": 8}, 4, "not seen"),
        ({"engine": "sglang", "ranks": 8}, 0, "supported"),
        ({"engine": "sglang", "ranks": 1}, 0, "not seen"),
        ({"ranks": 8, "environment": (("VLLM_CPU_KVCACHE_SPACE", "40"),)}, 0, "not seen"),
    ],
)
def test_fewer_gpus_than_ranks_are_foreseen(judge, more: dict[str, object], seen: int, word: str):
    made = replace(bundle(gpus=gpus(seen) if seen else ()), **{"engine": "vllm", "environment": (), **more})
    assert judge(made, "too_few_gpus", before=True).word == word
