"""Who a process is, from the title it gave itself and the program it runs. Pure: reads nothing.

Titles are those of setproctitle (vLLM >= 0.10, SGLang all versions read); where a process has none yet, as between
fork and renaming, it is "multiprocessing child" until it is asked again.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import PurePath
from typing import NamedTuple

from firstlight.core.compilers import is_compiler
from firstlight.core.vocabulary import Role
from firstlight.engines.ranks import UNKNOWN, Sizes, rank_of
from firstlight.engines.table import ENGINES, Title, table
from firstlight.engines.words import find_launch, is_python


class Identity(NamedTuple):
    """What a process is to its server. `rank` is -1 where it has none."""

    role: Role
    label: str
    rank: int
    name: str


_ANYWHERE_CHARACTERS = 2000


def identify(cmdline: Sequence[str], comm: str, sizes: Sizes = UNKNOWN) -> Identity:
    """Who a process is; `Role.OTHER` with the name of its program where nothing tells.

    Args:
        cmdline: the command line or title, as /proc/PID/cmdline has it; empty for a zombie.
        comm: the kernel's own name of the process, cut to 15 characters.
        sizes: how the ranks are laid out, for turning "DP1 TP3" into one number.
    """
    program = PurePath(cmdline[0]).name if cmdline else comm
    joined = " ".join(cmdline)[:_ANYWHERE_CHARACTERS]
    if is_compiler(program) or is_compiler(comm):
        return Identity(Role.COMPILER, "", -1, program)
    if "_inductor/compile_worker" in joined:
        return Identity(Role.COMPILER, "", -1, "inductor compile worker")
    if "multiprocessing.resource_tracker" in joined or "multiprocessing.forkserver" in joined:
        return Identity(
            Role.HELPER, "", -1, "multiprocessing " + ("tracker" if "tracker" in joined else "forkserver")
        )
    return (
        _titled(cmdline[0] if cmdline else "", comm, joined, sizes)
        or _launched(cmdline)
        or Identity(Role.OTHER, "", -1, _plain_name(cmdline, program))
    )


@cache
def _titles() -> tuple[tuple[re.Pattern[str], Title], ...]:
    return tuple((re.compile(title.pattern), title) for name in ENGINES for title in table(name).titles)


def _titled(title: str, comm: str, joined: str, sizes: Sizes) -> Identity | None:
    for pattern, entry in _titles():
        if entry.anywhere:
            match = pattern.search(joined)
        else:
            match = pattern.fullmatch(title.strip()) or pattern.fullmatch(comm)
        if match:
            return _identity(match, entry, sizes)
    return None


def _identity(match: re.Match[str], entry: Title, sizes: Sizes) -> Identity:
    groups = match.groupdict()
    label, rank = _label(groups, entry), -1
    if entry.role is Role.WORKER:
        rank = int(groups["rank"]) if groups.get("rank") else rank_of(label, sizes)
    whole = match.group(0)
    return Identity(entry.role, label, rank, label if entry.anywhere else whole)


def _label(groups: dict[str, str | None], entry: Title) -> str:
    if groups.get("parts"):
        return " ".join(re.findall(r"[A-Z][A-Z_]*\d+", groups["parts"] or ""))
    return groups.get("label") or entry.label + (groups.get("rank") or "")


def _launched(cmdline: Sequence[str]) -> Identity | None:
    """The front, which keeps the command line it was started with; a shell or wrapper before it is not the front."""
    for name in ENGINES:
        for launch in table(name).launch:
            found = find_launch(cmdline, launch)
            if found is not None and (found.begin == 0 or is_python(cmdline[0])):
                return Identity(Role.FRONT, table(name).front, -1, launch.removeprefix("-m "))
    return None


def _plain_name(cmdline: Sequence[str], program: str) -> str:
    """A few words: the program, and for an interpreter the script or module it runs."""
    if not cmdline or not is_python(cmdline[0]):
        return program[:40]
    if any("spawn_main" in word for word in cmdline[:6]):
        return "multiprocessing child"
    rest = list(cmdline[1:])
    for before, word in zip(["", *rest], rest, strict=False):
        if before == "-m":
            return f"python -m {word}"[:60]
        if before == "-c":
            return "python -c"
        if not word.startswith("-"):
            return f"python {PurePath(word).name}"[:60]
    return "python"
