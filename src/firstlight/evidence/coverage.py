"""Which GPUs the kernels of a library can run on, read from the library's file.

Price: reads. What a library is compiled for is listed in sections of its ELF file; what that means for a GPU are
NVIDIA's rules of binary compatibility (CUDA programming guide, "Compute capabilities"): machine code of X.y runs on
every X.z with z >= y; code of one architecture alone ("90a") on no other; PTX on any newer architecture (that of a
family, "100f", only within it) after the driver has compiled it, which is slow and happens in the process that wants
it. AMD's code runs on the architecture that it names, or on those of its generic target (LLVM's AMDGPU guide).

A library speaks for itself alone: that it has code for a GPU does not mean that each of its kernels has.
"""

import re
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

from firstlight import procfs
from firstlight.clock import Deadline
from firstlight.core.gap import Gap
from firstlight.core.host import Coverage
from firstlight.core.vocabulary import GapReason
from firstlight.evidence import fatbins
from firstlight.evidence.elf import ElfFile, NotElf, Section
from firstlight.evidence.fatbins import Kernels

LIBRARIES_MAX = 1024
WHAT = "kernels of a library"

_HEAD = Section("the ELF header", 0, 0, 64)
_SECTIONS = {
    ".nv_fatbin": fatbins.nvidia,
    "__nv_relfatbin": fatbins.nvidia,
    ".hip_fatbin": fatbins.amd,
}

_GENERIC = {
    "gfx9-generic": r"gfx90[02469c]",
    "gfx9-4-generic": r"gfx94[0-2]|gfx950",
    "gfx10-1-generic": r"gfx101[0-3]",
    "gfx10-3-generic": r"gfx103[0-6]",
    "gfx11-generic": r"gfx11[05][0-3]",
    "gfx12-generic": r"gfx120[01]",
}
"""The processors of AMD's generic targets (LLVM, "AMDGPU Generic Processors")."""

Way = Literal["machine code", "ptx", "no"]


def coverage(libraries: Iterable[str], architectures: Sequence[str], deadline: Deadline) -> tuple[Coverage, ...]:
    """What each library that holds device code has for the GPUs of this machine. May block on a dead file system.

    `architectures` are those of the GPUs ("90", "gfx942"). A file that holds no device code is left out; one that
    could not be read whole has a gap in `unread` and nothing in `missing`.
    """
    paths = list(dict.fromkeys(libraries))[:LIBRARIES_MAX]
    found = (_of_one(path, architectures, deadline) for path in paths)
    return tuple(one for one in found if one is not None)


def runs_on(machine_code: Iterable[str], ptx: Iterable[str], architecture: str) -> Way:
    """How device code for these architectures runs on a GPU of that one."""
    if any(_fits(code, architecture) for code in machine_code):
        return "machine code"
    return "ptx" if any(_compiles(text, architecture) for text in ptx) else "no"


def _fits(code: str, gpu: str) -> bool:
    if gpu.startswith("gfx"):
        return code == gpu or bool(re.fullmatch(_GENERIC.get(code, r"(?!)"), gpu))
    number, suffix = _split(code)
    wanted, _ = _split(gpu)
    if suffix == "a" or not number:
        return number == wanted != 0
    return number // 10 == wanted // 10 and number <= wanted


def _compiles(text: str, gpu: str) -> bool:
    number, suffix = _split(text)
    wanted, _ = _split(gpu)
    if suffix == "a":
        return number == wanted
    if suffix == "f":
        return number // 10 == wanted // 10 and number <= wanted
    return 0 < number <= wanted


def _split(architecture: str) -> tuple[int, str]:
    """A compute capability as ten times its value, and its suffix; 0 for what is none."""
    match = re.fullmatch(r"(\d{2,3})([af]?)", architecture)
    return (int(match[1]), match[2]) if match else (0, "")


def _of_one(path: str, architectures: Sequence[str], deadline: Deadline) -> Coverage | None:
    if deadline.passed:
        return _unread(path, Gap(what=WHAT, reason=GapReason.TIMED_OUT, detail=f"no time was left for {path[:300]}"))
    try:
        kernels = _kernels(path, deadline)
    except NotElf:
        return None
    except struct.error:
        return _unread(path, Gap(what=WHAT, reason=GapReason.FAILED, detail=f"{path[:300]} became shorter meanwhile"))
    except FileNotFoundError:
        return _unread(path, Gap(what=WHAT, reason=GapReason.VANISHED, detail=f"{path[:300]} is not there any more"))
    except OSError as error:
        return _unread(path, procfs.gap_from(error, WHAT))
    return None if kernels is None else _judged(path, kernels, architectures)


def _kernels(path: str, deadline: Deadline) -> Kernels | None:
    """What the file holds; None if it holds no device code."""
    with ElfFile(path) as elf:
        if architecture := fatbins.cubin(elf.read(_HEAD)):
            return Kernels(machine_code={architecture})
        sections = [one for one in elf.sections if one.name in _SECTIONS and one.size]
        if not sections:
            return None
        kernels = Kernels()
        for section in sections:
            size = min(section.size, max(0, elf.size - section.offset))
            _SECTIONS[section.name](partial(elf.read, section), size, deadline, kernels)
            if size < section.size:
                kernels.unread = "the file is shorter than it says"
        return kernels


def _judged(path: str, kernels: Kernels, architectures: Sequence[str]) -> Coverage:
    if kernels.unread:
        reason = GapReason.TIMED_OUT if kernels.late else GapReason.NOT_SUPPORTED
        gap = Gap(what=WHAT, reason=reason, detail=f"{path[:300]}: {kernels.unread}")
        return _unread(path, gap, kernels)
    amd = any(code.startswith("gfx") for code in kernels.machine_code)
    ways = {
        gpu: runs_on(kernels.machine_code, kernels.ptx, gpu) for gpu in architectures if gpu.startswith("gfx") == amd
    }
    missing = tuple(gpu for gpu, way in ways.items() if way != "machine code")
    return Coverage(
        library=path,
        machine_code=_sorted(kernels.machine_code),
        ptx=_sorted(kernels.ptx),
        missing=missing,
        runs_from_ptx=bool(missing) and all(ways[gpu] == "ptx" for gpu in missing),
    )


def _unread(path: str, gap: Gap, kernels: Kernels | None = None) -> Coverage:
    kernels = kernels or Kernels()
    return Coverage(library=path, machine_code=_sorted(kernels.machine_code), ptx=_sorted(kernels.ptx), unread=(gap,))


def _sorted(architectures: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(architectures, key=lambda one: (_split(one), one)))
