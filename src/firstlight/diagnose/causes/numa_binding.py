"""Binding memory or threads to NUMA nodes is refused, or binds ranks to the same cores."""

import re
from collections import defaultdict
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import counted
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.devices import runners
from firstlight.diagnose.failures import Kind, failed
from firstlight.diagnose.losses import TOGETHER_S
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines, processes, said, stands_in, variable

_REFUSED = (
    r"(set_mempolicy|get_mempolicy|mbind|migrate_pages|move_pages|numa_\w+|numactl).*"
    r"(not permitted|EPERM|errno:? ?1\b|failed)"
    r"|numa.*(operation not permitted|permission denied)"
)
_OUTSIDE = r"(sched_setaffinity|set_affinity).*(fail|invalid argument|EINVAL)|invalid CPU.*choose (from|between)"
"""Cores that are none of the process's own: those of the machine, told to a container with fewer."""
_BINDS = r"init_cpu_threads|numa_|mempolicy|migrate_pages|_bind_\w+|set_affinity"
_BINDING = r"VLLM_CPU_OMP_THREADS_BIND|SGLANG_CPU_OMP_THREADS_BIND|GOMP_CPU_AFFINITY|KMP_AFFINITY"


FEW, MANY = 2, 8
"""Cores that are too few for a rank, with its threads for CUDA, NCCL and tokens, and those of a machine that has more
to give."""
USED = 0.9


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log tells that a call was refused, the process may not make it, and it died of it or is still at it.

    Many servers only warn of it and go on.
    """
    binding = first_end(scene) if scene.deaths else stands_in(scene, _BINDS)
    yield from both(both(said(scene, _REFUSED), _may_not(scene)), binding)


def _died_of_it(scene: Scene) -> Iterator[Sighting]:
    """The log tells that a binding was refused, and at once whoever was to be bound ended by itself."""
    told = [one for one in lines(scene.bundle) if re.search(f"{_REFUSED}|{_OUTSIDE}", one.message, re.IGNORECASE)]
    gone = next(iter(scene.deaths), None)
    near = [one for one in told if gone and -1 <= gone.at - one.at <= TOGETHER_S]
    if gone and near and gone.signal is None:
        yield from first_end(scene)
        yield Sighting(shortened(f"log: {near[-1].message}"))


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    """The error that ended a process is the system's word against a binding, in numactl or in the call itself."""
    yield from failed(scene, Kind.BINDING)


def _may_not(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in processes(scene):
        held = one.facts.capabilities
        if isinstance(held, Gap):
            yield held
        elif "sys_nice" not in held and one.facts.seccomp not in {0} and one.process.rank >= 0:
            pid = one.process.id.pid
            yield Sighting(f"{scene.name(pid)} lacks CAP_SYS_NICE, under a seccomp filter", (pid,))


def _share(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks are bound to the very same part of the machine's cores, by a variable that binds them."""
    yield from both(variable(scene, _BINDING), _same_cores(scene))


def _confined(scene: Scene) -> Iterator[Sighting]:
    """A rank may run on so few cores of many that it uses all of them: a launcher has bound it (mpirun, srun)."""
    for one in runners(scene):
        cores = one.look.facts.cpus_allowed
        allowed = _count(cores)
        many = scene.bundle.host.cpus >= MANY
        if many and 0 < allowed <= FEW and one.change and one.change.cpu >= USED * allowed:
            used = f"uses {one.change.cpu:.1f} of the {counted(allowed, 'core')} that it may"
            quote = f"{scene.name(one.pid)} {used}: {cores} of {scene.bundle.host.cpus}"
            yield Sighting(shortened(quote), (one.pid,), cores)


def _same_cores(scene: Scene) -> Iterator[Sighting]:
    by_cores: dict[str, list[int]] = defaultdict(list)
    for one in runners(scene):
        if 0 < _count(one.look.facts.cpus_allowed) < scene.bundle.host.cpus:
            by_cores[one.look.facts.cpus_allowed].append(one.pid)
    for cores, pids in by_cores.items():
        if len(pids) > 1:
            yield Sighting(shortened(f"{scene.names.all(pids)} share the cores {cores}"), tuple(pids), cores)


def _count(cores: str) -> int:
    """How many a list like "0-3,8" names; 0 if it is none."""
    spans = [span.partition("-") for span in cores.split(",") if span]
    if not all(first.isdigit() and (not dash or end.isdigit()) for first, dash, end in spans):
        return 0
    return sum(int(end or first) - int(first) + 1 for first, _, end in spans)


CAUSE = Cause(
    id="numa_binding",
    nature=Nature.MACHINE,
    title="binding to NUMA nodes or cores goes wrong",
    clues=(
        decides("Was a binding refused to a process that may not bind, and died of it or is at it?", _refused),
        supports("Did a process end at once when a binding was refused?", _died_of_it),
        supports("Did a process end as cores or memory could not be bound to?", _ended_by_it),
        supports("Is a rank bound to one core or two of many, and uses them up?", _confined),
        supports("Are ranks bound to the very same cores?", _share),
    ),
    advice=Advice(
        confirm=("grep Cpus_allowed_list /proc/PID/task/*/status; numactl --show.",),
        work_around=("VLLM_CPU_OMP_THREADS_BIND=nobind, or ranges within the container's own cores.",),
        repair=("docker run --cap-add SYS_NICE (or --security-opt seccomp=unconfined).",),
    ),
    traps=(
        "mpirun binds each process to one core unless told otherwise: --bind-to none.",
        "Inside of a cpuset the first allowed core need not be 0.",
    ),
)
