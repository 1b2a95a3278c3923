"""docs/causes/zoo.md as text: which program stands for which fault, and what must be said of it.

`python -m tests.live.zoo_page` writes it anew.
"""

import ast
from importlib.util import find_spec
from pathlib import Path

from firstlight.testing.scenarios import STALLS, Scenario
from firstlight.testing.zoo import FAULTS, Fault

PAGE = Path(__file__).parents[2] / "docs" / "causes" / "zoo.md"

_HEAD = """# The fault zoo
<!-- Written by `python -m tests.live.zoo_page`; do not edit. -->

Small real programs, each stuck (or slow) for one planted reason. They are started, looked at and weighed by the tests
in `tests/live`: the right process and the right cause must be told, nothing else may be established, and every form
of the report must show the observation that decides. Where a cause cannot be known from outside, the answer must be
*unknown*. {count} of them; those with *up* run under `firstlight up`, the others are looked at once.

`firstlight.testing.zoo` and `firstlight.testing.scenarios` are the tables, `python -m firstlight.testing.faults.NAME`
(`programs.NAME`) runs one by hand.
"""

KINDS: dict[str, tuple[str, ...]] = {
    "locks within a process": (
        "mutex_inversion",
        "mutex_inversion_hold-gil",
        "mutex_self",
        "lock_inversion",
        "gil_held",
        "fork_in_threads",
        "condition_never_signalled",
        "thread_never_ends",
    ),
    "locks on files": ("flock_held", "download_lock", "stale_extension_lock_folder"),
    "compilers": ("builds_in_folder", "builds_in_folder_fails"),
    "limits of the machine": ("shm_full", "pids_limit", "open_files"),
    "ranks that are gone or held": (
        "oom_in_cgroup",
        "rank_dies_how_killed",
        "rank_dies_how_traceback",
        "rank_dies_how_exit",
        "rank_dies_serving",
        "spinning_rank",
        "pipe_child_died",
        "sigstop_worker",
        "traced",
        "vfork_child",
    ),
    "ranks that do not meet": (
        "rendezvous_missing_rank",
        "skipped_barrier",
        "mismatched_collective",
        "mismatched_collective_how_group",
        "mismatched_collective_how_receive",
        "uneven_autotune",
        "missing_main_guard",
    ),
    "pipes, sockets, semaphores, messages": (
        "full_pipe",
        "queue_never_drained",
        "full_socket",
        "nobody_accepts",
        "semaphore_never_posted",
        "zmq_no_reply",
    ),
    "the network": (
        "master_black_hole",
        "nobody_listens",
        "nobody_listens_ipv6",
        "unresolvable_host",
        "proxy_swallows_warmup",
        "stuck_download",
        "leftover_holds_port",
        "port_taken_hang",
    ),
    "storage and memory": ("fifo_weights_folder", "polls_for_file", "slow_weights_loader", "rereads_loader"),
    "libraries": ("preload_blocks",),
    "servers that look well": ("never_generates", "stuck_in_flight", "waiting_heartbeat", "big_log_stall"),
}
"""Every fault and every stall, once."""

SAID_OF_STALLS = {
    "sigstop_worker": "stopped_process established",
    "rendezvous_missing_rank": "the rank that is not there",
    "skipped_barrier": "the rank that went on",
    "lock_inversion": "deadlock",
    "queue_never_drained": "the worker that cannot end",
    "pipe_child_died": "rank_died or dead_pipe_peer",
    "fifo_weights_folder": "fifo_without_writer established",
    "stale_extension_lock_folder": "stale_jit_lock",
    "polls_for_file": "a stall, as soon as any other",
    "spinning_rank": "rank_died",
    "never_generates": "the request that gets no answer",
    "waiting_heartbeat": "a stall, whatever its log repeats",
    "big_log_stall": "a stall, and all of its log",
    "rank_dies_how_traceback": "rank_died, and the first error",
    "rank_dies_how_killed": "the signal",
    "rank_dies_how_exit": "rank_died, with code 0",
    "rank_dies_serving": "rank_died",
    "stuck_in_flight": "the request that never comes back",
    "port_taken_hang": "port_in_use",
    "oom_in_cgroup": "killed by the kernel because memory ran out",
}
_WATCHED_FAULTS = ("oom_in_cgroup",)
"""Faults that only a watcher sees, in tests of their own."""

_ELSEWHERE = """
Elsewhere: real vLLM servers are stopped in each of their phases in `tests/engines`; options that conflict are found
by `firstlight check` and `firstlight isolate`, in their own tests. Without a swap device pages of the server itself
cannot be swapped; `rereads_loader` shows the same with pages of its weights, which its control group drives out.
Ranks of gloo that send other shapes end with an error at once; for NCCL the flight recorder's dumps decide, in the
tests of causes.
"""


def names() -> dict[str, Fault | Scenario]:
    """Every fault and every stall by its name."""
    return {**{fault.name: fault for fault in FAULTS}, **{stall.name: stall for stall in STALLS}}


def page() -> str:
    """The whole page."""
    rows = [row for kind, members in KINDS.items() for row in _table(kind, members)]
    return "\n".join([_HEAD.format(count=sum(map(len, KINDS.values()))), *rows, _ELSEWHERE.strip(), ""])


def _table(kind: str, members: tuple[str, ...]) -> list[str]:
    head = ("| program | what happens | expected |", "|---|---|---|")
    return [f"## {kind.capitalize()}", "", *head, *map(_row, members), ""]


def _row(name: str) -> str:
    if name in _WATCHED_FAULTS:
        return f"| {name} (up) | {_about(f'faults.{name}')} | {SAID_OF_STALLS[name]} |"
    one = names()[name]
    if isinstance(one, Scenario):
        return f"| {name} (up) | {_about(f'programs.{one.program}')} | {SAID_OF_STALLS[name]} |"
    said = f"{one.cause} {one.certainty}" if one.cause else "unknown"
    needs = f"; needs {', '.join(one.needs)}" if one.needs else ""
    return f"| {name} | {_about(f'faults.{one.program}')} | {said}{needs} |"


def _about(module: str) -> str:
    """The first paragraph of a program's docstring, in one line."""
    spec = find_spec(f"firstlight.testing.{module}")
    assert spec is not None
    assert spec.origin is not None
    told = ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or ""
    return " ".join(told.split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
