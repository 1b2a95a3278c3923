"""A bundle comes back as it was written; anything else is refused with one clear error."""

import msgspec
import pytest

from firstlight.core import bundle as bundles
from firstlight.core.bundle import BUNDLE_VERSION, Bundle, LogTail, read_bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Host
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.look import Frame, Listener, Lock, Look, OpenFile, ProcessLook, ThreadLook
from firstlight.core.process import Exit, Process, ProcessId, ProcessSample
from firstlight.core.record import to_json
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.errors import BundleError

REFUSED = Gap(what="bytes read", reason=GapReason.NO_PERMISSION, detail="run as root", pid=7)
WORKER = ProcessId(pid=7, started=123)
LINE = LogLine(stream="stderr", at=9.5, text="(TP0) ERROR x", message="ERROR x", source="TP0", pid=7, rank=0)

FULL = Bundle(
    made_by="firstlight test",
    run="r1",
    at=100.5,
    engine="vllm",
    engine_version="0.32.0",
    command=("vllm", "serve", "--api-key", "***"),
    phase=Phase.WEIGHTS,
    quiet_since=76.5,
    host=Host(
        name="h", kernel="6.1", cpus=8, memory_bytes=1 << 40, shm_bytes=REFUSED, shm_used_bytes=0, may_ptrace="any"
    ),
    timeline=(PhaseSpan(phase=Phase.SPAWN, source="", began=1.0, ended=2.0),),
    looks=(
        Look(
            at=99.0,
            took_s=0.2,
            monotonic=5.0,
            processes=(
                ProcessLook(
                    process=Process(
                        id=WORKER, ppid=1, name="w", cmdline=("w",), role=Role.WORKER, label="TP0", rank=0
                    ),
                    sample=ProcessSample(
                        id=WORKER,
                        state="S",
                        cpu_s=1.5,
                        threads=1,
                        major_faults=0,
                        memory_bytes=1,
                        shared_bytes=2,
                        read_bytes=REFUSED,
                        write_bytes=3,
                        disk_read_bytes=REFUSED,
                    ),
                    tracer=0,
                    threads=(
                        ThreadLook(
                            tid=7,
                            name="MainThread",
                            state="S",
                            cpu_s=1.5,
                            wchan="pipe_read",
                            syscall=REFUSED,
                            stack=(Frame(function="load", file="/w.py", line=3, code="x = read()"),),
                            owns_gil=True,
                            fds=(3,),
                            path="/p",
                        ),
                        ThreadLook(
                            tid=8, name="t", state="S", cpu_s=0, wchan=REFUSED, syscall="running", stack=REFUSED
                        ),
                    ),
                    files=(
                        OpenFile(fd=3, kind="pipe", target="pipe:[1]", access="r", peers=(7, 9), unseen=1),
                        OpenFile(fd=4, kind="socket", target="socket:[2]", detail="TCP", peers=REFUSED),
                    ),
                    gaps=(REFUSED,),
                ),
            ),
            listeners=(Listener(host="::", port=8000, pid=7, backlog=2),),
            locks=(Lock(kind="file", path="/lock", holder=0, waiters=(7,), age_s=9.0, holder_name="ninja"),),
            gaps=(REFUSED,),
        ),
        Look(at=1.0, took_s=0.0, processes=(), listeners=REFUSED, locks=REFUSED),
    ),
    exits=(Exit(id=WORKER, name="w", at=98.0, code=REFUSED), Exit(id=WORKER, name="w", at=98.0, signal=9, oom=True)),
    logs=(LogTail(source="TP0", lines=(LINE,), first_error=LINE),),
    gaps=(REFUSED,),
)


def changed(**fields: object) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(to_json(FULL)) | fields)


def test_it_comes_back_as_it_was_written() -> None:
    assert read_bundle(to_json(FULL)) == FULL


def test_a_field_that_its_version_does_not_have_is_refused() -> None:
    with pytest.raises(BundleError, match="surprise"):
        read_bundle(changed(surprise=1))


def test_an_unknown_field_deep_inside_is_refused() -> None:
    with pytest.raises(BundleError, match="surprise"):
        read_bundle(to_json(FULL).replace(b'"tid":7', b'"surprise":1,"tid":7'))


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_there_never_was_is_refused(version: int) -> None:
    with pytest.raises(BundleError, match=f"version {version}, which there never was"):
        read_bundle(changed(version=version))


def test_a_newer_version_is_refused_by_name_with_a_way_out() -> None:
    with pytest.raises(BundleError, match=f"version {BUNDLE_VERSION + 1}") as error:
        read_bundle(changed(version=BUNDLE_VERSION + 1, surprise=1))
    assert "newer firstlight" in error.value.way_out


def test_another_kind_of_file_is_refused_by_name() -> None:
    with pytest.raises(BundleError, match="a 'recipe' file"):
        read_bundle(changed(format="recipe"))


def test_a_field_left_out_takes_its_default() -> None:
    """What an older version did not have yet."""
    data = to_json(FULL).replace(b',"monotonic":5.0', b"").replace(b',"code":"x = read()"', b"")
    assert len(data) < len(to_json(FULL))
    assert read_bundle(data).looks[0].monotonic == 0.0


def test_every_truncation_is_refused() -> None:
    data = to_json(FULL)
    for length in range(0, len(data), 7):
        with pytest.raises(BundleError):
            read_bundle(data[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\x1f\x8b\x08\x00 gzip",
        b'{"format": "firstlight-bundle"}',
        b'{"format": "firstlight-bundle", "version": "1"}',
        b'{"format": "firstlight-bundle", "version": 1}',
        b'{"format": "firstlight-bundle", "version": 1e400}',
        b'{"format": "\xff\xfe", "version": 1}',
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b'{"format": "firstlight-bundle", "version": 1, "x": ' + b"[" * 1_000_000,
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_bundle_is_refused(data: bytes) -> None:
    with pytest.raises(BundleError):
        read_bundle(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [("at", "now"), ("phase", "lunch"), ("looks", {}), ("command", [1]), ("host", None), ("exits", [{"id": 1}])],
)
def test_a_value_of_another_kind_is_refused_with_its_place(field: str, value: object) -> None:
    with pytest.raises(BundleError, match=field):
        read_bundle(changed(**{field: value}))


def test_a_file_beyond_all_reason_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "BUNDLE_BYTES_MAX", 1000)
    with pytest.raises(BundleError, match="longer than 1000 bytes"):
        read_bundle(to_json(FULL))


def test_huge_strings_come_back() -> None:
    huge = msgspec.structs.replace(FULL, engine_version="x" * 10_000_000)
    assert read_bundle(to_json(huge)) == huge
