"""Turns the C sources beside this file into a shared library, once for each machine, compiler and version of them.

The library is named by everything that it depends on, so a stale or foreign one is never loaded: a processor without
an instruction that it uses would end the process, and no check after loading could catch that. For the same reason it
ends with a digest of itself: a file cut short (the disk was full, the power failed) would end whoever loads it.
"""

import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from firstlight.embedded.machine import cache_folder

HERE = Path(__file__).parent
SOURCES = ("ops.c", "linear.c", "attend.c")
HEADERS = ("ops.h", "vectors.h")
OPTIONS = ("-std=gnu11", "-O3", "-shared", "-fPIC", "-Wno-psabi")
COMPILE_DEADLINE_S = 60.0
VERSION_DEADLINE_S = 10.0


class BuildFailed(Exception):
    """Why there is no library."""


class CompilerRefused(Exception):
    """The first line of what the compiler says."""


def silent(_: str) -> None:
    """Tells nobody."""


def library(machine: str = "native", tell: Callable[[str], None] = silent) -> Path:
    """The compiled library, from the cache if it is there.

    Args:
        machine: value of the compiler's `-march`.
        tell: is told before the compiler is started.

    Raises:
        BuildFailed: no compiler, it failed or took too long, or no folder can be written to.
    """
    compiler = find_compiler()
    version = compiler_version(compiler)
    # Some compilers come without OpenMP's library, some do not know their machine as "native".
    attempts = ((f"-march={machine}", "-fopenmp"), (f"-march={machine}",), ())
    paths = [cached(name_of([*compiler, version, *OPTIONS, *attempt])) for attempt in attempts]
    for path in paths:
        if sealed(path):
            return path
    tell(f"compiling the C operations for this processor with {compiler[0]}, once")
    reason = ""
    for path, attempt in zip(paths, attempts, strict=True):
        try:
            return compiled([*compiler, *OPTIONS, *attempt], path)
        except CompilerRefused as error:
            reason = reason or str(error)
    raise BuildFailed(f"{compiler[0]} failed: {reason}")


def find_compiler() -> list[str]:
    """The words of `$CC` if it is set, else gcc or cc. The sources use GCC's vectors, of which clang knows a part."""
    try:
        chosen = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise BuildFailed(f"$CC cannot be understood: {error}") from error
    for words in [chosen] if chosen else [["gcc"], ["cc"]]:
        found = shutil.which(words[0])
        if found:
            return [found, *words[1:]]
    raise BuildFailed(f"there is no C compiler ({chosen[0]} is not there)" if chosen else "there is no C compiler")


def compiler_version(compiler: Sequence[str]) -> str:
    """First line of `cc --version`."""
    try:
        done = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, timeout=VERSION_DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildFailed(f"{compiler[0]} --version failed: {error}") from error
    return first_line(done.stdout)


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def name_of(words: Sequence[str]) -> str:
    """A name for the library that these words (compiler, version, options) make of the sources on this processor."""
    digest = hashlib.sha256()
    for word in (*words, platform.machine(), processor_flags()):
        digest.update(word.encode() + b"\0")
    for name in (*SOURCES, *HEADERS):
        digest.update((HERE / name).read_bytes() + b"\0")
    return f"{digest.hexdigest()[:24]}.so"


def processor_flags() -> str:
    """What the processor can do: `flags` (x86) or `Features` (ARM) of proc_cpuinfo(5), with its model."""
    wanted = ("flags", "Features", "model name", "CPU part")
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def cached(name: str) -> Path:
    """Where a library of this name is, or will be: the user's cache, else a folder of this user's for the day."""
    usual = cache_folder() / "kernels"
    if (usual / name).exists() or writable(usual):
        return usual / name
    other = Path(tempfile.gettempdir()) / f"firstlight-kernels-{os.getuid()}"
    if not writable(other):
        raise BuildFailed(f"neither {usual} nor {other} can be written to")
    return other / name


def writable(folder: Path) -> bool:
    """Whether the folder is there, or can be made, is this user's own, and can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK)
    except OSError:
        return False


def compiled(command: Sequence[str], path: Path) -> Path:
    """Compile beside the place, then move there, so that two who compile at once never see half a file.

    Raises:
        CompilerRefused: the compiler ended with an error.
        BuildFailed: it took too long, or could not be run.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made, errors = Path(folder) / path.name, Path(folder) / "errors"
        sources = [str(HERE / name) for name in SOURCES]
        code = run_compiler([*command, *sources, "-o", str(made), "-lm"], errors)
        if code != 0:
            raise CompilerRefused(first_line(errors.read_text(errors="replace")) or f"exit status {code}")
        seal(made)
        made.replace(path)
    return path


def seal(made: Path) -> None:
    """Write a digest of a new library behind it, where no loader looks. Raises CompilerRefused if there is none."""
    if not made.is_file():
        raise CompilerRefused("it made no library")
    with made.open("r+b") as file:
        file.write(hashlib.sha256(file.read()).digest())


def sealed(path: Path) -> bool:
    """Whether a library is there, whole as it was made."""
    if not path.is_file():
        return False
    content = path.read_bytes()
    end = len(content) - hashlib.sha256().digest_size
    return end > 0 and hashlib.sha256(content[:end]).digest() == content[end:]


def run_compiler(command: Sequence[str], errors: Path) -> int:
    """Exit status; what it complains of goes to the file `errors`. At the deadline its helpers end with it."""
    try:
        with errors.open("wb") as complaints:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaints, process_group=0
            )
    except OSError as error:
        raise BuildFailed(f"{command[0]} could not be run: {error}") from error
    try:
        return process.wait(COMPILE_DEADLINE_S)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(VERSION_DEADLINE_S)
        raise BuildFailed(f"compiling the kernels took more than {COMPILE_DEADLINE_S:g} s") from error
