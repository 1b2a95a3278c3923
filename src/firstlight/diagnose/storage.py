"""File systems, weight files and waits for storage: what the causes of storage share. Pure."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.host import Place
from firstlight.core.look import OpenFile, ProcessLook, ThreadLook
from firstlight.core.words import size
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import processes, threads

WEIGHTS = re.compile(
    r"\.(safetensors|gguf|ggml|bin|pt|pth|ckpt|npz|npy|tensors|engine|plan|onnx|onnx_data|h5|distcp|nemo|msgpack)$"
)
PRESSED, FAR_MORE = 20.0, 2.0
"""Percent of the time in which tasks wait for storage, and how often that of memory, from which it holds them up."""
CACHES = ("compile_cache", "engine_cache", "extensions")
_SLOW = re.compile(
    r"nfs\d?|lustre|cifs|smb\d?|9p|ceph|gpfs|beegfs|glusterfs|afs|virtiofs|wekafs|ocfs2|gfs2|orangefs|pvfs2|panfs|acfs|mfs|vboxsf|vmhgfs|prl_fs|drvfs|davfs|smb3|nbd|yrfs|cpfs|icfs|quobyte|curvefs|cubefs|cvmfs|juicefs|hdfs|fuse(\.(?!.*overlay).*)?|fuseblk"
)
_WAITS = re.compile(
    r"folio|filemap|_page|page_|io_schedule|wait_on_(bit|buffer)|blk_|nfs|rpc_|rpc_wait|fuse|lustre|^ll_|^cl_|osc_|ceph"
    r"|cifs|smb2_|p9_|v9fs|request_wait_answer|netfs|weka|gpfs|mmfs|cxiWaitEvent|beegfs|fhgfs|virtio_fs|afs_|xfs_|ext4_|btrfs|bio_"
    r"|ptlrpc|ldlm_|netfs|fscache|cachefiles|zio_|dmu_|dbuf_|cv_wait_common|f2fs_|jbd2_|squashfs|erofs|ovl_|nvfs|^(dm|md)_"
)
_ACROSS = re.compile(
    r"nfs|rpc_wait|request_wait_answer|fuse_|ceph|lustre|^ll_|^cl_|cifs|smb2_|p9_|weka|mmfs|cxiWaitEvent|beegfs|fhgfs|virtio_fs"
    r"|ptlrpc|ldlm_|netfs|fscache|cachefiles"
)
"""What is waited for across a network or in another program, which a signal may interrupt (state S)."""
_RECLAIMS = re.compile(
    r"reclaim|shrink_|try_to_free|compact|swap|kswapd|balance_pgdat|alloc_pages_slow|mem_cgroup_charge|over_high|try_charge"
)


def is_slow(filesystem: str) -> bool:
    """Whether a file system is one that lies across a network, or in a program of its own."""
    return _SLOW.fullmatch(filesystem.lower()) is not None


def weight_files(one: ProcessLook) -> Iterator[OpenFile]:
    """The weight files that a process has open."""
    return (file for file in one.files if file.kind == "file" and WEIGHTS.search(file.target))


def slow_weights(scene: Scene) -> Iterator[Sighting]:
    """Weights that lie on a slow file system: open files by process, else the folder itself."""
    found = False
    for one in processes(scene):
        slow = next((file for file in weight_files(one) if is_slow(file.filesystem)), None)
        if slow:
            found = True
            pid = one.process.id.pid
            quote = f"{scene.name(pid)} has {slow.target} open, which lies on {slow.filesystem}"
            yield Sighting(shortened(quote), (pid,), slow.filesystem)
    if not found:
        yield from map(lying, slow_places(scene, "weights"))


def slow_places(scene: Scene, *purposes: str) -> Iterator[Place]:
    """Folders of these purposes on a slow file system."""
    return (
        one for one in scene.bundle.host.places if one.purpose in purposes and (one.slow or is_slow(one.filesystem))
    )


def lying(place: Place) -> Sighting:
    """Where a folder lies."""
    needed = f", {size(place.needed_bytes)} to be read" if place.needed_bytes else ""
    words = place.purpose.replace("_", " ")
    return Sighting(shortened(f"{words}: {place.path} lies on {place.filesystem}{needed}"), what=place.filesystem)


def in_storage(scene: Scene) -> Iterator[Sighting | Gap]:
    """Threads that the kernel holds until storage answers, and not because memory is being reclaimed: they are in a
    function of a file system or of the page cache."""
    for one, thread in threads(scene):
        where = kernel_functions(thread)
        functions = {"D": _WAITS, "S": _ACROSS}.get(thread.state)
        if functions is None:
            continue
        if isinstance(where, Gap):
            yield from [where] if thread.state == "D" else []
        elif any(map(functions.search, where)) and not any(map(_RECLAIMS.search, where)):
            yield _waiting(scene, one, thread, where)


def in_reclaim(scene: Scene) -> Iterator[Sighting | Gap]:
    """Threads that the kernel holds while it looks for memory to free."""
    for one, thread in threads(scene):
        where = kernel_functions(thread)
        if not isinstance(where, Gap) and reclaims(thread):
            yield _waiting(scene, one, thread, where)


def is_what_lacks(scene: Scene) -> bool:
    """Whether tasks wait for storage far more than for memory: a file that memory does not hold counts as both."""
    share, memory = (scene.last.pressure.io_some, scene.last.pressure.memory_some) if scene.last else (0.0, 0.0)
    known = not isinstance(share, Gap) and not isinstance(memory, Gap)
    return known and share >= max(PRESSED, FAR_MORE * memory)  # type: ignore[operator]


def reclaims(thread: ThreadLook) -> bool:
    """Whether the kernel holds a thread while it looks for memory to free."""
    where = kernel_functions(thread)
    return thread.state in "DR" and not isinstance(where, Gap) and any(map(_RECLAIMS.search, where))


def kernel_functions(thread: ThreadLook) -> tuple[str, ...] | Gap:
    """The kernel functions that a thread is in, innermost first; the one that it sleeps in where no more was seen."""
    if not isinstance(thread.kernel, Gap) and thread.kernel:
        return thread.kernel
    if isinstance(thread.wchan, Gap):
        return thread.wchan
    return (thread.wchan,) if thread.wchan else ()


def _waiting(scene: Scene, one: ProcessLook, thread: ThreadLook, where: tuple[str, ...]) -> Sighting:
    pid = one.process.id.pid
    quote = f"{scene.name(pid)}: thread {thread.tid} is in state {thread.state} in {' < '.join(where[:3])}"
    return Sighting(shortened(quote), (pid,))
