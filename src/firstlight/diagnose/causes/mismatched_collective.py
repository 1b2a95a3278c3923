"""Ranks do not make the same collective calls: another operation, other sizes, another group, or all of them
send, or all receive.

Flight recorder dumps decide, since they hold every rank's calls; stacks alone cannot tell groups apart.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from firstlight.core.collective import CollectiveCall
from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.devices import (
    COLLECTIVE,
    FUSED_ALL_REDUCE,
    all_in,
    complete,
    in_place,
    is_hidden,
    quoted,
    runners,
    some_in,
    spinning_or_unseen,
    still,
    unseen_places,
)
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.ranks import meets_in_code
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.watchdogs import GivenUp, given_up

_BETWEEN_TWO = re.compile(r"send|recv|coalesced", re.IGNORECASE)
_EQUAL_SIZES = re.compile(
    r"all_?reduce|all_?gather_?(base|into)|_reduce_scatter_base|broadcast|:reduce$", re.IGNORECASE
)
_SENDS = r"^\S*send\w* \("
_RECEIVES = r"^\S*recv\w* \("
_RECEIVES_FROM_RANK = r"^\S*recv\w* \(distributed_c10d\.py|^ncclRecv \("
_MISMATCH = (
    r"Detected mismatch between collectives|mismatched collective detected|collective mismatch error"
    r"|op\.preamble\.length <= op\.nbytes|MPI_ERR_TRUNCATE|message truncated ?: receiv(ed|ing)"
    r"|\bEI0005\b|(reduced|gathered|broadcasted?).{0,40}\bby (a )?subset of ranks"
    r"|mismatched (all_?reduce|all_?gather|broadcast) (tensor|operations|root)"
)
"""torch (TORCH_DISTRIBUTED_DEBUG=DETAIL), NCCL, Gloo, MPI, HCCL, Horovod."""
_MEETS = rf"{COLLECTIVE}|^(_?new_group\w*|split_group|init_process_group) \("
"""A group is made by all of its ranks, too. A communicator that one of them still makes may only be slow."""
_TOLD = 6

Calls = dict[tuple[str, int], list[CollectiveCall]]


def _differ(scene: Scene) -> Iterator[Sighting | Gap]:
    """The same call of the same group is another operation, or has other sizes, on different ranks."""
    calls = _calls(scene)
    if isinstance(calls, Gap):
        yield calls
        return
    for (group, sequence), made in sorted(_by_call(calls).items(), key=lambda item: item[0][1]):
        once = len({call.rank for call in made}) == len(made)
        if all(call.state == "completed" for call in made) or not once:
            continue
        if len({_shape(call) for call in made}) > 1:
            yield from (Sighting(_words(call), what=f"call {sequence} of group {group}") for call in made[:_TOLD])
            return


def _shape(call: CollectiveCall) -> tuple[object, ...]:
    equal = bool(_EQUAL_SIZES.search(call.operation))
    return (call.operation, call.dtype, *((call.input_sizes, call.output_sizes) if equal else ()))


def _by_call(calls: tuple[CollectiveCall, ...]) -> Calls:
    found: Calls = defaultdict(list)
    for call in calls:
        if not _BETWEEN_TWO.search(call.operation):
            found[call.group, call.sequence].append(call)
    return found


def _words(call: CollectiveCall) -> str:
    sizes = "×".join(map(str, call.input_sizes[0])) if call.input_sizes else ""
    where = f" at {call.where}" if call.where else ""
    return shortened(
        f"rank {call.rank}: call {call.sequence} of group {call.group} is {call.operation} {sizes} {call.dtype}"
        f" ({call.state}){where}"
    )


def _wait_across(scene: Scene) -> Iterator[Sighting | Gap]:
    """Two ranks wait for each other in different groups: neither has made the call that the other waits in."""
    calls = _calls(scene)
    if isinstance(calls, Gap):
        yield calls
        return
    latest: dict[tuple[int, str], int] = {}
    for call in calls:
        at = call.rank, call.group
        latest[at] = max(call.sequence, latest.get(at, 0))
    waiting = list(_first_waits(calls).values()) if still(scene) else []
    for one in waiting:
        for other in waiting:
            if one.rank < other.rank and _awaits(latest, one, other) and _awaits(latest, other, one):
                yield from (
                    Sighting(_words(call), what=f"groups {one.group} and {other.group}") for call in (one, other)
                )
                return


def _awaits(latest: dict[tuple[int, str], int], one: CollectiveCall, other: CollectiveCall) -> bool:
    """Whether the rank of `other` belongs to the group that `one` waits in, and has not come to that call."""
    return one.group != other.group and latest.get((other.rank, one.group), one.sequence) < one.sequence


def _first_waits(calls: tuple[CollectiveCall, ...]) -> dict[int, CollectiveCall]:
    """The first call of each rank that is not completed."""
    first: dict[int, CollectiveCall] = {}
    for call in calls:
        if call.state == "started" and not _BETWEEN_TWO.search(call.operation):
            first.setdefault(call.rank, call)
    return first


def _calls(scene: Scene) -> tuple[CollectiveCall, ...] | Gap:
    look = scene.last
    return look.collectives if look else ()


def _different_places(scene: Scene) -> Iterator[Sighting | Gap]:
    """Every rank waits in a collective, nothing moves, and they got there from different places."""
    seen = [one for one in runners(scene) if not is_hidden(scene, one)]
    if still(scene) and complete(scene) and len(_meeting(scene)) == len(seen) and len(_places(scene)) > 1:
        yield from quoted(scene, (ones[0] for ones in _places(scene).values()), _MEETS)
    yield from unseen_places(scene)


def _meeting(scene: Scene) -> tuple[Standing, ...]:
    """Those in a collective, be it one that only the line that calls it names."""
    named = in_place(scene, _MEETS)
    return (*named, *(one for one in runners(scene) if one not in named and meets_in_code(one)))


def _places(scene: Scene) -> dict[object, list[Standing]]:
    """Those in a collective by it and the functions that called it, lines left out."""
    wanted = re.compile(_MEETS, re.IGNORECASE)
    found: dict[object, list[Standing]] = defaultdict(list)
    for one in _meeting(scene):
        called = [f"{frame.function} ({frame.file}" for frame in one.stack]
        at = next((at for at, words in enumerate(called) if wanted.search(words)), 0)
        found[tuple(called[at:])].append(one)
    return found


def _told_of_it(scene: Scene) -> Iterator[Sighting | Gap]:
    """A library compares what ranks call, or what arrives with what was expected, and says that it differs."""
    yield from both(said(scene, _MISMATCH), chain(first_end(scene), some_in(scene, COLLECTIVE)))


def _gave_up_on_other_shapes(scene: Scene) -> Iterator[Sighting]:
    """torch's watchdogs gave up on the same call of the same group, and it was another one on different ranks."""
    for group, calls in given_up(scene.bundle).items():
        for number in {one.call for one in calls}:
            same = [one for one in calls if one.call == number and one.shape]
            if len({one.shape for one in same}) > 1:
                yield from (_gave_up(group, one) for one in same[:_TOLD])


def _gave_up_on_other_calls(scene: Scene) -> Iterator[Sighting]:
    """They gave up on different calls of one group."""
    for group, calls in given_up(scene.bundle).items():
        if len({one.call for one in calls}) > 1:
            yield from (_gave_up(group, one) for one in calls[:_TOLD])


def _gave_up(group: str, one: GivenUp) -> Sighting:
    what = " ".join(one.shape) or "a call"
    return Sighting(shortened(f"rank {one.rank} gave up on call {one.call} of group {group}: {what}"))


def _counts_differ(scene: Scene) -> Iterator[Sighting | Gap]:
    """NCCL counts different numbers of calls on the ranks of one communicator, at both looks, and nothing moves."""
    looks = scene.bundle.looks
    now = looks[-1].communicators if looks else ()
    if isinstance(now, Gap):
        yield now
        return
    before = looks[0].communicators if looks else ()
    frozen = len(looks) > 1 and not isinstance(before, Gap) and still(scene)
    for one in now:
        if frozen and one in before and len({count for _, count in one.counts}) > 1:  # type: ignore[operator]
            told = ", ".join(f"rank {rank}: {count}" for rank, count in one.counts[:8])
            yield Sighting(shortened(f"calls of communicator {one.id} so far: {told}"))


def _fused_in_stages(scene: Scene) -> Iterator[Sighting | Gap]:
    """Several pipeline stages warm up a fused all-reduce that spins until its peers run it with the same launch."""
    if _several(scene, "pipeline-parallel-size", "pp-size", "pp") and _several(
        scene, "tensor-parallel-size", "tp-size", "tp"
    ):
        yield from both(all_in(scene, FUSED_ALL_REDUCE), spinning_or_unseen(scene))


def _several(scene: Scene, *names: str) -> bool:
    """Whether an option that has these names asks for more than one."""
    return any(scene.bundle.option(name) not in {None, (), ("1",)} for name in names)


def _all_send(scene: Scene) -> Iterator[Sighting | Gap]:
    """Every rank sends, and none receives."""
    if scene.bundle.nodes == 1 and not in_place(scene, _RECEIVES):
        yield from all_in(scene, _SENDS)


def _all_receive(scene: Scene) -> Iterator[Sighting | Gap]:
    """Every rank receives from another one, and none sends."""
    if scene.bundle.nodes == 1 and still(scene):
        yield from all_in(scene, _RECEIVES_FROM_RANK)


CAUSE = Cause(
    id="mismatched_collective",
    nature=Nature.DIVERGED,
    together=True,
    title="ranks wait for each other in different collectives",
    clues=(
        decides("Is the same call of a group another operation, or of other sizes, on different ranks?", _differ),
        decides("Do ranks wait for each other in different groups?", _wait_across),
        decides("Did ranks give up on the same call of a group, and was it another one?", _gave_up_on_other_shapes),
        supports("Did ranks give up on different calls of a group?", _gave_up_on_other_calls),
        supports("Does a library say that the calls of ranks differ, and did one end, or wait?", _told_of_it),
        supports("Does every rank wait in a collective, having come there from different places?", _different_places),
        supports(
            "Does NCCL count different numbers of calls on ranks, with nothing moving?",
            _counts_differ,
        ),
        supports("Does every rank send, and none receive?", _all_send),
        supports("Does every rank receive from another, and none send, with nothing moving?", _all_receive),
        supports("Do GPUs spin in a fused all-reduce, with several pipeline stages at once?", _fused_in_stages),
    ),
    advice=Advice(
        confirm=(
            (
                "TORCH_FR_BUFFER_SIZE=2000 (before torch 2.9: TORCH_NCCL_TRACE_BUFFER_SIZE) before the start; then"
                " look again: the dumps hold every rank's calls."
            ),
        ),
        work_around=(
            (
                "Switch off what may send ranks different ways: speculative decoding, --enable-dp-attention,"
                " overlapped schedules, fused all-reduce, timeouts that each rank decides by its own clock"
                " (SGLANG_REQ_WAITING_TIMEOUT)."
            ),
        ),
        repair=("Report the calls of the ranks that differ: the branch before them depends on the rank.",),
    ),
    traps=(
        "A collective that only some ranks enter looks like a kernel that hangs: GPUs are busy at idle power.",
        "A rank that is slow or dead gives the same picture on the others; here all ranks wait.",
    ),
)
