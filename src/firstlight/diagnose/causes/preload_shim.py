"""A library that was put between the program and CUDA (vGPU shim, profiler, instrumentation) blocks in a call."""

import re
from collections.abc import Iterator
from itertools import dropwhile, takewhile

from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.look import NativeFrame, ProcessLook
from firstlight.core.vocabulary import Phase
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.devices import (
    COMMUNICATOR,
    all_in,
    complete,
    in_place,
    is_hidden,
    quoted,
    runners,
    still,
    unseen_native,
    unseen_places,
)
from firstlight.diagnose.failures import ended
from firstlight.diagnose.frames import words_of
from firstlight.diagnose.losses import CRASHES
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, libraries, lines, stands_in, threads, variable

_KINDS = ("foreign", "profiler", "preload")
_HARMLESS = re.compile(
    r"jemalloc|tcmalloc|mimalloc|memray|lib[at]san|lib(cupti|gomp|iomp5|omp|numa|stdc\+\+|hugetlbfs|nss_\w+)\b"
)
"""What is often preloaded and never comes between the program and CUDA."""
_WAITS = re.compile(r"^(libc|libpthread|ld-linux)[-.\w]*$")
_STARTS = re.compile(r"_?call_init\b|_dl_init\b")
"""The loader runs what a library wants run before the program begins."""
_STEM = re.compile(r"\.so[\d.]*$")
_IN_FRAME = re.compile(r"\s*(File \"|#\d|\d{1,3}\s|/\S+\(|\[?0x)")
"""How programs print a frame of a crash: by file and line, or by library and offset."""
_CALLS = re.compile(r"_*(cu(da)?|[nr]ccl|hip|hsa_?|acl(rt)?)[A-Z]|nvml[A-Z]|_*hsa_")
_CUDA_CALLS = (
    rf"{COMMUNICATOR}|^cu(da)?(Init|Mem|Malloc|Ctx|Module|Library|Stream|Event|DevicePrimary)\w*"
    r"|^(_cuda_init|set_device|mem_get_info) "
)
_WAITS_IN_CUDA = (
    r"^(cu(da)?|hip)(Graph|Launch|Func|Stream|Event|Device|Ctx)\w* \(|^(replay|capture_(begin|end)) \(graphs\.py"
    r"|^(synchronize|query|wait_stream|wait_event) \((streams|__init__)\.py"
)
"""Where any kernel that hangs shows, too: only with nobody moving does it tell."""


def _blocks(scene: Scene) -> Iterator[Sighting | Gap]:
    """A thread waits, and who made it wait is the shim itself, in its own version of a CUDA or NCCL call, or before
    the program has begun."""
    shims = {_name(library.path) for _, library in _shims(scene)}
    for one, thread in threads(scene):
        standing = scene.standing(one.process.id.pid)
        runs = thread.state == "R" and not (standing and standing.spins)
        if runs or isinstance(thread.native, Gap) or (standing and standing.moves):
            continue
        waiter = next((frame for frame in thread.native if not _WAITS.match(_name(frame.library))), None)
        if waiter and _name(waiter.library) in shims and _of_its_own(thread.native, waiter.library):
            words = " < ".join(filter(None, map(words_of, thread.native[:5])))
            yield Sighting(
                shortened(f"{scene.name(one.process.id.pid)}: {words}"), (one.process.id.pid,), waiter.library
            )
    yield from unseen_native(scene)


def _of_its_own(native: tuple[NativeFrame, ...], shim: str) -> bool:
    """Whether the shim waits in its own version of a CUDA or NCCL call, or as the loader starts it; profilers stand
    in for libc's waits, too, which the program asked for."""
    inside = tuple(dropwhile(lambda frame: frame.library != shim, native))
    own = tuple(takewhile(lambda frame: frame.library == shim, inside))
    starts = any(_STARTS.match(frame.function) for frame in inside[len(own) : len(own) + 1])
    return starts or any(_CALLS.match(frame.function) for frame in own)


def _crashes(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process crashed, and the frames that the log has of it name a library that is preloaded."""
    crashes = [ended(gone) for gone in scene.deaths[:1] if gone.signal in CRASHES]
    names = {_STEM.sub("", one.what) or one.what for one in _preloads(scene) if isinstance(one, Sighting)}
    names |= {_STEM.sub("", _name(path)) for path in re.split(r"[ :]", scene.bundle.variable("LD_PRELOAD")) if path}
    frames = (
        Sighting(shortened(f"log: {line.message}"), what=name)
        for line in (lines(scene.bundle) if crashes else ())
        for name in sorted(names)
        if name and _IN_FRAME.match(line.message) and re.search(rf"/{re.escape(name)}\b", line.message)
    )
    yield from both(frames, crashes)


def _maps_it_in_cuda(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process that maps a shim stands in the making of a communicator or in a CUDA call."""
    users = {one.process.id.pid for one, _ in _shims_by_process(scene)}
    places = (*stands_in(scene, _CUDA_CALLS), *stands_in(scene, _CUDA_CALLS, native=True))
    within = [one for one in places if isinstance(one, Gap) or set(one.pids) & users]
    yield from both(_mapped(scene), within)


def _all_wait_with_it(scene: Scene) -> Iterator[Sighting | Gap]:
    """Everybody who runs the model maps a shim and waits in CUDA, unmoved."""
    users = {one.process.id.pid for one, _ in _shims_by_process(scene)}
    those = runners(scene)
    if those and all(one.pid in users for one in those) and still(scene) and complete(scene):
        waiting = in_place(scene, _WAITS_IN_CUDA)
        if all(one in waiting or is_hidden(scene, one) for one in those):
            yield from both(_mapped(scene), quoted(scene, waiting, _WAITS_IN_CUDA))
        yield from unseen_places(scene)


def _meets_unseen(scene: Scene) -> Iterator[Sighting | Gap]:
    """Where no stack may be taken: everybody who runs the model maps a shim, and communicators do not come about."""
    users = {one.process.id.pid for one, _ in _shims_by_process(scene)}
    those = runners(scene)
    hidden = all(one.pid in users and one.thread and isinstance(one.thread.stack, Gap) for one in those)
    if those and hidden and scene.bundle.phase is Phase.COMM_INIT and still(scene) and complete(scene):
        yield from _mapped(scene)


def _set_for_all(scene: Scene) -> Iterator[Sighting | Gap]:
    """Where it may not be seen what processes map: one is to be preloaded, and all are in a CUDA or NCCL call."""
    hidden = any(isinstance(one.look.facts.libraries, Gap) for one in runners(scene))
    if hidden and still(scene) and complete(scene):
        yield from both(_preloads(scene), all_in(scene, _CUDA_CALLS))


def _mapped(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from (found for found in libraries(scene, *_KINDS) if isinstance(found, Gap))
    for name, library in _shims(scene):
        how = "preloaded" if library.preloaded else "mapped"
        yield Sighting(shortened(f"{how} into {name}: {library.path}"), what=_name(library.path))


def _shims(scene: Scene) -> Iterator[tuple[str, Library]]:
    seen = set()
    for one, library in _shims_by_process(scene):
        if library.path not in seen:
            seen.add(library.path)
            yield scene.name(one.process.id.pid), library


def _shims_by_process(scene: Scene) -> Iterator[tuple[ProcessLook, Library]]:
    for found in libraries(scene, *_KINDS):
        if not isinstance(found, Gap) and _is_shim(found[1]):
            yield found


def _is_shim(library: Library) -> bool:
    between = library.preloaded or library.kind == "profiler"
    return between and not _HARMLESS.search(_name(library.path))


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _preloads(scene: Scene) -> Iterator[Sighting | Gap]:
    """Something is preloaded into every program, or will be into this one."""
    preload = scene.bundle.host.preload
    told = [] if isinstance(preload, Gap) else [path for path in preload if not _HARMLESS.search(path)]
    yield from (Sighting(shortened(f"/etc/ld.so.preload: {path}"), what=_name(path)) for path in told)
    for one in variable(scene, r"LD_PRELOAD|CUDA_INJECTION64_PATH|NVTX_INJECTION64_PATH"):
        if not _HARMLESS.search(one.quote):
            yield one


CAUSE = Cause(
    id="preload_shim",
    nature=Nature.DEVICE,
    title="{what}, a library between the program and CUDA, blocks in a call",
    clues=(
        decides(
            "Does a thread wait inside of a preloaded library, within a CUDA or NCCL call, or as it is loaded?",
            _blocks,
        ),
        supports("Did a process crash with a preloaded library on its stack?", _crashes),
        supports(
            "Does a process into which such a library is loaded stand in a CUDA or NCCL call?", _maps_it_in_cuda
        ),
        supports("Does everybody who runs the model have such a library, and wait in CUDA?", _all_wait_with_it),
        supports("Has everybody such a library where communicators do not come about, unseen?", _meets_unseen),
        supports("Is one to be preloaded where all are in such a call, and maps are out of sight?", _set_for_all),
        foresees("Is a library preloaded that comes between the program and CUDA?", _preloads),
    ),
    advice=Advice(
        confirm=("Start once without it: unset LD_PRELOAD and CUDA_INJECTION64_PATH; see /etc/ld.so.preload, too.",),
        work_around=("HAMi's libvgpu: CUDA_DISABLE_CONTROL=true makes it pass calls through.",),
        repair=("Update the library, or start on a node without GPU sharing and without the instrumentation.",),
    ),
    traps=(
        "An allocator that is preloaded (jemalloc, tcmalloc) is not meant: it never comes between program and CUDA.",
        "torchrun's tests may pass: the engine loads NCCL through ctypes and takes another way through the library.",
    ),
    explains=frozenset({"nccl_p2p_pcie", "nccl_nvls", "driver_toolkit_mismatch"}),
)
