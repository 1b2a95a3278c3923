"""Names and arguments of the system calls that a stuck thread sits in, for x86-64 and aarch64.

Numbers from the kernel's asm/unistd_64.h and asm-generic/unistd.h. Only calls that can block, or that a busy thread
is often caught in, are named; any other is shown by its number.
"""

import platform
import re
import struct
from collections.abc import Mapping
from typing import NamedTuple

from firstlight.evidence.futexes import FutexWait, Memory, waits
from firstlight.evidence.timeouts import Timeout, timeout_of

# name, number on x86-64, number on aarch64 ("-" where it does not exist), arguments that mean something
_TABLE = """
read 0 63 3
write 1 64 3
open 2 - 2
close 3 57 1
poll 7 - 3
lseek 8 62 3
mmap 9 222 6
mprotect 10 226 3
munmap 11 215 2
brk 12 214 1
ioctl 16 29 3
pread64 17 67 4
pwrite64 18 68 4
readv 19 65 3
writev 20 66 3
select 23 - 5
sched_yield 24 124 0
mremap 25 216 5
msync 26 227 3
madvise 28 233 3
pause 34 - 0
nanosleep 35 101 2
sendfile 40 71 4
connect 42 203 3
accept 43 202 3
sendto 44 206 6
recvfrom 45 207 6
sendmsg 46 211 3
recvmsg 47 212 3
clone 56 220 5
vfork 58 - 0
execve 59 221 3
exit 60 93 1
wait4 61 260 4
semop 65 193 3
msgsnd 69 189 4
msgrcv 70 188 5
fcntl 72 25 3
flock 73 32 2
fsync 74 82 1
fdatasync 75 83 1
ftruncate 77 46 2
rt_sigtimedwait 128 137 4
rt_sigsuspend 130 133 2
statfs 137 43 2
futex 202 98 6
io_getevents 208 4 5
getdents64 217 61 3
restart_syscall 219 128 0
semtimedop 220 192 4
clock_nanosleep 230 115 4
exit_group 231 94 1
epoll_wait 232 - 4
mq_timedreceive 243 183 5
waitid 247 95 5
openat 257 56 4
newfstatat 262 79 4
pselect6 270 72 6
ppoll 271 73 5
splice 275 76 6
epoll_pwait 281 22 6
fallocate 285 47 4
accept4 288 242 4
preadv 295 69 5
pwritev 296 70 5
recvmmsg 299 243 5
sendmmsg 307 269 4
process_vm_readv 310 270 6
copy_file_range 326 285 6
statx 332 291 5
io_uring_enter 426 426 6
clone3 435 435 2
openat2 437 437 4
epoll_pwait2 441 441 6
futex_waitv 449 449 5
"""

_POLLED_MAX = 256
_PATH_MAX = 4096


def _numbers(column: int) -> dict[int, tuple[str, int]]:
    rows = (line.split() for line in _TABLE.split("\n") if line)
    return {int(row[column]): (row[0], int(row[3])) for row in rows if row[column] != "-"}


_BY_MACHINE: Mapping[str, Mapping[int, tuple[str, int]]] = {"x86_64": _numbers(1), "aarch64": _numbers(2)}

_ON_FIRST_ARGUMENT = re.compile(
    r"p?readv?(64)?|p?writev?(64)?|recv(from|m?msg)|send(to|m?msg)|accept4?|connect|flock|fcntl|ioctl|f(data)?sync"
    r"|ftruncate|fallocate|close|getdents64|lseek|io_uring_enter"
)
_POLLS = frozenset({"poll", "ppoll"})
_SELECTS = frozenset({"select", "pselect6"})
_EPOLLS = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2"})
_PATH_ARGUMENT = {"open": 0, "execve": 0, "openat": 1, "openat2": 1}


class Call(NamedTuple):
    """A system call as it is shown, the descriptors that it waits for and the path that it opens.

    `epoll` is the descriptor of an epoll set whose members are waited for, -1 if there is none; `futex` the wait that
    a futex call is; `timeout` when a sleep or poll ends by itself.
    """

    text: str
    fds: tuple[int, ...] = ()
    path: str = ""
    epoll: int = -1
    futex: FutexWait | None = None
    timeout: Timeout | None = None


RUNNING = Call("running")
OUTSIDE = Call("none: it blocks outside of any system call")


def decode(seen: tuple[int, tuple[int, ...]] | None, memory: Memory, machine: str = platform.machine()) -> Call:
    """What `procfs.syscall` returned, in words; arguments that point into memory are followed where allowed."""
    if seen is None:
        return RUNNING
    number, arguments = seen
    if number < 0:
        return OUTSIDE
    name, count = _BY_MACHINE.get(machine, {}).get(number, (f"syscall_{number}", 6))
    shown = ", ".join(hex(argument) for argument in arguments[:count])
    try:
        return _with_arguments(name, f"{name}({shown})", arguments, memory)
    except (OSError, OverflowError, IndexError, struct.error):
        return Call(f"{name}({shown})")


def _with_arguments(name: str, text: str, arguments: tuple[int, ...], memory: Memory) -> Call:
    if name == "futex":
        return Call(text, futex=waits(arguments))
    fds: tuple[int, ...] = ()
    if _ON_FIRST_ARGUMENT.fullmatch(name):
        fds = (arguments[0],)
    elif name in _POLLS:
        fds = _polled(memory(arguments[0], 8 * min(arguments[1], _POLLED_MAX)))
    elif name in _SELECTS:
        fds = _selected(arguments, memory)
    at = _PATH_ARGUMENT.get(name)
    path = "" if at is None else _path(memory(arguments[at], _PATH_MAX))
    epoll = arguments[0] if name in _EPOLLS else -1
    return Call(text, fds, path, epoll, timeout=timeout_of(name, arguments, memory))


def _polled(array: bytes) -> tuple[int, ...]:
    whole = len(array) // 8 * 8
    return tuple(fd for fd, _events, _revents in struct.iter_unpack("=ihh", array[:whole]) if fd >= 0)


def _selected(arguments: tuple[int, ...], memory: Memory) -> tuple[int, ...]:
    count = min(arguments[0], 1024)
    found: set[int] = set()
    for address in arguments[1:4]:
        if address and count:
            bits = int.from_bytes(memory(address, (count + 7) // 8), "little")
            found.update(fd for fd in range(count) if bits >> fd & 1)
    return tuple(sorted(found))


def _path(data: bytes) -> str:
    return data.partition(b"\0")[0].decode(errors="replace")
