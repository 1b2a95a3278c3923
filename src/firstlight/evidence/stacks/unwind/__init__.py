"""Native stacks of threads that wait, read from outside without stopping anything (x86-64)."""

from firstlight.evidence.stacks.unwind.binaries import Binaries
from firstlight.evidence.stacks.unwind.stacks import waiting_stacks

__all__ = ["Binaries", "waiting_stacks"]
