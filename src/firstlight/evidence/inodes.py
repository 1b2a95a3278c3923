"""Who holds which pipe, FIFO, socket or file open: every visible process's descriptors, looked up by inode.

Price: reads. The machine-wide search is bounded in time and number; where it could not see everything it says so,
because "nobody holds it" may only be said after everybody was looked at.
"""

import os
import stat
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Deadline

FDS_MAX = 16384
"""Descriptors read per process, some 12 µs each."""


class Descriptor(NamedTuple):
    """One open descriptor of a process. `key` tells what it points at: "pipe:[1]", "socket:[2]", a path."""

    pid: int
    fd: int
    key: str
    reads: bool
    writes: bool

    @property
    def access(self) -> str:
        return ("r" if self.reads else "") + ("w" if self.writes else "")


class Holders(NamedTuple):
    """Every descriptor of interest by what it points at. `unseen` counts processes that could not be searched."""

    by_key: dict[str, list[Descriptor]]
    unseen: int


def descriptors(pid: int) -> list[Descriptor]:
    """The open descriptors of a process, at most `FDS_MAX`. Raises OSError."""
    found = []
    for link in procfs.fds(pid):
        with suppress(FileNotFoundError):
            # The link's own permission bits say how the file was opened; it need not be touched for that.
            mode = os.lstat(f"/proc/{pid}/fd/{link.fd}").st_mode
            found.append(Descriptor(pid, link.fd, link.target, bool(mode & stat.S_IRUSR), bool(mode & stat.S_IWUSR)))
        if len(found) >= FDS_MAX:
            break
    return found


def holders(keys: set[str], first: Iterable[int], deadline: Deadline) -> Holders:
    """Who holds any of `keys` open, the processes of the server first, then everybody else that may be seen."""
    by_key: dict[str, list[Descriptor]] = defaultdict(list)
    unseen = 0
    order = list(dict.fromkeys([*first, *procfs.pids()]))
    for pid in order if keys else []:
        if deadline.passed:
            unseen += 1
            continue
        try:
            found = descriptors(pid)
            for descriptor in found:
                if descriptor.key in keys:
                    by_key[descriptor.key].append(descriptor)
            unseen += len(found) >= FDS_MAX
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            unseen += 1
    return Holders(dict(by_key), unseen)
