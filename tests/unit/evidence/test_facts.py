"""Facts of real processes: limits, rights, forks, environment; and of processes that go away."""

import os
import resource
import signal
import subprocess

import pytest

from firstlight import procfs
from firstlight.clock import SystemClock
from firstlight.core.facts import UNLIMITED
from firstlight.core.gap import Gap
from firstlight.core.process import Process
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.facts import capabilities, environ_after_exec, facts_of, redacted


@pytest.fixture
def start(programs):
    """Run a program in an environment of its own, under a shell that sets limits first."""

    def run(before: str, *argv: str, env: dict[str, str] | None = None) -> Process:
        words = [f"{name}={value}" for name, value in (env or {}).items()]
        return programs.command(
            ["env", *words, "bash", "-c", f'{before}; echo ready; exec "$@"', "-", *argv], ready=True
        )

    return run


def test_limits_are_those_of_the_process_and_not_ours(start) -> None:
    facts = facts_of(start("ulimit -n 123; ulimit -c 0", "sleep", "60"))
    nofile = facts.limit("nofile")
    assert nofile is not None
    assert (nofile.soft, nofile.hard) == (123, 123)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 123
    assert facts.limit("no such limit") is None


def test_no_limit_is_said_as_such() -> None:
    facts = facts_of(this_process())
    cpu = facts.limit("cpu")
    assert cpu is not None
    assert cpu.soft == UNLIMITED
    assert len(facts.limits) == 16


def this_process() -> Process:
    stat = procfs.stat(os.getpid())
    return Process(id=stat.id, ppid=stat.ppid, name=stat.comm, cmdline=())


def test_rights_place_and_memory_are_read_from_the_kernel() -> None:
    facts = facts_of(this_process())
    rows = procfs.status(os.getpid())
    assert facts.capabilities == capabilities(int(rows["CapEff"], 16))
    assert facts.seccomp == int(rows["Seccomp"])
    assert facts.cpus_allowed == rows["Cpus_allowed_list"]
    assert facts.mems_allowed == rows["Mems_allowed_list"]
    assert facts.locked_bytes == facts.swapped_bytes == 0


def test_locked_memory_is_counted(programs) -> None:
    facts = facts_of(
        programs.python(
            """
            import ctypes, mmap, sys
            area = mmap.mmap(-1, 65536)
            at = ctypes.addressof(ctypes.c_char.from_buffer(area))
            assert ctypes.CDLL(None).mlock(ctypes.c_void_p(at), 65536) == 0
            print("ready", flush=True)
            import time; time.sleep(60)
            """
        )
    )
    assert facts.locked_bytes == 65536


def test_capabilities_have_names_and_new_ones_a_number() -> None:
    assert capabilities(1 << 19 | 1 << 14 | 1 << 23) == ("ipc_lock", "sys_ptrace", "sys_nice")
    assert capabilities(1 << 50) == ("50",)
    assert capabilities(0) == ()


def test_a_fork_is_told_from_a_program_that_was_started(programs) -> None:
    parent = programs.python(
        """
        import os, subprocess, threading, time
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        child = os.fork()
        if not child:
            time.sleep(60)
        started = subprocess.Popen(["sleep", "60"])
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    children = {one.name: facts_of(one) for one in programs.children(parent)}
    assert not facts_of(parent).forked
    assert not children.pop("sleep").forked
    (fork,) = children.values()
    assert fork.forked
    assert fork.parent_threads == 2


def test_the_environment_is_that_of_the_process_without_its_secrets(start) -> None:
    process = start(
        ":",
        "sleep",
        "60",
        env={
            "NCCL_DEBUG": "WARN",
            "HF_TOKEN": "hf_abcdefghijklmnopqrstuv",
            "MY_OWN": "private",
            "VLLM_X": "y" * 9000,
        },
    )
    facts = facts_of(process)
    assert facts.variable("NCCL_DEBUG") == "WARN"
    assert facts.variable("HF_TOKEN") == facts.variable("MY_OWN") == "***"
    assert len(facts.variable("VLLM_X")) == 4096
    assert facts.variable("NOT_SET") == ""


def test_a_process_in_the_middle_of_exec_is_not_taken_for_one_without_an_environment(start) -> None:
    for _ in range(30):
        process = start(":", "sleep", "60", env={"NCCL_DEBUG": "WARN", "VLLM_X": "y" * 9000})
        assert environ_after_exec(process.id.pid, SystemClock())["NCCL_DEBUG"] == "WARN"


def test_a_flood_of_variables_is_cut() -> None:
    assert len(redacted({f"V{n}": "x" for n in range(10_000)})) == 2000


def test_a_process_that_is_gone_is_all_gaps(programs) -> None:
    process = programs.command(["sleep", "60"], ready=False)
    programs.kill(process)
    facts = facts_of(process)
    for seen in (facts.limits, facts.capabilities, facts.seccomp, facts.environment, facts.libraries):
        assert isinstance(seen, Gap)
        assert seen.reason is GapReason.VANISHED
    assert facts.limit("nofile") is None
    assert facts.variable("PATH") == ""


def test_another_process_under_the_same_pid_is_not_described(programs) -> None:
    process = programs.command(["sleep", "60"], ready=False)
    stranger = Process(
        id=type(process.id)(pid=process.id.pid, started=process.id.started - 1), ppid=1, name="x", cmdline=()
    )
    limits = facts_of(stranger).limits
    assert isinstance(limits, Gap)
    assert limits.reason is GapReason.VANISHED


def test_a_zombie_has_what_the_kernel_still_knows(programs) -> None:
    child = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        facts = facts_of(programs.process(child.pid))
        assert facts.locked_bytes == 0
        assert facts.libraries == ()
        assert isinstance(facts.capabilities, tuple)
    finally:
        child.wait()


def test_a_stopped_process_is_described_like_any_other(programs) -> None:
    process = programs.python("import sys, time; print('ready', flush=True); time.sleep(60)")
    os.kill(process.id.pid, signal.SIGSTOP)
    facts = facts_of(process)
    assert facts.limit("nofile") is not None
    assert isinstance(facts.environment, tuple)
    assert isinstance(facts.libraries, tuple)


def test_what_another_user_may_not_see_is_a_gap_for_each_fact(programs, as_nobody) -> None:
    process = programs.python("import sys, time; print('ready', flush=True); time.sleep(60)")

    def refused() -> bool:
        facts = facts_of(process)
        gaps = [one for one in (facts.environment, facts.libraries) if isinstance(one, Gap)]
        return [one.reason for one in gaps] == [GapReason.NO_PERMISSION] * 2 and isinstance(facts.seccomp, int)

    assert as_nobody(refused)
