"""The driver compiles PTX for this GPU, which the libraries hold no machine code for: minutes, at every start."""

from collections.abc import Iterator
from itertools import chain

from firstlight.core.gap import Gap
from firstlight.core.look import ThreadLook
from firstlight.core.vocabulary import Role
from firstlight.core.words import size
from firstlight.diagnose import where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, rules_out, supports
from firstlight.diagnose.devices import runners, unseen_native
from firstlight.diagnose.frames import words_of
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, libraries, stands_in, threads, variables

_LOADS = r"^(cu(da)?(Module|Library)(Load|Get)\w*|cudaFuncGetAttributes|cudaGetKernel)"
_COMPILER = "libnvidia-ptxjitcompiler"


def _compiles(scene: Scene) -> Iterator[Sighting | Gap]:
    """A thread computes inside of the driver's compiler."""
    for one, thread in threads(scene):
        at = _in_compiler(thread)
        if at:
            pid = one.process.id.pid
            yield Sighting(shortened(f"{scene.name(pid)} computes in {at}"), (pid,))
    yield from unseen_native(scene)


def _in_compiler(thread: ThreadLook) -> str:
    if thread.state != "R" or isinstance(thread.native, Gap):
        return ""
    return next((words_of(frame) for frame in thread.native if _COMPILER in frame.library), "")


def _probably(scene: Scene) -> Iterator[Sighting | Gap]:
    """The compiler is mapped, kernels are there as PTX only, and somebody computes with no compiler beside."""
    yield from both(both(_mapped(scene), _without_machine_code(scene)), _computes(scene))


def _fills_the_cache(scene: Scene) -> Iterator[Sighting | Gap]:
    """The driver's cache of kernels grows, which nothing but its compiler fills, while a module is loaded."""
    yield from both(_driver_cache(scene), chain(stands_in(scene, _LOADS, native=True), _computes(scene)))


def _driver_cache(scene: Scene) -> Iterator[Sighting]:
    elsewhere = variables(scene).get("CUDA_CACHE_PATH", "")
    for folder, grew in where.grown(scene, "compile_cache"):
        if folder.path.rstrip("/") == elsewhere.rstrip("/") or folder.path.endswith("/ComputeCache"):
            yield Sighting(
                shortened(f"{folder.path} grew by {size(max(0, grew))} between the looks"), what=folder.path
            )


def _mapped(scene: Scene) -> Iterator[Sighting | Gap]:
    for found in libraries(scene, "ptx_jit"):
        if isinstance(found, Gap):
            yield found
        else:
            yield Sighting(shortened(f"mapped: {found[1].path}"), (found[0].process.id.pid,))


def _without_machine_code(scene: Scene) -> Iterator[Sighting]:
    for one in scene.bundle.host.coverage:
        if one.missing and one.runs_from_ptx:
            lacking = ", ".join(one.missing)
            yield Sighting(
                shortened(f"{one.library} has only PTX for compute capability {lacking}"), what=one.library
            )


def _computes(scene: Scene) -> Iterator[Sighting]:
    for one in runners(scene):
        if one.change and one.change.cpu > 0.5:
            yield Sighting(f"{scene.name(one.pid)} uses {one.change.cpu:.1f} cores", (one.pid,))


def _others_compile(scene: Scene) -> Iterator[Sighting]:
    """A compiler works as a process of its own: that is what takes the time."""
    for one in scene.standings:
        if one.look.process.role is Role.COMPILER and one.moves:
            yield Sighting(f"{scene.name(one.pid)} is at work", (one.pid,))


CAUSE = Cause(
    id="ptx_jit",
    nature=Nature.SLOW,
    title="the driver compiles kernels for a GPU that the libraries have no machine code for",
    clues=(
        decides("Does a thread compute inside of the driver's PTX compiler?", _compiles),
        supports("Does somebody compute where kernels are there as PTX only and the compiler is loaded?", _probably),
        supports("Does the driver's cache of kernels grow while somebody loads some, or computes?", _fills_the_cache),
        rules_out("Does another compiler work?", _others_compile),
        foresees("Are kernels there as PTX only for a GPU of this machine?", _without_machine_code),
    ),
    advice=Advice(
        confirm=(
            "du -s ~/.nv/ComputeCache twice: it grows; cuobjdump --list-elf on the library lists its machine code.",
        ),
        work_around=(
            (
                "Keep the driver's cache and make it large: CUDA_CACHE_PATH on a volume that survives the container,"
                " CUDA_CACHE_MAXSIZE=4294967296. Wait once."
            ),
        ),
        repair=("Install a build for this compute capability (TORCH_CUDA_ARCH_LIST when building).",),
    ),
    traps=("There is no nvcc, cicc or ptxas to be seen: the compiler is a library inside of the process.",),
)
