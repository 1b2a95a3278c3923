"""Ask torch to write what its flight recorder holds, now, without waiting for a timeout.

Price: asks. Where TORCH_NCCL_DEBUG_INFO_PIPE_FILE (or TORCH_FR_DEBUG_INFO_PIPE_FILE) is set, each rank's heartbeat
thread reads the FIFO `<value><rank>.pipe`; whatever is written to it makes it dump (c10d, ProcessGroupNCCL.hpp).
"""

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from firstlight.clock import Deadline
from firstlight.evidence.workers import Probe

_VARIABLES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")


def dump_pipes(environ: Mapping[str, str], ranks: Iterable[int]) -> tuple[Path, ...]:
    """The FIFOs that these ranks of a server with this environment would read. Pure."""
    stems = dict.fromkeys(environ[name] for name in _VARIABLES if environ.get(name))
    return tuple(Path(f"{stem}{rank}.pipe") for stem in stems for rank in ranks if rank >= 0)


def ask_for_dumps(pipes: Iterable[Path], deadline: Deadline) -> tuple[Path, ...]:
    """Write to those that exist and have a reader; returns them. The dumps follow within seconds, or not at all."""
    probes = [(pipe, Probe("dump pipe", partial(_poke, pipe))) for pipe in pipes]
    return tuple(pipe for pipe, probe in probes if probe.result(deadline) is True)


def _poke(pipe: Path) -> bool:
    with suppress(OSError):
        if not stat.S_ISFIFO(pipe.lstat().st_mode):
            return False
        # Fails at once where nobody reads; does not wait, does not follow a link, creates nothing.
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return stat.S_ISFIFO(os.fstat(fd).st_mode) and os.write(fd, b"1\n") > 0
        finally:
            os.close(fd)
    return False
