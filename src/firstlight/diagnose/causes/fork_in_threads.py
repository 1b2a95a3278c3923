"""A process was forked while another thread of its parent held a lock: in the child nobody is left to release it."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import ThreadLook
from firstlight.diagnose import waits
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.quotes import call, shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing

PRIVATE = 0x80
"""FUTEX_PRIVATE_FLAG: only threads of this process can wake the waiter (futex(2))."""
_LOCKS = re.compile(r"^(__)?(pthread_mutex_lock|lll_lock_wait\w*|pthread_rwlock_\w+lock|malloc|free)\b")
_POOLS = re.compile(
    r"^(gomp_(team_|sem_)?\w*(barrier|wait)|__kmp_\w*(barrier|suspend|wait)|rayon_core::|exec_blas\w*|blas_thread\w*"
    r"|mkl_\w*(barrier|wait)|tbb::|tokio::)"
)
"""Where a library waits for the threads of its pool, which a fork does not take along."""


def _orphaned(scene: Scene) -> Iterator[Sighting | Gap]:
    """A forked process waits for a lock whose owner it does not have."""
    for one in _forked(scene):
        if one.thread and one.thread.futex and one.thread.futex.orphan:
            yield from _told(scene, one, f"of thread {one.thread.futex.orphan}, which it does not have")


def _alone(scene: Scene) -> Iterator[Sighting | Gap]:
    """A forked process with one thread waits for a lock that only another thread of it could release."""
    for one in _forked(scene):
        if one.look.sample.threads == 1 and _is_at_lock(one.thread):
            yield from _told(scene, one, "that only a thread of its own could release, and it has no other")


def _without_pool(scene: Scene) -> Iterator[Sighting | Gap]:
    """A forked process waits for the threads of a pool, and has but the one that waits."""
    for one in _forked(scene):
        alone = one.look.sample.threads == 1 and one.thread is not None and _waits_for_good(one.thread)
        if alone and one.thread and _stands_in(one.thread, _POOLS):
            yield from _told(scene, one, "of a pool whose threads it does not have")


def _on_a_lock(scene: Scene) -> Iterator[Sighting | Gap]:
    """A forked process of a parent with threads waits for a lock."""
    for one in _forked(scene):
        if one.look.facts.parent_threads > 1 and one.thread and not one.moves and _takes_lock(one.thread):
            yield from _told(scene, one, f"and its parent has {one.look.facts.parent_threads} threads")


def _forked(scene: Scene) -> list[Standing]:
    return [one for one in scene.standings if one.look.facts.forked]


def _waits_for_good(thread: ThreadLook) -> bool:
    """Whether it is in a private futex without a timeout (the fourth argument)."""
    if isinstance(thread.syscall, Gap) or not thread.syscall.startswith("futex("):
        return False
    words = [int(word, 16) for word in re.findall(r"0x[0-9a-f]+", thread.syscall)]
    return len(words) > 3 and bool(words[1] & PRIVATE) and words[3] == 0 and thread.state != "R"


def _is_at_lock(thread: ThreadLook | None) -> bool:
    """Whether it takes a lock for good: a wait for an event may still end by a signal's handler."""
    return thread is not None and _waits_for_good(thread) and _takes_lock(thread)


def _takes_lock(thread: ThreadLook) -> bool:
    """Whether it takes a lock. Events, conditions and queues wait in a Python lock, too: only the stack tells them
    from one, so where there is none a Python lock says nothing."""
    return waits.acquires_lock(thread) or _stands_in(thread, _LOCKS) or _stands_in(thread, _POOLS)


def _stands_in(thread: ThreadLook, functions: re.Pattern[str]) -> bool:
    native = thread.native if not isinstance(thread.native, Gap) else ()
    return any(functions.match(frame.function) for frame in native[:4])


def _told(scene: Scene, one: Standing, why: str) -> Iterator[Sighting]:
    name = scene.name(one.pid)
    yield Sighting(shortened(f"{name} was forked, and waits in {call(one.thread)} for a lock {why}"), (one.pid,))
    if one.words:
        yield Sighting(shortened(f"{name}: {' < '.join(one.words[:4])}"), (one.pid,))


CAUSE = Cause(
    id="fork_in_threads",
    nature=Nature.HELD,
    title="{who} was forked, and waits for a lock that nobody is left in it to release",
    clues=(
        decides("Does a forked process wait for a lock whose owner it does not have?", _orphaned),
        decides("Does a forked process wait for a pool whose threads it does not have?", _without_pool),
        supports("Does a forked process with a single thread wait for a lock of its own?", _alone),
        supports("Does a forked process of a parent with threads wait for a lock?", _on_a_lock),
    ),
    advice=Advice(
        confirm=("VLLM_WORKER_MULTIPROC_METHOD=spawn, or multiprocessing.set_start_method('spawn'): it goes away.",),
        work_around=("Start again: it depends on the moment of the fork.",),
        repair=("Fork before threads are started, or use spawn or forkserver.",),
    ),
    traps=(
        "It happens now and then, and under load more often.",
        "A thread that takes a lock twice looks the same: see whether the line of the stack stands within that lock.",
    ),
    each=True,
    explains=frozenset({"deadlock"}),
)
