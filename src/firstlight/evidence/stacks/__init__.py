"""Where the threads of processes stand: in Python, in native code, in the kernel; without a stop where possible."""

from firstlight.evidence.stacks.dumps import asking_by_signal
from firstlight.evidence.stacks.kernel import with_kernel_stacks
from firstlight.evidence.stacks.native import native_stacks
from firstlight.evidence.stacks.of_processes import Stacks, stacks_of, with_stacks

__all__ = ["Stacks", "asking_by_signal", "native_stacks", "stacks_of", "with_kernel_stacks", "with_stacks"]
