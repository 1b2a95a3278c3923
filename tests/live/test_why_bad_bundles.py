"""Bundles that nobody should trust, given to `firstlight why`: one clear error or a report, within bounds."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from firstlight.core.bundle import BUNDLE_BYTES_MAX, Bundle
from firstlight.core.look import Frame, ProcessLook
from firstlight.core.record import to_json
from firstlight.testing.bundles import bundle, front, line, rank

pytestmark = pytest.mark.timeout(180)

WEIGHS_S = 90.0
MEMORY_BYTES = 6 << 30
MALICE = "</title></svg><script>alert(1)</script>\x1b[2J\u202e`|#@x"


def why(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "firstlight", "why", *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=WEIGHS_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
        check=False,
    )


def a_bundle() -> Bundle:
    return bundle(front(), rank(0), rank(1), log=["loading", line("refused", level="ERROR")])


def refusal(weighed: "subprocess.CompletedProcess[str]") -> str:
    assert weighed.returncode == 2, (weighed.returncode, weighed.stderr[-2000:])
    assert "Traceback" not in weighed.stderr
    assert len(weighed.stderr) < 4000
    return weighed.stderr


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_truncated_bundle_is_said_to_be_a_part(share: float, tmp_path: Path) -> None:
    whole = to_json(a_bundle())
    part = tmp_path / "part.json"
    part.write_bytes(whole[: int(len(whole) * share)])
    assert "only part of one" in refusal(why(part))


def test_a_field_that_its_version_does_not_have_is_refused(tmp_path: Path) -> None:
    raw = msgspec.json.decode(to_json(a_bundle()))
    path = tmp_path / "more.json"
    path.write_bytes(msgspec.json.encode({**raw, "verdict": "<script>"}))
    assert "verdict" in refusal(why(path))


def test_a_folder_is_no_bundle(tmp_path: Path) -> None:
    refusal(why(tmp_path))


def test_a_file_of_300_megabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    path.touch()
    os.truncate(path, 300 << 20)
    assert str(BUNDLE_BYTES_MAX) in refusal(why(path))


@pytest.mark.parametrize(
    "inside", ["[" * 200_000 + "]" * 200_000, '{"a":' * 200_000 + "1" + "}" * 200_000], ids=["lists", "objects"]
)
def test_deep_nesting_is_refused(inside: str, tmp_path: Path) -> None:
    whole = to_json(a_bundle())
    path = tmp_path / "deep.json"
    path.write_bytes(whole[:1] + f'"deep":{inside},'.encode() + whole[1:])
    refusal(why(path))


def evil(text: str) -> Bundle:
    """A bundle in which everything that comes from a server is `text`."""
    made = bundle(front(), rank(0), rank(1), log=[text, line(text, level="ERROR")], version=text)
    looks = (
        msgspec.structs.replace(look, processes=tuple(_renamed(one, text) for one in look.processes))
        for look in made.looks
    )
    return msgspec.structs.replace(made, looks=tuple(looks), command=("vllm", "serve", text), run=text)


def _renamed(one: ProcessLook, text: str) -> ProcessLook:
    stack = (Frame(function=text, file=text, line=1, code=text),)
    return msgspec.structs.replace(
        one,
        process=msgspec.structs.replace(one.process, name=text, label=text, cmdline=(text,)),
        threads=tuple(msgspec.structs.replace(thread, name=text, stack=stack) for thread in one.threads),
    )


@pytest.mark.parametrize("form", ["terminal", "html", "markdown"])
def test_huge_strings_are_shortened(form: str, tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_bytes(to_json(evil("a b" * 500_000)))
    weighed = why(path, "--format", form)
    assert weighed.returncode == 0, weighed.stderr[-2000:]
    assert len(weighed.stdout) < 2_000_000


def test_a_line_in_which_much_could_match_takes_no_square_of_its_length(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_bytes(to_json(evil("load (read weights:" * 20_000)))
    assert why(path).returncode == 0
