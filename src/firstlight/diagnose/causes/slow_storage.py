"""Weights are read from storage that is slow: a network or user-space file system, or page by page through mmap."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase, Role
from firstlight.core.words import seconds as length
from firstlight.core.words import size
from firstlight.diagnose import storage, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, speaks_against, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, kernel_said, lines, threads

FAULTS_S = 5.0
"""Pages fetched from storage each second from which a process is said to read through page faults."""
FAST_BYTES_S = 500_000_000
"""What a local disk gives; below it, a load that faults is held up by its storage."""
PRESSED = 20.0
IDLE_CORES = 0.5
_NO_ANSWER = (
    r"(nfs|lustre|ceph).*(not responding|timed ?out|hung)|I/O error, dev|nvme.*(I/O|timeout)|Buffer I/O error"
)
_LOADS = (
    r"(load\w*|_?copy\w*|weight\w*|get_tensor|safe\w*|__getitem__|read\w*) .*"
    r"(loader|safetensors|weight|modeling_utils|gguf|serialization|checkpoint|tensorizer|streamer|convert)"
)
_LOADS_NATIVELY = (
    r"llama_model_load|llama_mmap|llama_file|gguf_init|load_all_data|safetensors_rust|nvinfer1::.*deserialize"
)
_NAME = re.compile(r"[a-z]")
_LOADING = frozenset({Phase.WEIGHTS, Phase.DRAFT_INIT})
_SHARDS = re.compile(r"(\d+)/(\d+) \[(\d+):(\d\d)(?::(\d\d))?<")


def _loading(scene: Scene) -> Iterator[Sighting | Gap]:
    """Threads where weights are loaded, in Python or in a library."""
    yield from where.stands(scene, _LOADS)
    yield from (one for one in where.stands(scene, _LOADS_NATIVELY, native=True) if isinstance(one, Sighting))


def _held_by_slow(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel holds a thread until storage answers, while weights are loaded from a slow file system."""
    if scene.bundle.phase in _LOADING or any(isinstance(one, Sighting) for one in _loading(scene)):
        yield from both(storage.in_storage(scene), storage.slow_weights(scene))


def _held_unseen(scene: Scene) -> Iterator[Sighting | Gap]:
    """As above, where it was not seen what the kernel holds the thread for: at both looks, as tasks wait for
    storage."""
    if scene.bundle.phase in _LOADING or any(isinstance(one, Sighting) for one in _loading(scene)):
        unnamed = list(_unnamed(scene))
        waited = _waited_for(scene, {pid for one in unnamed for pid in one.pids})
        yield from both(both(unnamed, waited), storage.slow_weights(scene))


def _unnamed(scene: Scene) -> Iterator[Sighting]:
    for one, thread in threads(scene):
        functions = storage.kernel_functions(thread)
        if thread.state == "D" and (isinstance(functions, Gap) or not any(map(_NAME.search, functions))):
            old = where.before(scene, one.process.id.pid)
            then = (other for other in (old.threads if old else ()) if other.tid == thread.tid)
            if any(other.state == "D" for other in then):
                pid = one.process.id.pid
                yield Sighting(f"{scene.name(pid)} is in state D at both looks, in what was not seen", (pid,))


def _faults_on_slow(scene: Scene) -> Iterator[Sighting | Gap]:
    """Pages are fetched from storage all the time, and the weights lie on a slow file system."""
    seen = list(both(_faults(scene), storage.slow_weights(scene)))
    yield from seen
    yield from _counted(scene) if any(isinstance(one, Sighting) for one in seen) else ()


def _reads_slowly(scene: Scene) -> Iterator[Sighting | Gap]:
    """Weights on a slow file system are read: whoever moves stands where weights are loaded, or has them open."""
    slow, moving = list(storage.slow_weights(scene)), list(where.moving(scene))
    yield from both(both(moving, _loading(scene)), slow)
    if scene.bundle.phase in _LOADING:
        reading = {pid for one in slow for pid in one.pids}
        yield from both((one for one in moving if reading & set(one.pids)), slow)


def _faults_anywhere(scene: Scene) -> Iterator[Sighting | Gap]:
    """Pages are fetched all the time, slowly, by whoever stands where weights are loaded: mmap on any disk."""
    yield from both(_faults(scene), _loading(scene))


def _faults_on_weights(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel holds a thread for pages, of a process that fetches many, slowly, and has weights open."""
    fetching = {pid for one in _faults(scene) for pid in one.pids}
    for one in storage.in_storage(scene):
        if isinstance(one, Gap):
            yield one
        elif fetching & set(one.pids):
            standing = scene.standing(one.pids[0])
            opened = [file.target for file in storage.weight_files(standing.look)] if standing else []
            yield from [one, Sighting(shortened(f"weights: {opened[0]}"), one.pids)] if opened else []


def _crawls(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel holds whoever loads weights, or tasks wait for storage; it computes little, and reads slower than
    any disk should."""
    passed = where.seconds_between(scene)
    loading = {pid for one in _loading(scene) if isinstance(one, Sighting) for pid in one.pids}
    loading |= {one.pid for one in scene.standings if scene.bundle.phase in _LOADING}
    for held in (*storage.in_storage(scene), *_waited_for(scene, loading)) if passed else ():
        standing = None if isinstance(held, Gap) else scene.standing(held.pids[0])
        change = standing.change if standing else None
        if isinstance(held, Gap):
            yield held
        elif standing and change and change.cpu < IDLE_CORES and standing.pid in loading:
            old = where.before(scene, standing.pid)
            now, then = standing.look.sample.disk_read_bytes, old.sample.disk_read_bytes if old else 0
            read = 0 if isinstance(now, Gap) or isinstance(then, Gap) else now - then
            if 0 < read < FAST_BYTES_S * passed and any(storage.weight_files(standing.look)):
                yield held
                yield Sighting(f"{scene.name(standing.pid)} read {size(read)} in {passed:.0f} s", held.pids)


def _waited_for(scene: Scene, pids: set[int]) -> Iterator[Sighting]:
    """Tasks of the machine wait for storage: those of `pids` may, which were not seen to."""
    share = scene.last.pressure.io_some if scene.last else 0.0
    if not isinstance(share, Gap) and share >= PRESSED:
        yield from (
            Sighting(f"tasks waited for storage {share:.0f} % of the last ten seconds", (pid,)) for pid in pids
        )


def _kernel_complains(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel tells of storage that does not answer, while weights are loaded from a slow file system or somebody
    is held for storage."""
    told = list(kernel_said(scene, _NO_ANSWER))
    if scene.bundle.phase in _LOADING or any(isinstance(one, Sighting) for one in _loading(scene)):
        yield from both(told, (*storage.slow_weights(scene), *storage.in_storage(scene)))


def _faults(scene: Scene) -> Iterator[Sighting]:
    """Processes that fetch pages from storage, slower than a local disk would give them."""
    passed = where.seconds_between(scene)
    for one in scene.standings:
        if not one.change or one.change.major_faults < FAULTS_S * passed or one.look.process.role is Role.COMPILER:
            continue
        old = where.before(scene, one.pid)
        now, then = one.look.sample.disk_read_bytes, old.sample.disk_read_bytes if old else 0
        read = 0 if isinstance(now, Gap) or isinstance(then, Gap) else now - then
        if read < FAST_BYTES_S * passed:
            quote = (
                f"{scene.name(one.pid)} fetched {one.change.major_faults} pages and {size(read)} in {passed:.0f} s"
            )
            yield Sighting(shortened(quote), (one.pid,))


def _counted(scene: Scene) -> Iterator[Sighting]:
    """The counter of shards moves and is far from done: with the time that is left."""
    found = [match for line in lines(scene.bundle) if (match := _SHARDS.search(line.message))]
    counts = {int(match[1]) for match in found}
    if len(counts) > 1 and scene.standings:
        done, total, high, low, lowest = (int(group or 0) for group in found[-1].groups())
        took = high * 3600 + low * 60 + lowest if found[-1][5] else high * 60 + low
        if 0 < done < total:
            rest = length(took / done * (total - done))
            yield Sighting(f"{done} of {total} shards in {length(took)}: about {rest} to go")


def _short_of_memory(scene: Scene) -> Iterator[Sighting]:
    """The machine is short of memory, which also makes pages come and go."""
    look = scene.last
    share = look.pressure.memory_some if look else 0.0
    if not isinstance(share, Gap) and share >= PRESSED and not storage.is_what_lacks(scene):
        yield Sighting(f"tasks waited for memory {share:.0f} % of the last ten seconds")


def _foreseen(scene: Scene) -> Iterator[Sighting]:
    yield from map(storage.lying, storage.slow_places(scene, "weights"))


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    slow = "on {what} " if any(one.what for one in seen) else ""
    held = any("is in state D" in one.quote for one in seen)
    if scene.standings and held and not any(where.moving(scene)):
        return f"the storage {slow}that holds the weights does not answer"
    return f"the weights {slow}are read slowly: it works, and takes long"


CAUSE = Cause(
    id="slow_storage",
    nature=Nature.SLOW,
    title=_title,
    clues=(
        decides("Does the kernel hold a thread for storage, with the weights on a slow file system?", _held_by_slow),
        decides("Are weights on a slow file system read page by page?", _faults_on_slow),
        supports(
            "Is a thread in state D for what was not seen, as tasks wait for slow storage of weights?", _held_unseen
        ),
        supports("Are weights on a slow file system being read?", _reads_slowly),
        supports("Are weights fetched page by page, below the speed of a disk?", _faults_anywhere),
        supports("Does the kernel hold a thread for pages of weights, of which it fetches many?", _faults_on_weights),
        supports("Is whoever loads weights held for storage, and reads slower than a disk should?", _crawls),
        supports(
            "Does the kernel tell of storage that does not answer, while weights are loaded?", _kernel_complains
        ),
        speaks_against("Is the machine short of memory?", _short_of_memory),
        foresees("Do the weights lie on a slow file system?", _foreseen),
    ),
    advice=Advice(
        confirm=("grep -E 'majflt|read_bytes' twice; nfsiostat or iostat -x 5 shows how fast the storage gives.",),
        work_around=(
            (
                "Read whole files rather than pages: vLLM --safetensors-load-strategy eager (or prefetch), SGLang "
                "--weight-loader-disable-mmap or --weight-loader-prefetch-checkpoints."
            ),
        ),
        repair=(
            "Copy the weights to a local NVMe disk before the start, or stream them: --load-format runai_streamer.",
        ),
    ),
    traps=(
        "A second start from the page cache is fast and hides it.",
        "A counter at 100 % is no longer about storage: weights are repacked, or kernels are compiled.",
    ),
)
