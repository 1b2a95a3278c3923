"""What earlier runs left behind: engine processes that nobody looks after any more, or that are stuck in the kernel.

Price: reads. An orphan has been handed to init, or to somebody else who adopts orphans. Whoever waits uninterruptibly
(state D) counts as stuck only if it has not been on a CPU between two glances: a disk is waited for like that, too.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core import redact
from firstlight.core.gap import Gap
from firstlight.core.look import Leftover
from firstlight.core.words import printable
from firstlight.evidence.workers import Probe
from firstlight.procfs import Stat

LEFTOVERS_MAX = 64
HOLDS_MAX = 16
FDS_MAX = 4096
GLANCES_APART_S = 0.03
WORDS_S = 0.2
HOLDS_S = 0.2
SUSPECTS_MAX = 512
WORDS_CHARACTERS_MAX = 4096
NAME_CHARACTERS_MAX = 120


class _Kind(NamedTuple):
    """A process of an engine, by its command line or title. `child`: it never starts without an engine as parent.
    `weak`: others look like it, so that it counts only with a GPU or shared memory in its hands."""

    pattern: re.Pattern[str]
    child: bool = False
    weak: bool = False


_KINDS = (
    _Kind(re.compile(r"^[\w.-]{1,64}::(EngineCor|Worker|DPCoordi)"), child=True),
    _Kind(re.compile(r"^sglang::(schedul|detoken|data_pa|dp_)"), child=True),
    _Kind(re.compile(r"^fl-(front|worker-\d|template)|-m firstlight\.embedded\.(worker|front)\b"), child=True),
    _Kind(re.compile(r"^ray::(?!IDLE)"), child=True),
    _Kind(re.compile(r"torch/_inductor/compile_worker/"), child=True),
    _Kind(re.compile(r"^(\S*/)?(nvcc|cicc|ptxas|ninja|hipcc)( |$)"), child=True),
    _Kind(re.compile(r"^[\w.-]{1,64}::APIServ|(^|/)vllm (serve|bench|chat)\b|-m vllm\b")),
    _Kind(re.compile(r"^sglang::|(^|/)sglang (serve|launch)\b|-m sglang\b")),
    _Kind(re.compile(r"(^|/)firstlight serve\b|-m firstlight\.embedded\b")),
    _Kind(re.compile(r"(^|/)(trtllm-serve|text-generation-(launcher|server)|llama-server|lmdeploy) ?")),
    _Kind(re.compile(r"multiprocessing[. ]spawn import spawn_main|--multiprocessing-fork"), child=True, weak=True),
    _Kind(re.compile(r"(^|/)torchrun |-m torch\.distributed\.(run|launch)\b"), weak=True),
    _Kind(re.compile(r"^(\S*/)?(nvidia-smi|dcgmi|rocm-smi|amd-smi)( |$)"), weak=True),
)
"""By command line or title; of a process that hangs the kernel may tell only the first 15 characters."""
_ADOPTERS = re.compile(
    r"systemd|init|tini|dumb-init|docker-init|catatonit|s6-svscan|runit|runsvdir|conmon|podman|pause|supervisord"
    r"|containerd-shim.*|firstlightguard"
)
"""Names of programs that take in orphans."""
_GPU = re.compile(r"/dev/nvidia(\d+)$")
_GPU_FILES = re.compile(r"/dev/(nvidia-uvm|nvidiactl|kfd|dri/renderD\d+)$")
_SHM = "/dev/shm/"


def leftovers(own: Collection[int], clock: Clock, deadline: Deadline) -> tuple[Leftover, ...]:
    """Processes that an earlier run left behind or that are stuck in the kernel, without those in `own` and
    firstlight itself. Ends soon after the deadline; never raises."""
    lines = _everybody(deadline)
    family = _family(lines) | set(own)
    suspects = [line for line in lines.values() if line.pid not in family and _suspect(line, lines)][:SUSPECTS_MAX]
    words = _words([*suspects, *(lines[pid] for pid in (1,) if pid in lines)], clock)
    stuck = _stuck([line for line in suspects if line.state == "D" and _kind_by(words[line.pid])], clock)
    kinds = {line: _kind(line, lines, words, line.pid in stuck) for line in suspects}
    ports = _listening() if any(kinds.values()) else {}
    found = (_leftover(line, kind, words[line.pid], ports, clock) for line, kind in kinds.items() if kind)
    kept: list[Leftover] = []
    for one in found:
        if one:
            kept.append(one)
        if deadline.passed or len(kept) >= LEFTOVERS_MAX:
            break
    return tuple(kept)


def _everybody(deadline: Deadline) -> dict[int, Stat]:
    found = {}
    for pid in procfs.pids():
        if deadline.passed:
            break
        with suppress(OSError, ValueError, IndexError):
            found[pid] = procfs.stat(pid)
    return found


def _family(lines: dict[int, Stat]) -> set[int]:
    """firstlight and whoever started it."""
    found, pid = set[int](), os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = lines[pid].ppid if pid in lines else 0
    return found


def _suspect(line: Stat, lines: dict[int, Stat]) -> bool:
    """Whether it is worth a second glance: it hangs, or its parent is no parent of its own."""
    if line.state in "ZX" and line.threads <= 1:
        return False
    return line.state == "D" or line.ppid == 1 or _adopts(line.ppid, lines)


def _adopts(pid: int, lines: dict[int, Stat]) -> bool:
    """Whether a process is known to take in orphans, by its name."""
    return pid in lines and bool(_ADOPTERS.fullmatch(lines[pid].comm))


def _stuck(lines: list[Stat], clock: Clock) -> set[int]:
    """Those that still wait uninterruptibly, and have not been on a CPU in between."""
    if not lines:
        return set()
    before = {line.pid: _switches(line.pid) for line in lines}
    clock.sleep(GLANCES_APART_S)
    return {pid for pid, count in before.items() if count and count == _switches(pid)}


def _switches(pid: int) -> tuple[str, ...]:
    with suppress(OSError):
        rows = procfs.status(pid)
        if rows.get("State", "").startswith("D"):
            return rows.get("voluntary_ctxt_switches", ""), rows.get("nonvoluntary_ctxt_switches", "")
    return ()


def _kind(line: Stat, lines: dict[int, Stat], words: dict[int, str], stuck: bool) -> _Kind | None:
    """What kind of engine process it is, None if it is none or in good hands."""
    kind = _kind_by(words[line.pid])
    if kind is None or stuck:
        return kind
    if line.ppid == 1:  # in a container an engine may be the first process, and then its children are no orphans
        return None if _kind_by(words.get(1, "")) else kind
    return kind if kind.child and _adopts(line.ppid, lines) else None


def _kind_by(words: str) -> _Kind | None:
    return next((one for one in _KINDS if one.pattern.search(words)), None)


def _words(lines: Iterable[Stat], clock: Clock) -> dict[int, str]:
    """Titles or command lines by pid; the name alone where a process that hangs keeps them locked."""
    probes = {line: Probe("command line", partial(procfs.cmdline, line.pid), line.pid) for line in lines}
    deadline = Deadline(clock, WORDS_S, "command lines")
    answers = {line: probe.result(deadline) for line, probe in probes.items()}
    return {
        line.pid: line.comm if isinstance(answer, Gap) or not answer else " ".join(answer)[:WORDS_CHARACTERS_MAX]
        for line, answer in answers.items()
    }


def _leftover(line: Stat, kind: _Kind, words: str, ports: dict[int, int], clock: Clock) -> Leftover | None:
    probe = Probe("what a process holds", partial(_holds, line.pid, line.state, ports), line.pid)
    held = probe.result(Deadline(clock, HOLDS_S, "what a process holds"))
    holds = () if isinstance(held, Gap) else held
    if kind.weak and line.state != "D" and all(one.startswith("port ") for one in holds):
        return None
    return Leftover(
        pid=line.pid,
        name=_name(words),
        state=line.state,
        age_s=max(0.0, clock.boottime() - line.started / procfs.TICKS_PER_S),
        holds=holds,
        unseen=isinstance(held, Gap),
    )


def _name(words: str) -> str:
    """A command line in a few words."""
    shown = redact.command(words.split(" "))
    return printable(" ".join([PurePosixPath(shown[0]).name, *shown[1:5]]), NAME_CHARACTERS_MAX)


def _listening() -> dict[int, int]:
    """Listening TCP ports by the inode of their socket."""
    with suppress(OSError):
        return {row.inode: row.local[1] for row in procfs.tcp_sockets() if row.state == "LISTEN"}
    return {}


def _holds(pid: int, state: str, ports: dict[int, int]) -> tuple[str, ...]:
    """Ports, GPUs and shared memory in a process's hands. Takes its mmap lock, unless it hangs."""
    found = list(_open(pid, ports))
    if state != "D":
        found += sorted(path.removesuffix(" (deleted)") for path in procfs.mapped(pid, _SHM))
    return tuple(printable(one, NAME_CHARACTERS_MAX) for one in dict.fromkeys(found))[:HOLDS_MAX]


def _open(pid: int, ports: dict[int, int]) -> Iterator[str]:
    for count, link in enumerate(procfs.fds(pid)):
        if count >= FDS_MAX:
            return
        if (inode := procfs.socket_inode(link.target)) in ports and inode:
            yield f"port {ports[inode]}"
        elif gpu := _GPU.match(link.target):
            yield f"GPU {gpu[1]}"
        elif _GPU_FILES.match(link.target) or link.target.startswith(_SHM):
            yield link.target.removesuffix(" (deleted)")
