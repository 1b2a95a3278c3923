"""What one process is allowed, where it may run, and which libraries it has loaded: facts that seldom change."""

from firstlight.core.gap import Gap
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason

UNLIMITED = -1

NOT_ASKED = Gap(what="facts of the process", reason=GapReason.NOT_SUPPORTED, detail="this look left them out")


class Limit(Record):
    """One row of /proc/PID/limits: `name` as setrlimit(2) has it, in lower case ("nofile", "memlock", "nproc").

    `soft` and `hard` are counts or bytes, `UNLIMITED` (-1) for none.
    """

    name: str
    soft: int
    hard: int


class Cgroup(Record):
    """Limits, use and events of the control group that a process lives in (cgroups(7), v1 or v2).

    Bytes and counts; `UNLIMITED` (-1) where there is no limit. `oom_kills` and `pids_refused` only grow: the
    processes killed for memory, and the forks refused. `cpu_cores` is the quota in cores, `throttled_s` how long
    it held tasks back. A field is a gap where its controller is not there.
    """

    path: str = ""
    memory_bytes: int | Gap = NOT_ASKED
    memory_max_bytes: int | Gap = NOT_ASKED
    oom_kills: int | Gap = NOT_ASKED
    pids: int | Gap = NOT_ASKED
    pids_max: int | Gap = NOT_ASKED
    pids_refused: int | Gap = NOT_ASKED
    cpu_cores: float | Gap = NOT_ASKED
    throttled_s: float | Gap = NOT_ASKED


class Library(Record):
    """A shared library that a process maps and that can matter for a stall.

    `kind`: nccl, cuda_driver (libcuda), cuda_runtime, ptx_jit (libnvidia-ptxjitcompiler), mpi, kernels (compiled GPU
    kernels: flashinfer, sgl_kernel, deep_gemm, vllm's own …), profiler (an injection or instrumentation library),
    foreign (mapped from outside the Python environment, the system's library folders and the CUDA toolkit), preload
    (none of these, but preloaded).
    `version` is read from the file itself ("2.27.5", "12.8"), empty if it does not tell. `build` is its ELF build id,
    empty if it has none: two files of the same version string can be different builds. `preloaded` if LD_PRELOAD or
    /etc/ld.so.preload names it. `deleted` if the file has been replaced on disk since.
    """

    path: str
    kind: str
    version: str = ""
    build: str = ""
    preloaded: bool = False
    deleted: bool = False


class ProcessFacts(Record):
    """Facts about one process.

    `capabilities` are the effective ones ("sys_ptrace", "sys_nice", "ipc_lock"), `seccomp` the mode of
    /proc/PID/status (0 none, 1 strict, 2 filter). `cpus_allowed` and `mems_allowed` are lists as "0-15,32".
    `environment` holds the variables that `core.redact` lets through, secrets replaced; other variables by name
    only, with "***". `locked_bytes` is VmLck plus VmPin, `swapped_bytes` VmSwap. `forked` is true for a process
    that was forked and never called exec (the kernel says so: PF_FORKNOEXEC), `parent_threads` how many threads its
    parent has now.
    """

    limits: tuple[Limit, ...] | Gap = NOT_ASKED
    capabilities: tuple[str, ...] | Gap = NOT_ASKED
    seccomp: int | Gap = NOT_ASKED
    cpus_allowed: str = ""
    mems_allowed: str = ""
    environment: tuple[tuple[str, str], ...] | Gap = NOT_ASKED
    libraries: tuple[Library, ...] | Gap = NOT_ASKED
    cgroup: Cgroup = Cgroup()
    locked_bytes: int | Gap = NOT_ASKED
    swapped_bytes: int | Gap = NOT_ASKED
    forked: bool = False
    parent_threads: int = 0

    def limit(self, name: str) -> Limit | None:
        """The limit of that name; None if it was not seen."""
        limits = () if isinstance(self.limits, Gap) else self.limits
        return next((one for one in limits if one.name == name), None)

    def variable(self, name: str) -> str:
        """The value of a variable of the environment; empty if it is not set, hidden or was not seen."""
        variables = () if isinstance(self.environment, Gap) else self.environment
        return next((value for key, value in variables if key == name), "")
