"""How processes are called in sentences. Pure."""

from collections.abc import Sequence

from firstlight.core.bundle import Bundle
from firstlight.core.hosts import local
from firstlight.core.process import Exit, Process
from firstlight.core.vocabulary import Role

_WORDS = {Role.FRONT: "front", Role.ENGINE: "engine core", Role.COMPILER: "compiler", Role.HELPER: "helper"}


def called(role: Role, rank: int, label: str, name: str, pid: int) -> str:
    """A process in a few words: "worker rank 1 (pid 123)"."""
    if rank >= 0:
        word = f"{'worker' if role is Role.OTHER else role.value} rank {rank}"
    else:
        word = _WORDS.get(role) or label or name or "process"
    return f"{word} (pid {pid})"


def of_process(process: Process) -> str:
    return called(process.role, process.rank, process.label, process.name, process.id.pid)


def of_exit(gone: Exit) -> str:
    return called(gone.role, gone.rank, gone.label, gone.name, gone.id.pid)


def _gone(gone: Exit) -> str:
    """ "worker rank 1 (pid 123, which is gone)"."""
    return f"{of_exit(gone).removesuffix(')')}, which is gone)"


class Names:
    """Names for pids: the server's own by role and rank, the dead by what they were, others by program name."""

    def __init__(self, bundle: Bundle) -> None:
        self._names = {pid: f"firstlight itself (pid {pid})" for pid in bundle.watchers}
        self._names |= {gone.id.pid: _gone(gone) for gone in bundle.exits}
        for look in bundle.looks[-1:]:
            locks = look.locks if isinstance(look.locks, tuple) else ()
            self._names |= {
                lock.holder: f"{lock.holder_name} (pid {lock.holder})" for lock in locks if lock.holder_name
            }
            self._names |= {one.process.id.pid: of_process(one.process) for one in look.processes}
        if bundle.hosts:
            known = self._names.items()
            self._names = {pid: name.replace(f"pid {pid}", f"pid {local(pid, bundle.hosts)}") for pid, name in known}
        self._hosts = bundle.hosts

    def of(self, pid: int) -> str:
        return self._names.get(pid, f"pid {local(pid, self._hosts)} (not of this server)")

    def all(self, pids: Sequence[int]) -> str:
        """Several names in one phrase; more than three are counted."""
        named = [self.of(pid) for pid in pids[:3]]
        if len(pids) > 3:
            named.append(f"{len(pids) - 3} more")
        return listed(named)


def listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def numbers(ranks: Sequence[int]) -> str:
    """Ranks as people write them: "rank 2", "ranks 0-3 and 7"."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][-1] + 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    words = [word for span in spans for word in ([f"{span[0]}-{span[-1]}"] if len(span) > 2 else map(str, span))]
    return f"rank{'s' if len(set(ranks)) != 1 else ''} {listed(words)}"
