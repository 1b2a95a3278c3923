"""The control group allows too few processes and threads."""

from collections.abc import Iterator

from firstlight.core.facts import Cgroup
from firstlight.core.gap import Gap
from firstlight.diagnose.causes.ulimit import NO_THREADS, everyone
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, rules_out, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, kernel_said, said

NEARLY = 0.95
FEW = 1024


def _groups(scene: Scene) -> dict[str, Cgroup]:
    """The control groups of the server, as they were last seen."""
    return {one.facts.cgroup.path: one.facts.cgroup for one in everyone(scene)}


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """The control group has refused forks."""
    for path, group in _groups(scene).items():
        if isinstance(group.pids_refused, Gap):
            yield group.pids_refused
        elif group.pids_refused > 0:
            quote = f"control group {path}: pids.events says that {group.pids_refused} forks were refused"
            yield Sighting(shortened(quote), what=_limit(group))


def _limit(group: Cgroup) -> str:
    return "" if isinstance(group.pids_max, Gap) else str(group.pids_max)


def _full(scene: Scene) -> Iterator[Sighting | Gap]:
    """The control group is nearly full."""
    for path, group in _groups(scene).items():
        if isinstance(group.pids, Gap) or isinstance(group.pids_max, Gap):
            yield group.pids if isinstance(group.pids, Gap) else group.pids_max  # type: ignore[misc]
        elif 0 < group.pids_max <= group.pids / NEARLY:
            quote = f"control group {path}: {group.pids} of {group.pids_max} processes and threads"
            yield Sighting(shortened(quote), what=_limit(group))


def _rejected(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel's log tells that the controller of processes refused a fork."""
    yield from kernel_said(scene, r"fork rejected by pids controller")


def _told_and_counted(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both((*_refused(scene), *_full(scene)), said(scene, NO_THREADS))


def _either(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _refused(scene)
    yield from _full(scene)


def _unlimited(scene: Scene) -> Iterator[Sighting]:
    """No control group limits processes, and none has refused any."""
    groups = _groups(scene).values()
    if groups and all(group.pids_max == -1 and group.pids_refused == 0 for group in groups):
        yield Sighting("the control groups of the server do not limit processes, and refused none")


def _foreseen(scene: Scene) -> Iterator[Sighting]:
    group = scene.bundle.host.cgroup
    if not isinstance(group.pids_max, Gap) and 0 < group.pids_max < FEW:
        yield Sighting(f"the control group allows {group.pids_max} processes and threads", what=str(group.pids_max))


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    known = any(one.what for one in seen)
    return f"the control group allows too few processes and threads{' ({what})' if known else ''}"


CAUSE = Cause(
    id="cgroup_pids",
    nature=Nature.MACHINE,
    title=_title,
    clues=(
        decides("Were threads refused, and does the control group's count say so?", _told_and_counted),
        supports("Does the kernel's log tell that a control group refused a fork?", _rejected),
        supports("Has the control group refused forks, or is it nearly full?", _either),
        rules_out("Is there no such limit?", _unlimited),
        foresees("Does the control group allow few processes and threads?", _foreseen),
    ),
    advice=Advice(
        confirm=(
            "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current /sys/fs/cgroup/pids.events in the container.",
        ),
        work_around=(
            (
                "Fewer threads: OMP_NUM_THREADS=1, TORCHINDUCTOR_COMPILE_THREADS=4, MAX_JOBS=4, "
                "TOKENIZERS_PARALLELISM=false."
            ),
        ),
        repair=("docker run --pids-limit -1; Kubernetes podPidsLimit of the kubelet; systemd TasksMax=infinity.",),
    ),
    traps=("ulimit -u says unlimited all the same: this is another counter.",),
    explains=frozenset({"ulimit"}),
)
