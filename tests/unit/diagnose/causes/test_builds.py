"""Compilers that work, that fail, and locks that are left or held."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.look import Lock
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    FIRST_RANK,
    bundle,
    compiler,
    ended,
    file,
    folder,
    front,
    host,
    line,
    place,
    rank,
)

BATON = [
    "wait (torch/utils/file_baton.py:49): time.sleep(self.wait_seconds)",
    "load (torch/utils/cpp_extension.py:1680)",
]
FILELOCK = ["acquire (filelock/_api.py:340)", "build_and_load (flashinfer/jit/core.py:230)"]
SLEEPS = "clock_nanosleep(0x1, 0x0)"
LEFT = Lock(kind="file", path="/c/ext/fused/lock", holder=0, age_s=9e6)
TRITON = ["make_cubin (triton/backends/nvidia/compiler.py:430)", "compile (triton/compiler/compiler.py:300)"]


def test_a_compiler_that_computes_is_a_slow_build(judge):
    said = judge(bundle(front(), rank(0, syscall="wait4(0x1324)"), compiler("cicc", cpu=0.9)), "slow_jit")
    assert said.word == "established"
    assert "cicc" in said.evidence
    assert "90%" in said.evidence


def test_a_compiler_that_is_stuck_is_none(judge):
    assert judge(bundle(front(), rank(0), compiler("cicc", cpu=0, state="S")), "slow_jit").word == "excluded"


def test_a_busy_thread_in_a_compiler_supports_and_a_growing_cache_decides(judge):
    busy = rank(0, stack=TRITON, state="R", cpu=1.0)
    assert judge(bundle(front(), busy), "slow_jit").word == "supported"
    cache = [folder("compile_cache", "/c/vllm", bytes_=9_000_000, grows=4096)]
    assert judge(bundle(front(), busy, folders=cache), "slow_jit").word == "established"


@pytest.mark.parametrize(
    "wrapper",
    [
        "compile_wrapper (torch/_dynamo/eval_frame.py:830)",
        "_support_torch_compile.<locals>.__call__ (vllm/compilation/decorators.py:529)",
    ],
)
def test_a_compiled_model_that_runs_is_no_compiler(judge, wrapper):
    runs = [wrapper, "forward (vllm/model_executor/models/llama.py:5)"]
    assert judge(bundle(front(), rank(0, stack=runs, state="R", cpu=1.0)), "slow_jit").finding is None


def test_a_cache_that_grows_alone_says_nothing(judge):
    cache = [folder("compile_cache", "/c/vllm", bytes_=9_000_000, grows=4096)]
    assert judge(bundle(front(), rank(0), folders=cache), "slow_jit").finding is None


def _short_lived(log: list) -> Bundle:
    made = bundle(front(), rank(0, syscall="wait4(0x1)"), compiler("ptxas", 9), log=log)
    first, last = made.looks
    others = tuple(
        replace(one, process=replace(one.process, id=replace(one.process.id, pid=4999, started=4999)))
        if one.process.name == "ptxas"
        else one
        for one in first.processes
    )
    return replace(made, looks=(replace(first, processes=others), last))


def test_a_build_that_is_told_to_fail_and_whose_compilers_do_not_last_fails(judge):
    failed = line("ninja: build stopped: subcommand failed.", level="ERROR", ago_s=60)
    made = _short_lived([failed])
    assert judge(made, "jit_build_failure").word == "established"
    assert judge(made, "slow_jit").finding is None


def test_the_log_alone_supports_a_failed_build_and_lasting_compilers_do_not(judge):
    failed = line("ninja: build stopped: subcommand failed.", level="ERROR", ago_s=60)
    assert judge(bundle(front(), rank(0), compiler("ptxas"), log=[failed]), "jit_build_failure").word == "supported"
    assert judge(bundle(front(), rank(0), compiler("ptxas")), "jit_build_failure").word == "not seen"


def test_one_compiler_that_failed_was_a_question(judge):
    asked = ended(compiler("nvcc", 1), code=1)
    again = ended(compiler("nvcc", 2), code=1)
    assert judge(bundle(front(), rank(0), exits=(asked,)), "jit_build_failure").word == "not seen"
    assert judge(bundle(front(), rank(0), exits=(asked, again)), "jit_build_failure").word == "supported"


def test_an_old_lock_file_that_is_polled_is_stale(judge):
    made = bundle(front(), rank(0, stack=BATON, syscall=SLEEPS), locks=[LEFT])
    said = judge(made, "stale_jit_lock")
    assert said.word == "established"
    assert any("rm /c/ext/fused/lock" in advice for advice in said.finding.advice)


@pytest.mark.parametrize(
    "lock", [replace(LEFT, age_s=1.0), replace(LEFT, filesystem="nfs4")], ids=["young", "on NFS"]
)
def test_a_young_lock_file_or_one_that_is_shared_may_have_a_builder(judge, lock):
    assert (
        judge(bundle(front(), rank(0, stack=BATON, syscall=SLEEPS), locks=[lock]), "stale_jit_lock").word
        == "supported"
    )


def test_a_compiler_at_work_leaves_it_open(judge):
    made = bundle(front(), rank(0, stack=BATON, syscall=SLEEPS), compiler(), locks=[LEFT])
    assert judge(made, "stale_jit_lock").word == "open"


def test_a_lock_that_an_idle_process_holds_is_told_with_its_holder(judge):
    path = "/c/flashinfer/gemm.lock"
    held = Lock(kind="flock", path=path, holder=FIRST_RANK + 1)
    waits = rank(0, stack=FILELOCK, syscall=SLEEPS, files=[file(path)])
    idle = rank(1, stack=["all_reduce (vllm/pynccl.py:168)"], files=[file(path)])
    said = judge(bundle(front(), waits, idle, locks=[held]), "stale_jit_lock")
    assert said.word == "established"
    assert said.finding.pids[0] == FIRST_RANK + 1
    assert "holds without building" in said.title
    works = rank(1, stack=TRITON, state="R", cpu=1.0, files=[file(path)])
    assert judge(bundle(front(), waits, works, locks=[held]), "stale_jit_lock").finding is None


def test_inductors_lock_is_told_from_others_by_its_name(judge):
    """filelock has no file open between two tries: whose frames ask for it tells what it may be called."""
    path = "/c/inductor_cache/locks/c73ehsvuqgg4ajaapbuvlpudb53lhe3dlyle6lngn4oa7lkwtgjf.lock"
    ours = Lock(kind="flock", path=path, holder=4242, holder_name="VLLM::Worker")
    foreign = Lock(kind="flock", path="/tmp/other/engine.lock", holder=4243, holder_name="other")
    stack = [
        "_poll_until_acquired (filelock/_core/_acquire.py:177)",
        "check_build (torch/_inductor/cpu_vec_isa.py:189)",
    ]
    said = judge(bundle(front(), rank(0, stack=stack, syscall=SLEEPS), locks=[foreign, ours]), "stale_jit_lock")
    assert said.word == "established"
    assert path in said.title
    assert said.finding.pids[0] == 4242
    unknown = rank(0, stack=FILELOCK, syscall=SLEEPS)
    assert judge(bundle(front(), unknown, locks=[foreign, ours]), "stale_jit_lock").word == "supported"


def test_a_lock_on_nfs_that_nobody_here_holds_is_supported(judge):
    path = "/home/e/.cache/flashinfer/gemm.lock"
    waits = rank(0, stack=FILELOCK, syscall=SLEEPS, files=[file(path, filesystem="nfs4")])
    assert judge(bundle(front(), waits), "stale_jit_lock").word == "supported"
    local = rank(0, stack=FILELOCK, syscall=SLEEPS, files=[file(path)])
    assert judge(bundle(front(), local), "stale_jit_lock").finding is None


def test_a_lock_file_from_before_is_foreseen(judge):
    made = replace(bundle(front(), locks=[LEFT]), looks=())
    assert judge(made, "stale_jit_lock", before=True).finding is None
    seen = judge(bundle(locks=[LEFT]), "stale_jit_lock", before=True)
    assert seen.word == "supported"
    assert "left from before" in seen.title


def test_an_error_that_names_a_file_in_a_cache_on_nfs_decides(judge):
    shared = host(places=(place("compile_cache", "/mnt/home/.triton/cache", filesystem="nfs4"),))
    said = line("OSError: [Errno 116] Stale file handle: '/mnt/home/.triton/cache/ab/k.cubin'", level="ERROR")
    assert judge(bundle(front(), rank(0), host=shared, log=[said]), "nfs_cache").word == "established"
    elsewhere = line("OSError: [Errno 116] Stale file handle: '/mnt/data/x'", level="ERROR")
    assert judge(bundle(front(), rank(0), host=shared, log=[elsewhere]), "nfs_cache").finding is None
    assert judge(bundle(front(), rank(0), log=[said]), "nfs_cache").finding is None
    assert judge(bundle(host=shared), "nfs_cache", before=True).word == "supported"


def test_a_phase_is_no_condition_of_a_build(judge):
    made = bundle(front(), rank(0), compiler("nvcc", cpu=1.0), phase=Phase.SERVING)
    assert judge(made, "slow_jit").word == "established"
