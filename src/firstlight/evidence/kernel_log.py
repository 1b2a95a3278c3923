"""What the kernel has said about GPUs, memory, disks and tasks that hang: /dev/kmsg, read without ever waiting.

Price: reads. Format from Documentation/ABI/testing/dev-kmsg: "priority,sequence,microseconds,flags;text". The lines
are the machine's: pids in them are those of the host, and they may speak of somebody else's server.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core import redact
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason

LINES_MAX = 100
LINE_CHARACTERS_MAX = 500
RECORDS_MAX = 100_000
CLOCK_ERROR_S = 5.0
"""How far the kernel's own log clock may be off the clock that is kept right."""
_RECORD_BYTES = 8192
_WHAT = "kernel log"

_TELLING = re.compile(
    r"""(?ix)
      \bNVRM\b | \bXid\b | \bnvidia | \bnvlink | \bamdgpu\b | \bkfd\b
    | out\ of\ memory | oom[-_ ]kill | \bkilled\ process\b | page\ allocation\ (failure|stalls)
    | I/O\ error | \bnfs:?\ .*(not\ responding|OK$|timed\ out) | \blustre.*(error|timed\ out)
    | \bceph\b.*(hung|timed?\ ?out|session)
    | blocked\ for\ more\ than | hung_task | (soft|hard)\ lockup | \brcu\b.*stall
    | \bAER: | \bDMAR: | \bAMD-Vi:.*(fault|event) | IO_PAGE_FAULT | \bmlx5_core\b.*(error|timeout|down)
    | fork\ rejected\ by\ pids | nf_conntrack:.*table\ full | possible\ SYN\ flooding
    | segfault\ at | general\ protection\ fault | \bHardware\ Error\b | \bmce:
    """
)
_DULL = re.compile(r"(?i)^\s|command line:")
"""Traces of the kernel's own code are indented, and what it was booted with is no event."""


def kernel_log(
    since: float, clock: Clock, deadline: Deadline, device: Path = Path("/dev/kmsg")
) -> tuple[str, ...] | Gap:
    """The telling lines since the wall time `since`, oldest first, the newest `LINES_MAX` at most. Never raises."""
    try:
        fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        detail = "only root, or somebody with CAP_SYSLOG, may read it while kernel.dmesg_restrict is 1"
        return Gap(what=_WHAT, reason=GapReason.NO_PERMISSION, detail=detail)
    except OSError as error:
        detail = f"{error}; in a container it is seldom there: ask for `dmesg` of the machine"
        return Gap(what=_WHAT, reason=GapReason.NOT_SUPPORTED, detail=detail)
    try:
        from_s = since - (clock.wall() - clock.boottime()) - CLOCK_ERROR_S
        return telling(_records(lambda: os.read(fd, _RECORD_BYTES), deadline), from_s)
    except PermissionError as error:
        return procfs.gap_from(error, _WHAT)
    finally:
        os.close(fd)


def _records(read: Callable[[], bytes], deadline: Deadline) -> Iterator[bytes]:
    """Every record that is there now. Raises PermissionError where reading is refused only now."""
    for _ in range(RECORDS_MAX):
        if deadline.passed:
            return
        try:
            record = read()
        except BrokenPipeError:
            continue  # overwritten before it was read; the next read goes on after it
        except PermissionError:
            raise
        except OSError:
            return  # EAGAIN: that was all
        if not record:
            return
        yield record


def telling(records: Iterator[bytes], from_s: float) -> tuple[str, ...]:
    """The texts of the telling records that are no older than `from_s`, seconds after the boot. Pure."""
    found: deque[str] = deque(maxlen=LINES_MAX)
    for record in records:
        head, _, text = record.partition(b";")
        with suppress(ValueError, IndexError):
            if int(head.split(b",")[2]) / 1e6 < from_s:
                continue
            line = text.partition(b"\n")[0].decode(errors="replace")[:LINE_CHARACTERS_MAX]
            if _TELLING.search(line) and not _DULL.search(line):
                found.append(redact.text(line))
    return tuple(found)
