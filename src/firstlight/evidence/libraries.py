"""Which libraries a process has loaded that can matter for a stall: file, version, build, and who put them there.

Price: reads; takes the target's mmap lock, and may block on a dead network file system: run it where it can be
abandoned. A file is read once in the life of firstlight, however many processes map it.
"""

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.clean import clean_text
from firstlight.core.facts import Library
from firstlight.evidence.elf import Elf, ElfFile, NotElf, Section
from firstlight.procfs import MappedFile

LIBRARIES_MAX = 200
KERNELS_MAX = 100
SCAN_BYTES_MAX = 400 << 20
SCAN_S = 0.6
"""The longest that one process's new libraries are searched for their versions; the next look goes on."""

PRELOAD_FILE = "/etc/ld.so.preload"
INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
"""Variables by which a library is made to be loaded by the CUDA driver."""


class _Kind(NamedTuple):
    """A kind of library: what its path looks like, what its version looks like inside the file (with a part of it
    that is quickly looked for), and what a version at the end of its name looks like. Fewer numbers than that are
    the version of an interface: "libnccl.so.2" is any NCCL since 2015."""

    name: str
    path: re.Pattern[str]
    version: re.Pattern[bytes] | None = None
    needle: bytes = b""
    in_name: re.Pattern[str] | None = None


_OF_DRIVER = re.compile(r"\.so\.(\d{3}(?:\.\d+)+)$")
_KINDS = (
    _Kind(
        "nccl",
        re.compile(r"/lib[nr]ccl\.so[.\d]*$"),
        re.compile(rb"[NR]CCL version[ :]{1,3}(\d{1,3}(?:\.\d{1,3}){1,3})"),
        b"CCL version",
        re.compile(r"\.so\.(\d+\.\d+\.\d+)$"),
    ),
    _Kind("cuda_driver", re.compile(r"/libcuda\.so[.\d]*$"), in_name=_OF_DRIVER),
    _Kind(
        "cuda_runtime",
        re.compile(r"/lib(cudart|amdhip64)(-[0-9a-f]{6,})?\.so[.\d]*$"),
        in_name=re.compile(r"\.so\.(\d+(?:\.\d+)*)$"),
    ),
    _Kind("ptx_jit", re.compile(r"/libnvidia-ptxjitcompiler\.so[.\d]*$"), in_name=_OF_DRIVER),
    _Kind(
        "mpi",
        re.compile(r"/lib(mpi|mpich|mpicxx|pmpi)\.so[.\d]*$"),
        re.compile(rb"(?:Open MPI v|MPICH Version:\s{1,20}|MVAPICH2? Version\s{0,20}:\s{1,20})(\d[\w.]{1,20})"),
        b"MPI",
    ),
    _Kind(
        "profiler",
        re.compile(
            r"/lib(ToolsInjection|InterceptorInjection|cuda-injection|sanitizer-public|vgpu|hami|xpu_?timer|memray)\w*"
            r"[-.\w]*\.so|/libnvbit\w*\.so|nvbit[^/]*\.so|/(nsight|nsys)[^/]*/.*Injection[^/]*\.so"
            r"|/libnccl-profiler\S*\.so|/lib[at]san\.so"
        ),
    ),
    _Kind(
        "kernels",
        re.compile(
            r"/(flashinfer|flashinfer_jit_cache|flashinfer_cubin|sgl_kernel|deep_gemm|deep_ep|vllm_flash_attn|flash_attn"
            r"|flash_attn_3|xformers|aiter|tilelang|bitsandbytes|flash_mla|causal_conv1d|mamba_ssm)/.*\.so"
            r"|/vllm/_\w+\.(abi3|cpython-)[^/]*so|/(flash_attn|deep_gemm|deep_ep|flash_mla)\w*\.(abi3|cpython-)[^/]*so"
            r"|/libtorch_(cuda|hip)\w*\.so|/(\.?triton|triton_cache|inductor_cache|torch_extensions|tvm-ffi|tilelang)/"
            r"|/torchinductor_[^/]+/|/\.cache/(flashinfer|deep_gemm|sglang|vllm)/|/\.deep_gemm/|/\.tilelang/"
            r"|/firstlight/kernels/"
        ),
    ),
)
_BY_NAME = {kind.name: kind for kind in _KINDS}
_NOT_KERNELS = re.compile(r"/site-packages/triton/")
_SYSTEM = re.compile(
    r"/(usr/)?lib(32|64|x32)?/|/usr/local/([^/]+/)?lib(64)?/|/usr/local/(cuda[^/]*|nvidia|rocm[^/]*)/"
    r"|/opt/(cuda|rocm|nvidia|amazon|hpcx|mellanox|intel|amdgpu|conda|venv)[^/]*/|/(nix|gnu)/store/|/snap/"
    r"|/usr/(lib)?exec/|/usr/share/"
)
_PYTHON = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+/|/libpython3")
_SHARED = re.compile(r"\.so(\.|$)")
_EXTENSION = re.compile(r"\.(cpython-\d+|abi3)[^/]*\.so$|\.abi3\.so$")
_KNOWN_NAME = re.compile(
    r"/lib(cublas|cudnn|cufft|curand|cusolver|cusparse|nvrtc|nvJitLink|nvToolsExt|cupti|nvshmem|gdrapi|uc[pstm]|nixl"
    r"|fabric|ibverbs|rdmacm|mlx5|efa|stdc\+\+|gcc_s|gomp|iomp5|omp|tbb|mkl_|openblas)[^/]*$"
)
"""Libraries of the CUDA toolkit, of transports and of compilers, which clusters install anywhere."""
_ORDER = {name: at for at, name in enumerate(("nccl", "profiler", "foreign", "preload", "mpi"))}


class Loader(NamedTuple):
    """How libraries come into a process: what LD_PRELOAD and /etc/ld.so.preload name, what the CUDA driver is told
    to load, and the folder that its Python lives in (empty where that is not known)."""

    preloads: tuple[str, ...] = ()
    injections: tuple[str, ...] = ()
    prefix: str = ""


def libraries_of(pid: int, environ: Mapping[str, str], clock: Clock) -> tuple[Library, ...]:
    """The libraries of a process that matter, the most telling first. `environ` is its environment, empty where that
    was refused. Raises OSError."""
    loader, root = loader_of(pid, environ), f"/proc/{pid}/root"
    deadline = Deadline(clock, SCAN_S, "versions of libraries")
    chosen = sorted(choose(procfs.mapped_files(pid), loader), key=lambda one: _ORDER.get(one[1], len(_ORDER)))
    kernels = [one for one in chosen if one[1] == "kernels"][:KERNELS_MAX]
    kept = [one for one in chosen if one[1] != "kernels"][: LIBRARIES_MAX - len(kernels)] + kernels
    return tuple(_library(mapped, kind, loader, root, deadline) for mapped, kind in kept)


def loader_of(pid: int, environ: Mapping[str, str]) -> Loader:
    """What a process's environment and file system say of how libraries get into it."""
    named = re.split(r"[\s:]+", environ.get("LD_PRELOAD", ""))
    with suppress(OSError):
        named += preload_words(Path(f"/proc/{pid}/root{PRELOAD_FILE}"))
    prefix = ""
    with suppress(OSError):
        folder = PurePosixPath(procfs.exe(pid)).parent
        prefix = str(folder.parent) if folder.name == "bin" else str(folder)
    injections = tuple(environ[name] for name in INJECTIONS if environ.get(name))
    return Loader(tuple(word for word in named if word), injections, "" if prefix in {"/", "/usr"} else prefix)


def preload_words(file: Path) -> list[str]:
    """What a file like /etc/ld.so.preload names; nothing if there is none. Raises OSError."""
    try:
        with file.open("rb") as opened:
            lines = opened.read(1 << 16).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [word for line in lines for word in re.split(r"[\s:]+", line.partition("#")[0]) if word]


def choose(files: Iterable[MappedFile], loader: Loader) -> Iterator[tuple[MappedFile, str]]:
    """The files that matter, with their kind. Pure."""
    for one in files:
        if _SHARED.search(one.path) and (kind := kind_of(one, loader)):
            yield one, kind


def kind_of(file: MappedFile, loader: Loader) -> str:
    """What a mapped file is, empty if it does not matter. Pure."""
    if any(_same(file.path, name) for name in loader.injections):
        return "profiler"
    for kind in _KINDS:
        if kind.path.search(file.path) and not (kind.name == "kernels" and _NOT_KERNELS.search(file.path)):
            return kind.name
    if file.code and not _at_home(file.path, loader.prefix):
        return "foreign"
    return "preload" if is_preloaded(file.path, loader) else ""


def is_preloaded(path: str, loader: Loader) -> bool:
    """Whether somebody asked for this library to be loaded before all others. Pure."""
    return any(_same(path, name) for name in loader.preloads)


def _same(path: str, name: str) -> bool:
    """Whether a mapped file is what `name` asks for, which may be a link to it, or only its last part."""
    wanted, base = PurePosixPath(name).name, PurePosixPath(path).name
    return path == name or base == wanted or (wanted.endswith(".so") and base.startswith(f"{wanted}."))


def _at_home(path: str, prefix: str) -> bool:
    """Whether a library lies where those of the system, of Python and of the CUDA toolkit are installed. Extension
    modules of Python count as at home anywhere: somebody imported them by name."""
    if _SYSTEM.match(path) or any(one.search(path) for one in (_PYTHON, _EXTENSION, _KNOWN_NAME)):
        return True
    return bool(prefix) and path.startswith(f"{prefix}/")


def _library(mapped: MappedFile, kind: str, loader: Loader, root: str, deadline: Deadline) -> Library:
    inside = Inside()
    if not mapped.deleted:
        with suppress(OSError, NotElf):
            inside = _inside(f"{root}{mapped.path}", kind, deadline)
    return Library(
        path=clean_text(mapped.path),
        kind=kind,
        version=inside.version or _version_in_name(mapped.path, kind),
        build=inside.build,
        preloaded=is_preloaded(mapped.path, loader),
        deleted=mapped.deleted,
    )


class Inside(NamedTuple):
    """What a library's file says of itself."""

    version: str = ""
    build: str = ""


_known: dict[tuple[int, int, int], Inside] = {}
"""By device, inode and time of the last change (ns)."""
_one_at_a_time = threading.Lock()
"""Ranks that are looked at together map the same files: whoever comes first reads them for all."""


def _inside(path: str, kind: str, deadline: Deadline) -> Inside:
    about = os.stat(path)  # noqa: PTH116 - one call a library and process, and there may be hundreds
    key = about.st_dev, about.st_ino, about.st_mtime_ns
    if key in _known:
        return _known[key]
    if not _one_at_a_time.acquire(timeout=deadline.left):
        return Inside()
    try:
        if key not in _known:
            with ElfFile(path) as file:
                version = _version(file, kind, deadline)
                if version is None:
                    return Inside("", file.build_id)
                _known[key] = Inside(version, file.build_id)
        return _known[key]
    finally:
        _one_at_a_time.release()


def _version(file: Elf, kind: str, deadline: Deadline) -> str | None:
    """The version that a library's text names; empty if it names none, None if the time was too short to tell."""
    of = _BY_NAME.get(kind)
    if of is None or of.version is None:
        return ""
    left = SCAN_BYTES_MAX
    for section in _texts_first(file.sections):
        for chunk in file.chunks(section, overlap=256, most=left):
            if deadline.passed:
                return None
            if of.needle in chunk and (found := of.version.search(chunk)):
                return found[1].decode()
        left -= min(left, section.size)
    return ""


def _version_in_name(path: str, kind: str) -> str:
    of = _BY_NAME.get(kind)
    found = of.in_name.search(path) if of and of.in_name else None
    return found[1] if found else ""


def _texts_first(sections: Iterable[Section]) -> list[Section]:
    """The sections that may hold text, read-only data first, code for the GPU last."""
    ranks = {".rodata": 0, ".data": 1, ".data.rel.ro": 2, ".nv_fatbin": 4, ".hip_fatbin": 4}
    return sorted((one for one in sections if one.size), key=lambda one: ranks.get(one.name, 3))
