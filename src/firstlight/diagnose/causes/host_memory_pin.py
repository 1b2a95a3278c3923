"""Host memory is being pinned for a GPU, tens of gigabytes at a time: it works, and says nothing."""

import re
from collections.abc import Iterator
from itertools import chain

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase
from firstlight.core.words import seconds as length
from firstlight.core.words import size
from firstlight.diagnose import storage, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, speaks_against, supports
from firstlight.diagnose.compare import ProcessChange
from firstlight.diagnose.devices import spinning
from firstlight.diagnose.frames import words_of
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said, threads, variable

GROWTH_BYTES_S = 1_000_000
_PINS = (
    r"(cuda|hip)(HostRegister|HostAlloc|MallocHost|HostMalloc)|cuMem(HostRegister|HostAlloc|AllocHost)"
    r"|host_malloc|ibv_reg_mr|^mlock|ucp_mem_map|registerLocalMemory|aclrtMallocHost|zeMemAllocHost"
)
_PINS_IN_KERNEL = re.compile(
    r"pin_user_pages|os_lock_user_pages|nvidia_get_user_pages|ib_umem_get|__mm_populate|do_mlock|mlock_fixup"
)
"""Also of RDMA devices, and of mlock."""
_PINS_IN_PYTHON = (
    r"(pin_memory|cudaHostRegister|alloc_with_(host_register|pin_memory)|host_register|_pin\w*|alloc_pinned\w*"
    r"|register_memory|registerLocalMemory) "
)
"""Memory that a network card or a transfer library is to reach is pinned as well."""
_PINS_IN_CODE = re.compile(
    r"\b((cu|cuda|hip)(Mem)?(HostRegister|HostAlloc|MallocHost|AllocHost|HostMalloc)|pin_memory|alloc_pinned_memory"
    r"|ibv_reg_mr|mlock2?|register_memory|registerLocalMemory|host_register|aclrtMallocHost|zeMemAllocHost"
    r"|(zeros|empty)(_like)?_pinned)(_v2)?\(|\bpin_memory=True"
)
"""Bindings leave no frame of their own; the line that calls them names them."""
_ASKED = ("hicache-size", "hicache-ratio", "enable-hierarchical-cache", "kv-offloading-size", "swap-space")
_ASKED_BY_NAME = r"LMCACHE_(MAX_)?LOCAL_CPU(_SIZE)?"
_SAYS = r"\d [GM]i?B (of )?(pinned |host |CPU )+memory|pinn(ed|ing) .*memory|host memory for hierarchical"


def _pinning(scene: Scene) -> Iterator[Sighting | Gap]:
    """Threads in a call that pins memory."""
    yield from where.stands(scene, _PINS, native=True)
    yield from where.stands(scene, _PINS_IN_PYTHON)
    yield from _pins_in_code(scene)
    for one, thread in threads(scene):
        within = storage.kernel_functions(thread)
        inside = () if isinstance(within, Gap) else within
        if any(map(_PINS_IN_KERNEL.search, inside)):
            pid = one.process.id.pid
            yield Sighting(shortened(f"{scene.name(pid)} in the kernel: {' < '.join(inside[:3])}"), (pid,))


def _pins_in_code(scene: Scene) -> Iterator[Sighting]:
    """Threads whose innermost line of Python calls what pins memory, and that are not in a function of their own."""
    for one, thread in threads(scene):
        inner = thread.stack[0] if not isinstance(thread.stack, Gap) and thread.stack else None
        if inner and _PINS_IN_CODE.search(inner.code):
            pid = one.process.id.pid
            yield Sighting(shortened(f"{scene.name(pid)}: {words_of(inner)}: {inner.code.strip()}"), (pid,))


def _locks_more(scene: Scene) -> Iterator[Sighting]:
    """Memory that a process has locked grows: whatever calls for it, it pins."""
    passed = where.seconds_between(scene)
    for one in scene.standings:
        old = where.before(scene, one.pid)
        now, then = one.look.facts.locked_bytes, old.facts.locked_bytes if old else 0
        known = old is not None and passed and not isinstance(now, Gap) and not isinstance(then, Gap)
        if known and now - then >= GROWTH_BYTES_S * passed:  # type: ignore[operator]
            quote = f"{scene.name(one.pid)} locked {size(now - then)} more in {length(passed)}"  # type: ignore[operator]
            yield Sighting(shortened(quote), (one.pid,))


def _growing(scene: Scene) -> Iterator[Sighting | Gap]:
    """Processes whose locked or resident memory grows."""
    passed = where.seconds_between(scene)
    for one in scene.standings:
        old = where.before(scene, one.pid)
        if old is None or not passed:
            continue
        now, then = one.look.facts.locked_bytes, old.facts.locked_bytes
        locked = 0 if isinstance(now, Gap) or isinstance(then, Gap) else now - then
        grew = max(locked, one.look.sample.memory_bytes - old.sample.memory_bytes)
        if grew >= GROWTH_BYTES_S * passed:
            quote = f"{scene.name(one.pid)} locked or filled {size(grew)} more in {length(passed)}"
            yield Sighting(shortened(quote), (one.pid,))


def _pins_and_grows(scene: Scene) -> Iterator[Sighting | Gap]:
    """The same process is in a call that pins memory, and grows."""
    pinning, growing = list(_pinning(scene)), list(_growing(scene))
    pids = {one.pids for one in pinning if isinstance(one, Sighting)}
    yield from both(pinning, (one for one in growing if isinstance(one, Gap) or one.pids in pids))


def _asked_and_grows(scene: Scene) -> Iterator[Sighting | Gap]:
    """A pool in host memory was asked for, caches are being made, and somebody who reads nothing grows."""
    asked = [Sighting(f"option: --{name}") for name in _ASKED if scene.bundle.option(name) is not None]
    reads = {one.pid for one in scene.standings if one.change and _reads(one.change)}
    growing = (one for one in _growing(scene) if isinstance(one, Gap) or not reads & set(one.pids))
    if scene.bundle.phase is Phase.KV_CACHE:
        yield from both(chain(asked, variable(scene, _ASKED_BY_NAME)), growing)


def _reads(change: ProcessChange) -> bool:
    return change.major_faults > 0 or (isinstance(change.read_bytes, int) and change.read_bytes >= GROWTH_BYTES_S)


def _told_and_grows(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_growing(scene), said(scene, _SAYS))


def _waits_for_the_gpu(scene: Scene) -> Iterator[Sighting | Gap]:
    """Allocating waits for what runs on the GPU: a kernel that does not end, and nothing grows."""
    if scene.changes and not any(isinstance(one, Sighting) for one in _growing(scene)):
        yield from spinning(scene)


CAUSE = Cause(
    id="host_memory_pin",
    nature=Nature.SLOW,
    title="host memory is being pinned for the GPU: it works, and takes a while",
    clues=(
        decides("Does a process that grows stand in a call that pins memory?", _pins_and_grows),
        supports("Does a thread stand in a call that pins memory?", _pinning),
        supports("Does the memory that a process has locked grow?", _locks_more),
        supports("Does a process grow without reading, where a pool in host memory was asked for?", _asked_and_grows),
        speaks_against("Do GPUs spin, with nothing growing?", _waits_for_the_gpu),
        supports("Does the log speak of host memory, and does a process grow?", _told_and_grows),
    ),
    advice=Advice(
        confirm=("grep -E 'VmLck|VmPin|VmRSS' /proc/{pid}/status twice: the growth tells how long it will take.",),
        work_around=(
            "Ask for less: SGLang --hicache-size or --hicache-ratio, vLLM --kv-offloading-size; fewer ranks.",
        ),
        repair=("Reserve huge pages, and keep memory free and unfragmented: echo 1 > /proc/sys/vm/compact_memory.",),
    ),
    traps=("The requested size counts for each rank; with several, the machine may not have that much.",),
)
