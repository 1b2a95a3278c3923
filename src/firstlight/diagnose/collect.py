"""What to collect where nothing is established: what would tell causes apart that look alike in that place. Pure."""

from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.diagnose.devices import COLLECTIVE, COMMUNICATOR, in_place
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import gpus, processes


class Question(NamedTuple):
    """What to collect where those who run the model stand in `place`."""

    place: str
    steps: tuple[str, ...]


_NCCL_DEBUG = (
    "Start again with NCCL_DEBUG=INFO: each rank's last line tells whether it waits for others (bootstrap) or sets up"
    " NVLS, peer access or the network."
)
_PAIR = (
    "Run an all-reduce of two ranks outside of the engine, under a time limit, once with NCCL_P2P_DISABLE=1: it tells"
    " peer access from all else."
)
_RECORDER = (
    "Start again with TORCH_FR_BUFFER_SIZE=2000 and look once more: the dumps tell a missing rank from ranks that"
    " make different calls."
)
_EAGER = "Start once with --enforce-eager (vLLM) or --disable-cuda-graph (SGLang): it tells graphs from all else."
_DUMP = (
    "CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1 with CUDA_COREDUMP_PIPE before the start: a dump names the kernel that is"
    " resident."
)
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")
QUESTIONS = (
    Question(COMMUNICATOR, (_NCCL_DEBUG, _PAIR)),
    Question(COLLECTIVE, (_RECORDER,)),
    Question(r"^\S*capture\w* \(", (_EAGER,)),
    Question(r"^\S*synchronize \(", (_DUMP,)),
)


def what_to_collect(scene: Scene) -> tuple[str, ...]:
    """The first question that fits the place where those who run the model stand; all of them are about GPUs."""
    if lacks_gpus(scene):
        return ()
    return next((one.steps for one in QUESTIONS if in_place(scene, one.place)), ())


def lacks_gpus(scene: Scene) -> bool:
    """Whether every machine was looked at and has no GPU: no driver tells of one, and no device of one is there."""
    return all(map(_lacks_gpus, scene.machines))


def _lacks_gpus(scene: Scene) -> bool:
    known, host = gpus(scene), scene.bundle.host
    if not (known == () or (isinstance(known, Gap) and known.reason is GapReason.NOT_INSTALLED)):
        return False
    devices = () if isinstance(host.devices, Gap) else host.devices
    opened = (file.target for one in processes(scene) for file in one.files)
    return not any(one.startswith(_DEVICES) for one in (*devices, *opened))
