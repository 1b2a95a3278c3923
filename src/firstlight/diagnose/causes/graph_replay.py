"""Replaying a CUDA graph does not end: ranks block in cuGraphLaunch."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, rules_out, supports
from firstlight.diagnose.devices import (
    all_in,
    complete,
    in_place,
    is_hidden,
    quoted,
    runners,
    still,
    unseen_native,
)
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said
from firstlight.diagnose.standing import Standing

_LAUNCH = r"^(cu(da)?|hip)GraphLaunch\b|^aclmdlRIExecute"
_GRAPHS = re.compile(r"/(cuda|npu)/graphs\.py$|graph_runner\.py$")
_WATCHDOG = r"Watchdog caught collective operation timeout|watchdog timeout"


def _blocks(scene: Scene) -> Iterator[Sighting | Gap]:
    """Everybody who runs the model is in the launch of a graph and does not get out."""
    yield from (one for one in all_in(scene, _LAUNCH) if isinstance(one, Sighting))
    if len(runners(scene)) == 1 and in_place(scene, _LAUNCH):
        yield Sighting(f"{scene.name(runners(scene)[0].pid)} is in cuGraphLaunch", (runners(scene)[0].pid,))
    yield from unseen_native(scene)


def _replays(scene: Scene) -> Iterator[Sighting | Gap]:
    """Nothing lies between the replay and the driver, as far as Python tells: it is in the launch of the graph."""
    seen = [one for one in runners(scene) if not is_hidden(scene, one)]
    if still(scene) and complete(scene) and all(map(_ends_in_replay, seen)):
        yield from quoted(scene, seen, r"^replay \(")


def _ends_in_replay(one: Standing) -> bool:
    inner = one.stack[0] if one.stack else None
    unseen = one.thread is not None and (isinstance(one.thread.native, Gap) or not one.thread.native)
    return bool(unseen and inner and inner.function == "replay" and _GRAPHS.search(inner.file))


def _timed_out(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(said(scene, _WATCHDOG), _blocks(scene))


def _eager(scene: Scene) -> Iterator[Sighting]:
    for name in ("enforce-eager", "disable-cuda-graph"):
        if scene.bundle.option(name) is not None:
            yield Sighting(f"option: --{name}")


CAUSE = Cause(
    id="graph_replay",
    nature=Nature.DEVICE,
    together=True,
    title="replaying a CUDA graph does not end",
    clues=(
        supports("Is everybody who runs the model in cuGraphLaunch?", _blocks),
        supports("Does Python stand in the replay of a graph everywhere, unmoved?", _replays),
        supports("Did a watchdog time out while they are?", _timed_out),
        rules_out("Are graphs switched off?", _eager),
    ),
    advice=Advice(
        confirm=("Start once without graphs: --enforce-eager (vLLM), --disable-cuda-graph (SGLang).",),
        work_around=("NCCL_GRAPH_MIXING_SUPPORT=0 where no collective runs outside of graphs.",),
        repair=("Update NCCL and driver: both have had faults where graphs and communication meet.",),
    ),
    traps=("cuGraphLaunch blocks as well where the GPU's queue is full, behind any kernel that hangs.",),
)
