"""Calls of process groups from dumps of torch's flight recorder.

Price: reads. torch writes `<prefix><rank>` when a collective times out or when it is asked to (`dump_pipes`). The
files are read by `flight_reader`, a process that can be killed and in which no name of a pickle is looked up.
"""

import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from firstlight.clock import Deadline
from firstlight.core.collective import CollectiveCall
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.children import Late, output_of
from firstlight.evidence.collectives import flight_reader
from firstlight.evidence.workers import Probe
from firstlight.procfs import gap_from

WHAT = "flight recorder"
RANKS_MAX = 512
ENTRIES_MAX = 20_000
OUTPUT_BYTES_MAX = 256 * 1024 * 1024

_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_OLD_DEFAULT = "/tmp/nccl_trace_rank_"
_NAME = re.compile(r"(.*?)(\d{1,6})(\.json)?$")
_DUMP_LIKE = re.compile(r"(trace|rank|flight|fr|dump)", re.IGNORECASE)


class Dump(NamedTuple):
    """One dump on disk: whose, where, and when it was last written (wall time)."""

    rank: int
    path: Path
    written: float


class _Read(msgspec.Struct):
    """One line of what `flight_reader` prints."""

    calls: tuple[dict[str, object], ...] = ()
    error: str = ""


def flight_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where a server with this environment dumps: beginnings of paths, to which torch adds the rank. Pure."""
    named = [environ[name] for name in _VARIABLES if environ.get(name)]
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '')}/.cache"
    return tuple(Path(one) for one in dict.fromkeys([*named, f"{cache}/torch/comm_lib_trace_rank_", _OLD_DEFAULT]))


def flight_records(
    folders: Sequence[Path], deadline: Deadline, since: float = 0.0
) -> tuple[CollectiveCall, ...] | Gap:
    """The last calls of every group from the newest dump of every rank, by rank, group and sequence.

    Each of `folders` is a folder of dumps, or the beginning of their paths. Dumps last written before `since` (wall
    time) are of an earlier run and left out. A gap if there are dumps and none of them can be read.
    """
    dumps = Probe(WHAT, partial(find_dumps, folders, since)).result(deadline)
    if isinstance(dumps, Gap) or not dumps:
        return dumps if isinstance(dumps, Gap) else ()
    program = [sys.executable, "-I", "-S", str(Path(flight_reader.__file__)), *(str(one.path) for one in dumps)]
    try:
        done = output_of(program, deadline, OUTPUT_BYTES_MAX)
    except Late as error:
        return Gap(what=WHAT, reason=GapReason.TIMED_OUT, detail=f"reading the dumps was {error}")
    except OSError as error:
        return gap_from(error, WHAT)
    return records_of(dumps, done.output)


def find_dumps(folders: Sequence[Path], since: float) -> tuple[Dump, ...]:
    """The newest dump of each rank. Blocks where the file systems do."""
    newest: dict[int, Dump] = {}
    for folder in folders:
        for dump in _dumps_in(folder):
            held = newest.get(dump.rank)
            if dump.written >= since and (held is None or dump.written > held.written):
                newest[dump.rank] = dump
    return tuple(newest[rank] for rank in sorted(newest)[:RANKS_MAX])


def _dumps_in(folder: Path) -> list[Dump]:
    beginning = "" if folder.is_dir() else folder.name
    found = []
    try:
        with os.scandir(folder if folder.is_dir() else folder.parent) as entries:
            for _, entry in zip(range(ENTRIES_MAX), entries, strict=False):
                name = _NAME.fullmatch(entry.name)
                fits = name and (name[1] == beginning if beginning else _DUMP_LIKE.search(entry.name))
                if name and fits and stat.S_ISREG((about := entry.stat(follow_symlinks=False)).st_mode):
                    found.append(Dump(int(name[2]), Path(entry.path), about.st_mtime))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return found


def records_of(dumps: Sequence[Dump], output: bytes) -> tuple[CollectiveCall, ...] | Gap:
    """What `flight_reader` printed about these dumps, as records. Pure."""
    found: list[CollectiveCall] = []
    errors = []
    for dump, line in zip(dumps, output.splitlines(), strict=False):
        try:
            read = msgspec.json.decode(line, type=_Read)
            found += [msgspec.convert({**call, "rank": dump.rank}, CollectiveCall) for call in read.calls]
        except msgspec.MsgspecError as error:
            read = _Read(error=str(error))
        if read.error:
            errors.append(f"{dump.path.name}: {read.error}")
    if not found and errors:
        return Gap(what=WHAT, reason=GapReason.FAILED, detail=f"a dump cannot be read: {errors[0]}")
    return tuple(sorted(found, key=lambda call: (call.rank, call.group, call.sequence)))
