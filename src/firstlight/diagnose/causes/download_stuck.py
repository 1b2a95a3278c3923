"""A download has begun and gets nowhere."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import size
from firstlight.diagnose import network, quotes, web, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, rules_out, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, processes

_DOWNLOADS = (
    r"(http_get\w*|xet_get|_download_to_tmp\w*|_download_files?|download_file\w*|iter_content|hf_transfer\w*"
    r"|multipart_download|parallel_download|download_part\w*|download_url_to_file|download_fileobj|urlretrieve"
    r"|pull_files?|_?download_(s3|gcs|hf|azure|from_\w+|blob\w*|to_filename|snapshot\w*)|get_object_to_file"
    r"|request_ready_chunks\w*) | \S*/(s3transfer|google/(resumable_media|cloud/storage))/"
)
_NATIVELY = r"hf_xet|hf_transfer|xet_(client|core|data)|cas_client"
_TOOLS = re.compile(
    r"wget|curl|aria2c|axel|rsync|scp|git-(lfs|remote-https?)|rclone|s5cmd|gsutil|azcopy|aws|mc|(oss|obs)util|coscli"
    r"|skopeo|oras|dfget|hf|huggingface-cli|modelscope"
)
_UNFINISHED = re.compile(
    r"\.(incomplete|part|partial|aria2|tmp|temp|download|downloading|downloadInProgress|crdownload)$|-partial$"
    r"|/\._____temp/|_?\.gstmp$|/\.azDownload-|\.(safetensors|bin|gguf|pth?)\.\w{6,10}$"
)
"""What transfers a file; around it the hub's code asks questions and takes locks, which have causes of their own."""


def _standing_still(scene: Scene) -> Iterator[Sighting]:
    """Files of a download that are as long as before."""
    looks = scene.bundle.looks
    if len(looks) < 2:
        return
    before = {one.path: one for one in looks[0].folders if one.purpose == "download"}
    for folder in looks[-1].folders:
        old = before.get(folder.path)
        if old and folder.whole and (folder.bytes, folder.newest) == (old.bytes, old.newest):
            passed = where.seconds_between(scene)
            quote = f"{folder.path} did not grow in {passed:.0f} s: {size(folder.bytes)}"
            yield Sighting(shortened(quote), what=folder.path)
    yield from _unfinished(scene)


def _unfinished(scene: Scene) -> Iterator[Sighting]:
    """Files that a process has open, by their names unfinished, and that are as long as before."""
    for one in processes(scene):
        old = where.before(scene, one.process.id.pid)
        sizes = {file.target: file.size for file in old.files} if old else {}
        for file in one.files:
            if _UNFINISHED.search(file.target) and sizes.get(file.target) == file.size:
                quote = f"{file.target} did not grow: {size(file.size)}"
                yield Sighting(shortened(quote), (one.process.id.pid,), file.target)


def _stuck(scene: Scene) -> Iterator[Sighting | Gap]:
    """Somebody stands where files are downloaded, and they do not grow."""
    at_it = (*where.stands(scene, _DOWNLOADS), *where.stands(scene, _NATIVELY, native=True), *_tools(scene))
    yield from both(_standing_still(scene), at_it)


def _tools(scene: Scene) -> Iterator[Sighting]:
    """Programs that do nothing but transfer files, and are still there."""
    for one in scene.standings:
        if _TOOLS.fullmatch(one.look.process.name) and one.state not in "ZX":
            yield Sighting(shortened(f"{scene.name(one.pid)} is {one.look.process.name}"), (one.pid,))


def _silent_connection(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process waits for bytes of a connection, with an unfinished file open that does not grow."""
    unfinished = list(_unfinished(scene))
    pids = {pid for one in unfinished for pid in one.pids}
    waiting = (
        Sighting(shortened(f"{scene.name(one.pid)} waits in {quotes.call(thread)}: {connection.words}"), (one.pid,))
        for one in scene.standings
        if one.pid in pids
        for thread in one.look.threads
        for connection in network.connections(scene, "ESTABLISHED", "CLOSE_WAIT", "SYN_SENT")
        if connection.pid == one.pid and connection.file.fd in thread.fds
    )
    yield from both(unfinished, waiting)


def _unanswered_web(scene: Scene) -> Iterator[Sighting | Gap]:
    """A download does not grow, and a process of which no stack was seen asks a web port in vain; a connection that
    is made may be any, telemetry too."""
    asks = (
        Sighting(shortened(f"{scene.name(one.pid)}: {one.words}"), (one.pid,))
        for one in network.unanswered(scene)
        if web.is_web(scene, one.socket) and where.main_place(one.look) is None
    )
    yield from both(_standing_still(scene), asks)


def _grows(scene: Scene) -> Iterator[Sighting]:
    """A download grows."""
    for folder, grew in where.grown(scene, "download"):
        if grew > 0:
            yield Sighting(shortened(f"{folder.path} grew by {size(grew)} between the looks"), what=folder.path)


CAUSE = Cause(
    id="download_stuck",
    nature=Nature.NETWORK,
    title="the download of the model gets nowhere",
    clues=(
        decides("Does somebody wait where files are downloaded, and do they not grow?", _stuck),
        supports(
            "Does a process wait for bytes, with an unfinished file open that does not grow?", _silent_connection
        ),
        supports("Does a download not grow, of a process that asks a web port in vain?", _unanswered_web),
        rules_out("Does a download grow?", _grows),
    ),
    advice=Advice(
        confirm=("ls -l {what} twice; ss -tinp shows whether bytes_received of the connection grows.",),
        work_around=(
            (
                "Start again: a download goes on where it ended. HF_HUB_DOWNLOAD_TIMEOUT=30 ends a silent "
                "connection, HF_HUB_DISABLE_XET=1 takes the plain way, HF_ENDPOINT a mirror."
            ),
        ),
        repair=("Download first, and give the server the folder: hf download MODEL --local-dir FOLDER.",),
    ),
    traps=("A full disk or quota looks the same: see free space and the first error.",),
    explains=frozenset({"hub_network"}),
)
