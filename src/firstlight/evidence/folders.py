"""Folders that grow while something works: what compilers, autotuners and downloads leave behind.

Price: reads. May block on a dead network file system, so each folder is counted in a worker that can be abandoned.
Where the caches of engines and libraries lie is data; sources are the documentation and code of each (torch 2.4 to
2.11, triton 3, vLLM 0.8 to 0.33, SGLang 0.4 to 0.5, flashinfer 0.2 to 0.6, huggingface_hub 0.2 to 1).
"""

import getpass
import heapq
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from firstlight.clock import Deadline
from firstlight.core.clean import clean_text
from firstlight.core.gap import Gap
from firstlight.core.look import Folder
from firstlight.evidence.workers import Probe

ENTRIES_MAX = 10_000
"""Entries counted in one folder, some 5 µs each; what changed last is counted first."""
FOLDERS_MAX = 64
WORDS_MAX = 200
DOWNLOAD = "download"
UNFINISHED = ".incomplete"


class _Cache(NamedTuple):
    """A cache: the variables that move it (with what follows below their value), and where it lies without them."""

    purpose: str
    variables: tuple[str, ...]
    usual: str


_CACHES = (
    _Cache("extensions", ("TORCH_EXTENSIONS_DIR",), "{cache}/torch_extensions"),
    _Cache("compile_cache", ("TRITON_CACHE_DIR",), "{home}/.triton/cache"),
    _Cache("compile_cache", ("TORCHINDUCTOR_CACHE_DIR",), "{tmp}/torchinductor_{user}"),
    _Cache("compile_cache", ("FLASHINFER_WORKSPACE_BASE/.cache/flashinfer",), "{home}/.cache/flashinfer"),
    _Cache("compile_cache", ("DG_JIT_CACHE_DIR", "SGLANG_DG_CACHE_DIR", "SGL_DG_CACHE_DIR"), "{home}/.deep_gemm"),
    _Cache("compile_cache", (), "{home}/.cache/deep_gemm"),
    _Cache("compile_cache", ("CUDA_CACHE_PATH",), "{home}/.nv/ComputeCache"),
    _Cache("compile_cache", ("TVM_FFI_CACHE_DIR",), "{home}/.cache/tvm-ffi"),
    _Cache("compile_cache", ("TILELANG_CACHE_DIR",), "{home}/.tilelang/cache"),
    _Cache("engine_cache", ("VLLM_CACHE_ROOT",), "{cache}/vllm"),
    _Cache("engine_cache", ("SGLANG_CACHE_DIR",), "{home}/.cache/sglang"),
    _Cache("engine_cache", ("FIRSTLIGHT_CACHE",), "{cache}/firstlight"),
    _Cache("hub_cache", ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME/hub"), "{cache}/huggingface/hub"),
    _Cache("hub_cache", ("MODELSCOPE_CACHE",), "{home}/.cache/modelscope"),
)
_BY_PATH = (
    ("extensions", re.compile(r".*?/torch_extensions(?=/|$)")),
    (
        "compile_cache",
        re.compile(
            r".*?/(?:\.triton/cache|torchinductor_[^/]+|triton_cache|inductor_cache|torch_compile_cache"
            r"|flashinfer/\d[^/]*|\.deep_gemm|deep_gemm|tvm-ffi|\.tilelang|ComputeCache)(?=/|$)"
        ),
    ),
    (DOWNLOAD, re.compile(rf".*(?=/[^/]+{re.escape(UNFINISHED)}$)")),
)
_DOWNLOAD_OPTION = "--download-dir"
_CACHE_IN_JSON = re.compile(r'"cache_dir"\s{0,4}:\s{0,4}"(/[^"]{1,1024})"')


def used_by(environ: Mapping[str, str], words: Sequence[str], files: Iterable[str]) -> tuple[tuple[str, Path], ...]:
    """Folders with their purpose that a server with this environment, command line and open files would fill. They
    need not exist. Pure, but for the name of the user."""
    found = [*_usual(environ), *_named(words[:WORDS_MAX]), *_open(files)]
    hubs = [(DOWNLOAD, path) for purpose, path in found if purpose == "hub_cache"]
    return tuple(dict.fromkeys([*found, *hubs]))


def _usual(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - a text, to be put into texts
    places = {
        "home": home,
        "cache": environ.get("XDG_CACHE_HOME") or f"{home}/.cache",
        "tmp": environ.get("TMPDIR") or "/tmp",
        "user": _user(environ),
    }
    for cache in _CACHES:
        named = (_value(environ, variable) for variable in cache.variables)
        yield cache.purpose, Path(next(filter(None, named), cache.usual.format(**places)))


def _value(environ: Mapping[str, str], variable: str) -> str:
    name, slash, below = variable.partition("/")
    value = environ.get(name, "")
    return f"{value}{slash}{below}" if value.startswith("/") else ""


def _user(environ: Mapping[str, str]) -> str:
    """As torch has it: the variables first, then the user database (getpass.getuser)."""
    named = (environ.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME"))
    if user := next(filter(None, named), ""):
        return re.sub(r"[^\w.-]", "_", user)
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return str(os.geteuid())


def _named(words: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Folders that a command line names, and a folder for extensions below each of them."""
    for at, word in enumerate(words):
        option, _, value = word.partition("=")
        if option == _DOWNLOAD_OPTION and (folder := value or "".join(words[at + 1 : at + 2])).startswith("/"):
            yield "hub_cache", Path(folder)
        for inside in _CACHE_IN_JSON.findall(word):
            yield "compile_cache", Path(inside)
        path = value if value.startswith("/") else word
        if path.startswith("/") and len(path) < 4096:
            yield "extensions", Path(path) / "torch_extensions"


def _open(files: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for file in files:
        for purpose, pattern in _BY_PATH:
            if (found := pattern.match(file[:4096])) and found[0].startswith("/"):
                yield purpose, Path(found[0])


def folders(uses: Sequence[tuple[str, Path]], deadline: Deadline, root: Path = Path("/")) -> tuple[Folder, ...]:
    """What lies in each of these folders now; those that are not there are left out. Ends by the deadline.

    Of a download folder only the unfinished files are counted. `root` leads to the root of a server that lives in a
    container (/proc/PID/root); the folders are told by their names inside.
    """
    tallies = [_Tally(purpose, path, root) for purpose, path in dict.fromkeys(uses)][:FOLDERS_MAX]
    probes = [Probe("folder", partial(tally.count, deadline)) for tally in tallies]
    late = [isinstance(probe.result(deadline), Gap) for probe in probes]
    found = (tally.folder(cut) for tally, cut in zip(tallies, late, strict=True))
    return tuple(one for one in found if one)


class _Tally:
    """A folder as far as it has been counted. A worker counts while others may read."""

    def __init__(self, purpose: str, path: Path, root: Path) -> None:
        self._purpose = purpose
        self._path = path
        self._seen = root / path.relative_to("/") if path.is_absolute() else path
        self._files = self._bytes = 0
        self._newest = 0.0
        self._there = False
        self._whole = True

    def count(self, deadline: Deadline) -> None:
        """Count what lies below, the folder that changed last first, since that is where somebody works."""
        changed = self._seen.stat().st_mtime
        self._there, self._newest = True, 0.0 if self._purpose == DOWNLOAD else changed
        waiting = [(-changed, str(self._seen))]
        left = ENTRIES_MAX
        while waiting:
            _, folder = heapq.heappop(waiting)
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or deadline.passed:
                        self._whole = False
                        return
                    with suppress(OSError):
                        self._see(entry, waiting)

    def _see(self, entry: "os.DirEntry[str]", waiting: list[tuple[float, str]]) -> None:
        about = entry.stat(follow_symlinks=False)
        downloads = self._purpose == DOWNLOAD
        if stat.S_ISDIR(about.st_mode):
            heapq.heappush(waiting, (-about.st_mtime, entry.path))
            if downloads:
                return
        elif stat.S_ISREG(about.st_mode) and (not downloads or entry.name.endswith(UNFINISHED)):
            self._files += 1
            self._bytes += about.st_size
        else:
            return
        self._newest = max(self._newest, about.st_mtime)

    def folder(self, cut: bool) -> Folder | None:
        """The record; None of a folder that is not there, or has no unfinished file."""
        if not self._there or (self._purpose == DOWNLOAD and not self._files):
            return None
        return Folder(
            purpose=self._purpose,
            path=clean_text(str(self._path)),
            files=self._files,
            bytes=self._bytes,
            newest=self._newest,
            whole=self._whole and not cut,
        )
