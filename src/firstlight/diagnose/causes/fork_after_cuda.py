"""A process was forked from one that had started CUDA: CUDA does not work in it."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import ProcessLook
from firstlight.core.vocabulary import Phase
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, rules_out, supports
from firstlight.diagnose.devices import is_hidden, runners
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, processes, said
from firstlight.diagnose.standing import Standing

_TOLD = r"Cannot re-initialize \w+ in forked subprocess|CUDA.*(initialized|used).*before.*fork|poison_fork"
"""In torch's words for any accelerator: CUDA, XPU, NPU …"""
_NO_CONTEXT = r"(cuda|hip) ?error:? (\(?3\)?:? )?.?initialization error|(cuda|hip)ErrorInitializationError"
"""What CUDA says of itself in a child of a fork (error 3)."""
_USES_CUDA = (
    "(libcuda.so",
    "(libcudart",
    "(libamdhip64",
    "(libhsa-runtime64",
    "_cuda_init (",
    "_lazy_init (",
    "set_device (",
)
_MEETS = ("init_distributed", "init_process_group", "init_device", "ncclCommInitRank", "init_worker")


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from said(scene, _TOLD)


def _without_context(scene: Scene) -> Iterator[Sighting | Gap]:
    """CUDA does not start, and there is such a child."""
    yield from both(said(scene, _NO_CONTEXT), (told for one in _forked(scene) for told in _told(scene, one)))


def _in_cuda(scene: Scene) -> Iterator[Sighting | Gap]:
    """Such a child is inside of CUDA, and does not get on."""
    for one in _forked(scene):
        if not one.moves and any(words.startswith(_USES_CUDA) or _within(words) for words in one.words):
            yield from _told(scene, one)


def _within(words: str) -> bool:
    return any(place in words for place in _USES_CUDA)


def _at_the_start(scene: Scene) -> Iterator[Sighting | Gap]:
    """Such a child sets up devices or the meeting of ranks."""
    for one in _forked(scene):
        if not one.moves and any(place in words for words in one.words for place in _MEETS):
            yield from _told(scene, one)


def _unseen(scene: Scene) -> Iterator[Sighting]:
    """Such a child is to run the model and does not move, before any weights; no stack of it may be taken."""
    early = scene.bundle.phase in {Phase.SPAWN, Phase.IMPORT, Phase.CONFIG, Phase.RENDEZVOUS, Phase.COMM_INIT}
    hidden = [one for one in runners(scene) if early and is_hidden(scene, one)]
    yield from (told for one in _forked(scene) if one in hidden for told in _told(scene, one))


def _forked(scene: Scene) -> list[Standing]:
    """Children that were forked and never called exec, of a parent that has started CUDA."""
    by_pid = {one.process.id.pid: one for one in processes(scene)}
    return [
        one
        for one in scene.standings
        if one.look.facts.forked and (parent := by_pid.get(one.look.process.ppid)) and _has_gpu(parent)
    ]


def _has_gpu(one: ProcessLook) -> bool:
    return any(_is_gpu(file.target) for file in one.files)


def _is_gpu(path: str) -> bool:
    """Whether only CUDA, HIP or CANN opens that device: NVML, which is harmless, opens /dev/nvidia0 as well."""
    return path in {"/dev/nvidia-uvm", "/dev/kfd", "/dev/dxg"} or path.startswith("/dev/davinci")


def _told(scene: Scene, one: Standing) -> Iterator[Sighting]:
    parent = one.look.process.ppid
    yield Sighting(f"{scene.name(one.pid)} was forked from {scene.name(parent)}, which has started CUDA", (one.pid,))
    if one.words:
        yield Sighting(shortened(f"{scene.name(one.pid)}: {' < '.join(one.words[:3])}"), (one.pid,))


def _spawned(scene: Scene) -> Iterator[Sighting]:
    """Nobody was forked without exec, and everybody was asked."""
    asked = [one for one in processes(scene) if not isinstance(one.facts.environment, Gap)]
    if len(asked) > 1 and not any(one.facts.forked for one in asked):
        yield Sighting("no process of the server was forked without exec")


CAUSE = Cause(
    id="fork_after_cuda",
    nature=Nature.DIVERGED,
    title="{who} was forked from a process that had started CUDA",
    clues=(
        decides("Does torch refuse CUDA in a forked process?", _refused),
        supports("Does CUDA not start, and was a process forked from one that has started it?", _without_context),
        supports("Is a process inside of CUDA that was forked from one that has started CUDA?", _in_cuda),
        supports("Does such a process set up its device or meet others?", _at_the_start),
        supports("Does such a child that is to run the model not move at its start, out of sight?", _unseen),
        rules_out("Was nobody forked without exec?", _spawned),
    ),
    advice=Advice(
        confirm=(
            "VLLM_WORKER_MULTIPROC_METHOD=spawn, or multiprocessing.set_start_method('spawn') before all else.",
        ),
        work_around=(
            "Start the engine before anything touches CUDA; torch.cuda.is_available() and device_count() do.",
        ),
        repair=("Use spawn, with the start under if __name__ == '__main__'.",),
    ),
    traps=("Its log ends at the rendezvous: it looks as if a rank or an address were missing.",),
)
