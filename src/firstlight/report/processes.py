"""What a report says of processes: who does the same where, how each was last seen, and who ended."""

from collections.abc import Hashable
from typing import NamedTuple

from firstlight.core.hosts import PIDS_A_NODE, local
from firstlight.core.look import Frame
from firstlight.core.process import Exit
from firstlight.core.report import Report, ReportedProcess, ReportedThread
from firstlight.core.vocabulary import Phase, Role
from firstlight.core.words import exit_words, printable, size, time_of_day, who
from firstlight.report.picture.drawing import spans

ENDED_MAX = 10
"""Processes that ended and are named; a compile has hundreds of helpers."""

PROCESSES_MAX = 512
THREADS_MAX = 8
GROUP_MAX = 8
"""Processes of one group that are told one by one."""

PROCESSES_TITLE = "Processes, as last seen"

STATE_WORDS = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a device or disk",
    "T": "stopped by a signal",
    "t": "stopped by a tracer",
    "Z": "ended, not yet reaped",
    "X": "ended",
    "I": "idle",
}

GONE_STATES = frozenset("ZX")


class Group(NamedTuple):
    """Processes that do the same at the same place: eight ranks read as one paragraph."""

    processes: tuple[ReportedProcess, ...]
    doing: str
    where: tuple[Frame, ...]

    @property
    def threads(self) -> tuple[ReportedThread, ...]:
        """Further threads that tell something; they do the same in all of these processes."""
        return self.processes[0].others[:THREADS_MAX]


def groups(report: Report) -> list[Group]:
    """Processes by what they do and where they stand, in the order of the report."""
    found: dict[Hashable, list[ReportedProcess]] = {}
    for process in report.processes[:PROCESSES_MAX]:
        threads = tuple((one.name, one.doing, one.where) for one in process.others)
        found.setdefault((process.doing, process.where, threads), []).append(process)
    return [Group(tuple(members), members[0].doing, members[0].where) for members in found.values()]


def thread_words(group: Group, thread: ReportedThread) -> str:
    """A further thread and what it does; of processes that do the same, without a number that is one's alone."""
    number = f" {thread.tid % PIDS_A_NODE}" if len(group.processes) == 1 else ""
    name = f" ({printable(thread.name, 40)})" if thread.name else ""
    return printable(f"thread{number}{name} {thread.doing}")


def told(group: Group) -> tuple[tuple[ReportedProcess, ...], str]:
    """The members of a group that are told one by one, and a word about the others."""
    if len(group.processes) <= GROUP_MAX:
        return group.processes, ""
    shown, rest = group.processes[: GROUP_MAX // 2], group.processes[GROUP_MAX // 2 :]
    ranks = [process.rank for process in rest if process.rank >= 0]
    named = f" (ranks {spans(ranks)})" if len(ranks) == len(rest) else ""
    return shown, f"and {len(rest)} more that do the same{named}"


def process_title(report: Report, process: ReportedProcess) -> str:
    """Who it is."""
    return who(process.name, process.label, local(process.pid, report.hosts), process.rank)


def process_facts(report: Report, process: ReportedProcess) -> str:
    """What its counters said when it was last seen; of one that ended since, only who it was."""
    if process.state in GONE_STATES or any(gone.id.pid == process.pid for gone in report.exits):
        parts = [process.role, _phase_of(report, process), "ended"]
    else:
        state = STATE_WORDS.get(process.state, printable(process.state, 20))
        load = f"CPU {process.cpu_percent:.0f} %"
        parts = [process.role, _phase_of(report, process), state, load, size(process.memory_bytes)]
    return ", ".join(part for part in parts if part)


def _phase_of(report: Report, process: ReportedProcess) -> str:
    """The phase that a process was last seen to enter; once a server serves, all that do its work are there."""
    minor = process.role in {Role.HELPER, Role.COMPILER}
    return Phase.SERVING if report.phase is Phase.SERVING and not minor else process.phase or ""


def frame_words(frame: Frame) -> str:
    """One frame of a stack."""
    return f"{printable(frame.function, 120)} ({printable(frame.file, 200)}:{frame.line})"


def ended(report: Report) -> list[str]:
    """The processes that ended: those that were killed or failed first, then ranks and the server's first process.

    Within each kind the first to end stands first. Beyond `ENDED_MAX` they are counted. What a shell or a compiler
    starts is left out where nobody saw how it ended and nothing else in the report is about it.
    """
    named = {report.server, *(pid for one in report.findings for pid in one.pids)}
    ends = {end for edge in report.graph.edges for end in (edge.source, edge.target)}
    named |= {node.pid for node in report.graph.nodes if node.id in ends}
    told = [gone for gone in report.exits if not gone.passing or gone.id.pid in named]
    ordered = sorted(told, key=lambda gone: (_insignificance(gone, report.server), gone.at))
    shown, left = ordered[:ENDED_MAX], ordered[ENDED_MAX:]
    lines = [_exit_line(gone, report.hosts) for gone in shown]
    if left:
        usual = all(_insignificance(gone, report.server) == _SHORT_LIVED for gone in left)
        lines.append(f"and {len(left)} more{' that ended as short-lived helpers do' if usual else ''}")
    return lines


_SHORT_LIVED = 3


def _insignificance(gone: Exit, root: int) -> int:
    """0 for a process that was killed or failed, `_SHORT_LIVED` for a helper that did its work and left."""
    if gone.signal is not None or (isinstance(gone.code, int) and gone.code != 0):
        return 0
    if gone.rank >= 0 or gone.id.pid == root or gone.role in {Role.FRONT, Role.ENGINE, Role.WORKER}:
        return 1
    return _SHORT_LIVED if gone.clean else 2


def _exit_line(gone: Exit, hosts: tuple[str, ...]) -> str:
    named = who(gone.name, gone.label, local(gone.id.pid, hosts), gone.rank)
    return f"{time_of_day(gone.at)}  {named} {exit_words(gone)}"
