"""What a process of a bundle made by hand is allowed, and which libraries and files it has."""

from collections.abc import Iterable, Mapping

from firstlight.core.facts import UNLIMITED, Cgroup, Library, Limit, ProcessFacts
from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile, Socket
from firstlight.testing.bundles.stacks import PACKAGES

GB = 1 << 30


def ordinary_facts(
    *,
    libraries: Iterable[Library] | Gap | None = None,
    variables: Mapping[str, str] | Gap | None = None,
    nofile: int = 1_048_576,
    memlock: int = UNLIMITED,
    nproc: int = 4_126_000,
    cgroup: Cgroup | None = None,
    capabilities: tuple[str, ...] | Gap = ("ipc_lock", "sys_nice", "sys_ptrace"),
    seccomp: int = 0,
    forked: bool = False,
    parent_threads: int = 1,
    cpus_allowed: str = "0-63",
    mems_allowed: str = "0-1",
    locked_bytes: int = 0,
    swapped_bytes: int = 0,
) -> ProcessFacts:
    """Facts that nobody could blame, but for those that are given. Without `libraries` those of a CUDA 12 wheel."""
    named = {"nofile": nofile, "memlock": memlock, "nproc": nproc}
    if isinstance(variables, Gap) or variables is None:
        environment: tuple[tuple[str, str], ...] | Gap = () if variables is None else variables
    else:
        environment = tuple(variables.items())
    mapped = cuda_libraries() if libraries is None else libraries
    return ProcessFacts(
        limits=tuple(Limit(name=name, soft=value, hard=value) for name, value in named.items()),
        capabilities=capabilities,
        seccomp=seccomp,
        cpus_allowed=cpus_allowed,
        mems_allowed=mems_allowed,
        environment=environment,
        libraries=mapped if isinstance(mapped, Gap) else tuple(mapped),
        cgroup=cgroup if cgroup is not None else ordinary_cgroup(),
        locked_bytes=locked_bytes,
        swapped_bytes=swapped_bytes,
        forked=forked,
        parent_threads=parent_threads,
    )


def ordinary_cgroup(
    *,
    memory_max_bytes: int = UNLIMITED,
    oom_kills: int = 0,
    pids: int = 900,
    pids_max: int = UNLIMITED,
    pids_refused: int = 0,
) -> Cgroup:
    """A control group that limits nothing, but for what is given."""
    return Cgroup(
        path="/system.slice/llm.service",
        memory_bytes=40 * GB,
        memory_max_bytes=memory_max_bytes,
        oom_kills=oom_kills,
        pids=pids,
        pids_max=pids_max,
        pids_refused=pids_refused,
        cpu_cores=float(UNLIMITED),
        throttled_s=0.0,
    )


def cuda_libraries(*, nccl: str = "2.27.5", cuda: str = "12.8", driver: str = "570.172.08") -> tuple[Library, ...]:
    """What a worker of a CUDA wheel maps."""
    major = cuda.split(".", maxsplit=1)[0]
    return (
        Library(path=f"/usr/lib/x86_64-linux-gnu/libcuda.so.{driver}", kind="cuda_driver", version=driver),
        Library(
            path=f"{PACKAGES}nvidia/cuda_runtime/lib/libcudart.so.{major}",
            kind="cuda_runtime",
            version=cuda,
            build="c1",
        ),
        Library(path=f"{PACKAGES}nvidia/nccl/lib/libnccl.so.2", kind="nccl", version=nccl, build="a1"),
    )


def file(path: str, *, fd: int = 30, access: str = "r", size: int = 0, filesystem: str = "ext4") -> OpenFile:
    """An open regular file."""
    return OpenFile(fd=fd, kind="file", target=path, access=access, size=size, filesystem=filesystem)


def device(path: str, *, fd: int = 20) -> OpenFile:
    """An open device, like /dev/nvidia0."""
    return OpenFile(fd=fd, kind="device", target=path, access="rw")


def pipe(*peers: int, fd: int = 40, access: str = "r", number: int = 7001) -> OpenFile:
    """One end of a pipe, of which `peers` hold the other."""
    return OpenFile(fd=fd, kind="pipe", target=f"pipe:[{number}]", access=access, peers=peers)


def socket(
    local: str,
    peer: str = "",
    *,
    state: str = "ESTABLISHED",
    fd: int = 50,
    unread: int = 0,
    unsent: int = 0,
    peers: tuple[int, ...] = (),
) -> OpenFile:
    """A TCP socket between "host:port" and "host:port"; `peers` are the pids at the other end, if on this machine."""
    (host_, port), (peer_host, peer_port) = _address(local), _address(peer)
    family = "inet6" if ":" in host_ else "inet"
    return OpenFile(
        fd=fd,
        kind="socket",
        target=f"socket:[{8000 + fd}]",
        access="rw",
        peers=peers,
        detail=f"tcp {local} -> {peer or '*'} {state}",
        socket=Socket(
            family=family,
            state=state,
            host=host_,
            port=port,
            peer_host=peer_host,
            peer_port=peer_port,
            unread=unread,
            unsent=unsent,
        ),
    )


def _address(text: str) -> tuple[str, int]:
    where, _, port = text.rpartition(":")
    return where.strip("[]"), int(port or 0)
