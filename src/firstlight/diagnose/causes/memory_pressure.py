"""The machine is short of memory: it swaps, or looks for pages to free, and everything crawls."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase
from firstlight.core.words import size
from firstlight.diagnose import storage, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, rules_out, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, processes, threads

PRESSED = 10.0
"""Percent of the time in which tasks wait for memory, from which a machine is short of it."""
HARD_PRESSED = 30.0
"""From which it tells by itself, whatever the memory is wanted for."""
EASY = 1.0
SWAPS_S = 100.0
"""Pages swapped a second from which a machine swaps in earnest."""
MUCH = 10
"""How many times as many leave no doubt, by themselves."""
SWAPPED_BYTES = 256 * 1024 * 1024
FREE_SHARE = 0.1
USUAL_PAGE = 4096
FULL_SHARE = 0.98
_HELD = re.compile(r"mem_cgroup_oom_(synchronize|wait)")
_LOADS = r"load\w* .*(loader|weight_utils|safetensors|model_runner|instanttensor|gguf)"
_COPIES = r"cuMemcpyHtoD|cudaMemcpy|cuMemAlloc|cuMemCreate|cudaMalloc"


def _pressed(scene: Scene, least: float = PRESSED) -> Iterator[Sighting | Gap]:
    """Tasks wait for memory, at least so many percent of the time."""
    look = scene.last
    share = look.pressure.memory_some if look else 0.0
    if isinstance(share, Gap):
        yield share
    elif share >= least:
        yield Sighting(f"/proc/pressure/memory: tasks waited for memory {share:.0f} % of the last ten seconds")


def _swaps(scene: Scene, least: float = SWAPS_S) -> Iterator[Sighting | Gap]:
    """Pages go to swap and come back, between the looks."""
    looks, passed = scene.bundle.looks, where.seconds_between(scene)
    if not passed:
        return
    then, now = looks[0].pressure, looks[-1].pressure
    rates = []
    for old, new in ((then.swapped_in, now.swapped_in), (then.swapped_out, now.swapped_out)):
        if isinstance(old, Gap) or isinstance(new, Gap):
            yield new if isinstance(new, Gap) else old  # type: ignore[misc]
            return
        rates.append((new - old) / passed)
    if sum(rates) >= least:
        yield Sighting(f"{rates[0]:.0f} pages a second come from swap, {rates[1]:.0f} go there")


def _hard_pressed(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _pressed(scene, HARD_PRESSED) if not storage.is_what_lacks(scene) else ()


def _thrashes(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_swaps(scene), _pressed(scene))


def _reclaims(scene: Scene) -> Iterator[Sighting | Gap]:
    """Threads of the server look for memory to free, and tasks wait for memory."""
    yield from both(storage.in_reclaim(scene), _pressed(scene))


def _unmeasured(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel does not tell how long tasks wait for memory; but pages go to swap and come back by the thousand."""
    look = scene.last
    if look and isinstance(look.pressure.memory_some, Gap):
        yield from _swaps(scene, MUCH * SWAPS_S)


def _group_is_full(scene: Scene) -> Iterator[Sighting | Gap]:
    """The control group has reached its limit of memory, and the kernel holds a thread in search of some at both
    looks; where the pressure is known, that tells more."""
    searching = [one for one in storage.in_reclaim(scene) if _searched_before(scene, one)]
    for path, group in {one.facts.cgroup.path: one.facts.cgroup for one in processes(scene)}.items():
        used, most = group.memory_bytes, group.memory_max_bytes
        if not isinstance(used, Gap) and not isinstance(most, Gap) and 0 < most * FULL_SHARE <= used:
            full = Sighting(shortened(f"control group {path}: {size(used)} of {size(most)} used"))
            yield from both([full], searching)


def _searched_before(scene: Scene, one: Sighting | Gap) -> bool:
    old = None if isinstance(one, Gap) else where.before(scene, one.pids[0])
    return old is not None and any(map(storage.reclaims, old.threads))


def _held_until_freed(scene: Scene) -> Iterator[Sighting | Gap]:
    """The control group is out of memory, and its owner has asked the kernel to hold its processes, not to kill."""
    for one, thread in threads(scene):
        functions = storage.kernel_functions(thread)
        if not isinstance(functions, Gap) and any(map(_HELD.search, functions)):
            pid = one.process.id.pid
            yield Sighting(shortened(f"{scene.name(pid)} is held in {' < '.join(functions[:3])}"), (pid,))


def _swapped_out(scene: Scene) -> Iterator[Sighting]:
    """Much of a process lies in swap."""
    for one in processes(scene):
        swapped = one.facts.swapped_bytes
        if not isinstance(swapped, Gap) and swapped >= SWAPPED_BYTES:
            pid = one.process.id.pid
            yield Sighting(shortened(f"{scene.name(pid)} has {size(swapped)} in swap"), (pid,))


def _comes_from_swap(scene: Scene) -> Iterator[Sighting]:
    """Much of a process lies in swap, and it fetches many pages."""
    passed = where.seconds_between(scene)
    for one in _swapped_out(scene):
        standing = scene.standing(one.pids[0])
        faults = standing.change.major_faults if standing and standing.change else 0
        if passed and faults >= SWAPS_S * passed:
            yield one
            yield Sighting(f"{scene.name(one.pids[0])} fetched {faults} pages in {passed:.0f} s", one.pids)


def _swapped_and_pressed(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_swapped_out(scene), _pressed(scene))


def _cache_in_the_way(scene: Scene) -> Iterator[Sighting | Gap]:
    """A GPU shares the machine's memory, the page cache has taken nearly all of it, and somebody loads weights or
    copies to the GPU: its driver counts the cache as used. Not where storage is what is waited for."""
    loading = scene.bundle.phase in {Phase.WEIGHTS, Phase.DRAFT_INIT}
    copying = (*where.stands(scene, _COPIES, native=True), *(where.stands(scene, _LOADS) if loading else ()))
    yield from both(_little_is_free(scene), copying) if not storage.is_what_lacks(scene) else ()


def _little_is_free(scene: Scene) -> Iterator[Sighting | Gap]:
    look, host = scene.last, scene.bundle.host
    free = look.pressure.memory_free_bytes if look else host.memory_free_bytes
    if isinstance(free, Gap):
        yield free
    elif _shares_memory(scene) and free < FREE_SHARE * host.memory_bytes:
        yield Sighting(
            f"the GPU shares the machine's memory, of which {size(free)} of {size(host.memory_bytes)} are free"
        )


def _shares_memory(scene: Scene) -> bool:
    """Whether the GPU has no memory of its own: it reports the machine's, or none that could be told."""
    known = gpus(scene)
    if isinstance(known, Gap) or len(known) != 1:
        return False
    total, machine = known[0].memory_total_bytes, scene.bundle.host.memory_bytes
    return "GB10" in known[0].name or (not isinstance(total, Gap) and 0.85 * machine <= total <= 1.1 * machine)


def _large_pages(scene: Scene) -> Iterator[Sighting | Gap]:
    """A copy to the GPU out of mapped files does not return, on a kernel with large pages."""
    page = scene.bundle.host.page_bytes
    large = [Sighting(f"the kernel's pages are {page // 1024} KiB")] if page > USUAL_PAGE else []
    yield from both(large, where.stands(scene, "cuMemcpyHtoD", native=True))


def _at_ease(scene: Scene) -> Iterator[Sighting]:
    """Nobody waits for memory, and nothing is swapped."""
    look = scene.last
    share = look.pressure.memory_some if look else PRESSED
    signs = (*_swaps(scene), *_little_is_free(scene), *_large_pages(scene))
    if not isinstance(share, Gap) and share < EASY and not any(isinstance(one, Sighting) for one in signs):
        yield Sighting(f"tasks waited for memory {share:.1f} % of the last ten seconds")


CAUSE = Cause(
    id="memory_pressure",
    nature=Nature.MACHINE,
    title="the machine is short of memory, and crawls",
    clues=(
        decides("Does the machine swap while tasks wait for memory?", _thrashes),
        decides("Does the kernel hold the server while it looks for memory to free?", _reclaims),
        decides("Does the kernel hold a process until its control group has memory again?", _held_until_freed),
        supports("Is the control group at its limit, and memory searched for at both looks?", _group_is_full),
        supports("Does the machine swap much, with no word of who waits?", _unmeasured),
        supports("Does much of the server lie in swap while tasks wait for memory?", _swapped_and_pressed),
        supports("Does a process of which much lies in swap fetch many pages?", _comes_from_swap),
        supports("Do tasks wait for memory for a third of the time?", _hard_pressed),
        supports("Has the page cache taken the memory that a GPU shares?", _cache_in_the_way),
        supports("Does a copy to the GPU not return, on a kernel with large pages?", _large_pages),
        rules_out("Does nobody wait for memory?", _at_ease),
    ),
    advice=Advice(
        confirm=("vmstat 1 (columns si, so), cat /proc/pressure/memory, and VmSwap in /proc/{pid}/status.",),
        work_around=(
            (
                "Read without mmap, so that the page cache does not push the rest out: SGLang "
                "--weight-loader-disable-mmap or --weight-loader-drop-cache-after-load, vLLM "
                "--safetensors-load-strategy eager."
            ),
            "Where a GPU shares the memory: sync; echo 3 > /proc/sys/vm/drop_caches before the start.",
        ),
        repair=(
            (
                "More memory, fewer ranks on this machine, a smaller or quantised model, a smaller cache in "
                "host memory; swapoff, so that it fails at once rather than crawls."
            ),
        ),
    ),
    traps=("A counter of shards that still moves: it is slow, not stuck, until something outside ends it.",),
)
