"""The cluster has not the GPUs, or not the nodes, that the server waits for."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose import where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said

_ASKS_AGAIN = (
    r"waiting for creating a placement group|number of required GPUs exceeds the total"
    r"|cannot provide a placement group"
    r"|waiting for .*(resources|nodes|workers) to (become|be) available|Insufficient (nvidia\.com/gpu|resources)"
    r"|\d+/\d+ nodes are available: |FailedScheduling|\bunschedulable\b|taken more than \S+ to be scheduled"
    r"|wait\w* for .{0,20}\b(ray|cluster) (workers|nodes)\b"
    r"|PlacementGroupSchedulingError|cannot be scheduled right now|no available node types can fulfill"
    r"|queued and waiting for resources|step creation \w+ disabled|no available slot found|no suitable worker"
    r"|not enough (free |available )?(gpus|resources|nodes|workers)\b"
)
_WAITS = (
    r"(_?wait_until_pg_\w+|initialize_(ray_)?cluster|_verify_bundles|placement_group\w*|wait_placement_group_ready) "
    r"|^(wait|ready|_call_placement_group_ready|\w*\.wait) \S*ray/util/placement_group\.py"
)


def _waits_for_ray(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process stands where it waits for a placement group, and says so again and again."""
    yield from both(where.stands(scene, _WAITS), said(scene, _ASKS_AGAIN))


def _told(scene: Scene) -> Iterator[Sighting]:
    """The line that is said while resources are waited for, with what is asked for."""
    yield from said(scene, _ASKS_AGAIN)


def _stands(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from where.stands(scene, _WAITS)


CAUSE = Cause(
    id="resource_wait",
    nature=Nature.MACHINE,
    title="the server waits for GPUs or nodes that its cluster does not have free",
    clues=(
        decides("Does a process wait for a placement group, and say so?", _waits_for_ray),
        supports("Does the log say that resources are waited for?", _told),
        supports("Does a process stand where it waits for a placement group?", _stands),
    ),
    advice=Advice(
        confirm=(
            "ray status: demand against totals and against the largest node; ray list nodes; kubectl get pods.",
        ),
        work_around=(
            (
                "Ask for less: a smaller --tensor-parallel-size; or for one machine: "
                "--distributed-executor-backend mp."
            ),
        ),
        repair=(
            (
                "Bring the missing node up (a pod that hangs in Init registers no GPU), end what holds the "
                "GPUs, and see that each node registers its accelerator as GPU and not under another name."
            ),
        ),
    ),
    traps=("CUDA_VISIBLE_DEVICES at the start of Ray decides what a node registers.",),
)
