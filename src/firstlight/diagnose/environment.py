"""The facts about machine and server that a maintainer asks for first, in words. Pure."""

from collections.abc import Iterator

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.host import Host
from firstlight.core.redact import HIDDEN
from firstlight.core.words import counted, size
from firstlight.diagnose.names import listed

VARIABLES_MAX = 40
HOSTS_MAX = 4


def environment(bundle: Bundle) -> tuple[tuple[str, str], ...]:
    """Name and value of what is known; what is not known is left out, since the gaps tell of it. Of several machines
    each value says on which it is, unless it is so on all."""
    if not bundle.machines:
        return (*_machine(bundle.host), *_gpus(bundle), *_libraries(bundle), *_variables(bundle))
    found: dict[tuple[str, str], list[str]] = {}
    for one in bundle.machines:
        for row in dict.fromkeys(environment(one)):
            found.setdefault(row, []).append(one.host.name)
    order = list(dict.fromkeys(name for name, _ in found))
    rows = sorted(found.items(), key=lambda row: order.index(row[0][0]))
    return tuple((name, _on(value, hosts, len(bundle.machines))) for (name, value), hosts in rows)


def _on(value: str, hosts: list[str], machines: int) -> str:
    return value if len(hosts) == machines else f"{value} (on {_listed(hosts)})"


def _listed(hosts: list[str]) -> str:
    more = len(hosts) - HOSTS_MAX
    return listed([*hosts[:HOSTS_MAX], *([f"{more} more"] if more > 0 else [])])


def _machine(host: Host) -> Iterator[tuple[str, str]]:
    yield "kernel", " ".join(filter(None, [host.kernel, host.cpu_arch, host.container and f"in {host.container}"]))
    yield "CPUs and memory", f"{counted(host.cpus, 'CPU')}, {size(host.memory_bytes)}"
    if not isinstance(host.shm_bytes, Gap) and not isinstance(host.shm_used_bytes, Gap):
        yield "/dev/shm", f"{size(host.shm_used_bytes)} of {size(host.shm_bytes)} used"
    for name, value in (("NVIDIA driver", host.driver), ("CUDA of the driver", host.cuda)):
        if isinstance(value, str) and value:
            yield name, value
    if isinstance(host.topology.iommu, str):
        yield "IOMMU", host.topology.iommu
    for place in host.places:
        slow = ", a network or user-space file system" if place.slow else ""
        yield place.purpose.replace("_", " "), f"{place.path} on {place.filesystem}{slow}"
    yield "may read other processes", host.may_ptrace


def _gpus(bundle: Bundle) -> Iterator[tuple[str, str]]:
    gpus = bundle.looks[-1].gpus if bundle.looks else ()
    if isinstance(gpus, Gap):
        return
    for name in dict.fromkeys(gpu.name for gpu in gpus):
        yield "GPU", f"{sum(gpu.name == name for gpu in gpus)} x {name}"


def _libraries(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """Each library file that a process maps, once."""
    mapped: dict[str, Library] = {}
    for one in bundle.looks[-1].processes if bundle.looks else ():
        if not isinstance(one.facts.libraries, Gap):
            mapped |= {library.path: library for library in one.facts.libraries}
    for library in mapped.values():
        yield library.kind.replace("_", " "), " ".join(filter(None, [library.version, library.path]))


def _variables(bundle: Bundle) -> Iterator[tuple[str, str]]:
    shown = [(name, value) for name, value in bundle.environment if value != HIDDEN]
    yield from sorted(shown)[:VARIABLES_MAX]
