"""The machine, as far as a stall may depend on it: places, network, the ways between GPUs, the kernel."""

from firstlight.evidence.host.machine import host, may_ptrace, ptrace_rights
from firstlight.evidence.host.places import root_of

__all__ = ["host", "may_ptrace", "ptrace_rights", "root_of"]
