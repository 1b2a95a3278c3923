"""A GPU kernel does not end: the GPU is busy at idle power, and every rank waits above the same kernel.

Kernels run behind the back of the host: where the host waits need not be the kernel that hangs.
"""

import re
from collections.abc import Iterator
from itertools import chain

from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, rules_out, supports
from firstlight.diagnose.devices import (
    COLLECTIVE,
    COMMUNICATOR,
    CUSTOM_ALL_REDUCE,
    FUSED_ALL_REDUCE,
    IDLE_MEMORY_PERCENT,
    complete,
    in_place,
    is_hidden,
    quoted,
    runners,
    some_in,
    spinning,
    spins,
    still,
    unseen_places,
)
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, variable
from firstlight.diagnose.standing import Standing

_KERNELS = re.compile(
    r"/(sgl_kernel|flashinfer|flash_attn\w*|flash_mla|vllm_flash_attn|xformers|fla|mamba_ssm|causal_conv1d|deep_gemm"
    r"|aiter|triton|tilelang|cutlass|quack|bitsandbytes|jit_kernel)/|/_custom_ops\.py$|/custom_ops/"
    r"|/triton_(ops|kernels)/|_triton(_kernels?)?\.py$|/triton_\w+\.py$|/kernels/cuda/"
)
"""Libraries of kernels, and the files in which engines keep their own."""
_MEETS = f"{COLLECTIVE}|{COMMUNICATOR}|{CUSTOM_ALL_REDUCE}|{FUSED_ALL_REDUCE}"
_WAITS_FOR_GPU = (
    r"^\S*synchronize(Stream|WithTimeout)?\w* ?\(|^cu(da)?(Stream|Event|Device|Ctx)Synchronize"
    r"|^(cu|cuda|hip)(Memcpy\w*|(Stream|Event)Query)|Signal::Wait|^hsaKmtWait"
)
"""CUDA and its kin, the runtime of ROCm, and that of Ascend."""
_TAKES_A_RESULT = re.compile(r"\.(item|tolist|cpu|numpy|nonzero|synchronize)\(")
_RUNS_MODEL = re.compile(r"^(forward\w*|execute_model|\w*dummy\w*_run\w*|profile_run|\w*capture\w*|\w*sample\w*)$")
_JIT = re.compile(r"jit|compil|build|load_module|autotun", re.IGNORECASE)
_JIT_FILES = re.compile(r"/(jit|compiler|autotuner?|tuner)/|cpp_extension|/autotuner\.py$")
_LAUNCHES = re.compile(r"/triton/")
"""Every kernel of Triton is started by the same functions: whose it is, their caller tells."""


def _wedged(scene: Scene) -> Iterator[Sighting | Gap]:
    """GPUs spin, and everybody who runs the model is in the same call of a library of kernels."""
    yield from both(_same_kernel(scene), spinning(scene))


def _same_kernel(scene: Scene) -> Iterator[Sighting | Gap]:
    those = [one for one in runners(scene) if not is_hidden(scene, one)]
    calls = {_kernel(one) for one in those}
    if len(calls) == 1 and None not in calls and complete(scene):
        yield from quoted(scene, those, re.escape(str(next(iter(calls)))))
    yield from unseen_places(scene)


def _kernel(one: Standing) -> str | None:
    """The function of a library of kernels that it is in, innermost; not if it builds or tunes one."""
    if _builds(one):
        return None
    at = next((at for at, frame in enumerate(one.stack) if _KERNELS.search(frame.file)), None)
    callers = () if at is None else one.stack[at:]
    return next((frame.function for frame in callers if not _LAUNCHES.search(frame.file)), None)


def _builds(one: Standing) -> bool:
    return any(_JIT.search(frame.function) or _JIT_FILES.search(frame.file) for frame in one.stack)


def _one_by_one(scene: Scene) -> Iterator[Sighting | Gap]:
    """Calls wait for their kernels here, so that the frame is the kernel's own."""
    sure = (one for one in variable(scene, "CUDA_LAUNCH_BLOCKING") if one.quote.endswith("=1"))
    yield from both(both(_same_kernel(scene), spinning(scene)), sure)


def _alone(scene: Scene) -> Iterator[Sighting | Gap]:
    """The only process with a GPU waits for it, and no peer could be what that waits for, not even another GPU of
    that process."""
    busy = [one for one in spinning(scene) if isinstance(one, Sighting)]
    alone = len(runners(scene)) == 1 and scene.bundle.nodes == 1 and scene.bundle.ranks <= 1
    if alone and len(busy) < 2 and complete(scene):
        yield from both(chain(some_in(scene, _WAITS_FOR_GPU), _takes_a_result(scene)), spinning(scene))


def _in_one_place(scene: Scene) -> Iterator[Sighting | Gap]:
    """Nobody but this process is on the only GPU that is busy, without touching its memory; the process stays in one
    place, where it runs the model, and has no peers."""
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    busy = [card for card in cards if spins(card)]
    those = runners(scene)
    alone = len(those) == len(busy) == 1 and scene.bundle.nodes == 1 and scene.bundle.ranks <= 1
    if alone and _is_held(scene, those[0]) and _rests(busy[0]) and _is_own(busy[0], those[0].pid):
        yield from both(quoted(scene, those), spinning(scene)) if complete(scene) and not _builds(those[0]) else ()


def _is_held(scene: Scene, one: Standing) -> bool:
    """Whether it burns CPU in one place, as CUDA waits, or sleeps where it runs the model, as it waits if told so."""
    return one.spins or (still(scene) and any(_RUNS_MODEL.search(frame.function) for frame in one.stack))


def _rests(card: Gpu) -> bool:
    """Whether it touches no memory, as far as its driver tells."""
    return isinstance(card.memory_activity, Gap) or card.memory_activity <= IDLE_MEMORY_PERCENT


def _is_own(card: Gpu, pid: int) -> bool:
    """Whether nobody else was seen on the GPU, whose kernel it could be. Drivers may number ours otherwise."""
    there = () if isinstance(card.processes, Gap) else card.processes
    return len(there) < 2 and all(one.here is not True or one.pid == pid for one in there)


def _takes_a_result(scene: Scene) -> Iterator[Sighting]:
    """Python asks for a tensor's values, and nothing lies between it and the driver."""
    those = (one for one in runners(scene) if one.stack and _TAKES_A_RESULT.search(one.stack[0].code))
    yield from quoted(scene, those)


def _meets(scene: Scene) -> Iterator[Sighting]:
    """Somebody stands in an exchange between ranks: the busy GPUs may only wait for a peer."""
    yield from quoted(scene, in_place(scene, _MEETS), _MEETS)


def _apart(scene: Scene) -> Iterator[Sighting]:
    """Ranks are in different places, all of them seen."""
    places = {one.words[:1] for one in runners(scene)}
    if len(places) > 1 and () not in places and len({_kernel(one) for one in runners(scene)}) > 1:
        yield from quoted(scene, runners(scene))


CAUSE = Cause(
    id="kernel_hang_sm",
    nature=Nature.DEVICE,
    together=True,
    title="a GPU kernel does not end; {who} waits for it",
    clues=(
        supports("Are GPUs busy without working, with every rank in the same call of a library of kernels?", _wedged),
        supports(
            "Do calls wait for their kernels (CUDA_LAUNCH_BLOCKING=1), so that the call is the kernel?", _one_by_one
        ),
        supports("Is a GPU busy without working, with no other rank that it could wait for?", _alone),
        supports(
            "Does the only process stay in one place while its GPU is busy and touches no memory?", _in_one_place
        ),
        rules_out("Does a rank stand in an exchange with others?", _meets),
        rules_out("Are the ranks in different places?", _apart),
    ),
    advice=Advice(
        confirm=(
            (
                "CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1 with CUDA_COREDUMP_PIPE before the start, and cuda-gdb on the"
                " dump name the kernel."
            ),
            (
                "Start once with another backend: --attention-backend, --sampling-backend pytorch (SGLang),"
                " VLLM_USE_FLASHINFER_SAMPLER=0 (vLLM)."
            ),
        ),
        work_around=("Switch off what uses the kernel: speculative decoding, the attention or MoE backend.",),
        repair=("Go back to the last version of the kernel package that worked, and report kernel and GPU model.",),
    ),
    traps=(
        "Where the host waits need not be the kernel that hangs: a collective before it may.",
        "Another backend that only moves the time of the stall is no proof.",
        "CUDA_LAUNCH_BLOCKING=1 may hide the very stall.",
    ),
)
