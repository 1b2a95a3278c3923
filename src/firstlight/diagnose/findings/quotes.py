"""How findings quote what they rest on. Pure."""

from firstlight.core.bundle import ThreadLook
from firstlight.core.gap import Gap
from firstlight.diagnose import frames
from firstlight.diagnose.standing import Standing

ESTABLISHED = "established"
SUPPORTED = "supported"


def call(thread: ThreadLook | None) -> str:
    """The system call that a thread sits in, as it was seen."""
    if thread is None or isinstance(thread.syscall, Gap):
        return "a system call that may not be seen"
    return thread.syscall


def stack(one: Standing) -> str:
    """Where a process stands, as one line of its stack, with the source text where it was read."""
    if one.place is None:
        return f"process {one.pid}: no Python stack was seen"
    quoted = (f"{frames.shown(frame)}{f': {frame.code}' if frame.code else ''}" for frame in one.place.frames)
    return f"process {one.pid}: {' < '.join(quoted)}"
