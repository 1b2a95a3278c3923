"""Kernels or graphs are being compiled: it works, and takes minutes without a word."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose import building, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, rules_out, speaks_against, supports
from firstlight.diagnose.compare import BUSY_CPU, Change
from firstlight.diagnose.devices import runners
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both


def _in_this_process(scene: Scene) -> Iterator[Sighting | Gap]:
    """A thread computes in a compiler's code, and a compile cache grows."""
    yield from both(building.computing(scene), building.growing_caches(scene))


def _fresh_cache(scene: Scene) -> Iterator[Sighting | Gap]:
    """A compile cache grows while somebody stands in code that compiles, whether or not it was seen to compute."""
    yield from both(building.growing_caches(scene), where.stands(scene, building.COMPILES))


def _unseen(scene: Scene) -> Iterator[Sighting | Gap]:
    """A folder that only compilers fill grows, and somebody computes of whom no stack could be seen."""
    hidden = (
        Sighting(shortened(f"{scene.name(one.pid)} {one.change.why}, and its stack could not be seen"), (one.pid,))
        for one in runners(scene)
        if one.change and one.change.cpu >= BUSY_CPU and one.thread and isinstance(one.thread.stack, Gap)
    )
    grown = (one for one in building.growing_caches(scene) if _only_of_compilers(scene, one.what))
    yield from both(grown, hidden)


def _only_of_compilers(scene: Scene, path: str) -> bool:
    """What engines keep there besides, and what drivers do, has other names."""
    looks = scene.bundle.looks
    purposes = {one.purpose for one in looks[-1].folders if one.path == path} if looks else set()
    return bool(purposes & {"compile_cache", "extensions"}) and not path.endswith("/ComputeCache")


def _all_still(scene: Scene) -> Iterator[Sighting]:
    """Nobody computes at all."""
    changes = scene.changes
    if changes and changes.processes and {one.change for one in changes.processes} == {Change.STILL}:
        yield Sighting(f"no process of the server used any CPU in {changes.seconds:.0f} s, and no compiler is there")


CAUSE = Cause(
    id="slow_jit",
    nature=Nature.SLOW,
    title="the server compiles kernels: it works, and this takes a while",
    clues=(
        decides("Does a compiler that it started compute?", building.at_work),
        decides("Does a thread compute in a compiler's code while a compile cache grows?", _in_this_process),
        supports("Does a thread compute in a compiler's code?", building.computing),
        supports("Does a compile cache grow while somebody stands in code that compiles?", _fresh_cache),
        supports("Does a folder of compiled kernels grow while somebody computes, unseen?", _unseen),
        speaks_against("Do compilers come and go, none of them lasting?", building.come_and_go),
        rules_out("Is every process still?", _all_still),
    ),
    advice=Advice(
        confirm=(
            "Look twice, a minute apart: top -c shows nvcc, cicc, ptxas or a busy thread; the cache folder grows.",
        ),
        work_around=(
            (
                "Wait: the next start finds the cache warm. Without the wait: SGLang "
                "SGLANG_ENABLE_JIT_DEEPGEMM=0, vLLM --enforce-eager or VLLM_DEEP_GEMM_WARMUP=skip."
            ),
        ),
        repair=(
            (
                "Compile beforehand (python -m sglang.compile_deep_gemm with the same arguments), install the "
                "ahead-of-time kernels (flashinfer-jit-cache), and keep the caches on a local disk that "
                "outlives the container: TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR, VLLM_CACHE_ROOT, "
                "SGLANG_CACHE_DIR, FLASHINFER_WORKSPACE_BASE."
            ),
        ),
    ),
    traps=(
        "Other ranks that wait in a collective meanwhile are not stuck; their watchdog may end them all the same.",
        "A build that fails and is tried again looks the same from a distance: its compilers do not last.",
        "A persistent cache that is never hit: the key may hold something that differs from start to start.",
    ),
)
