"""What NCCL's RAS service says about communicators, in its two forms. Pure.

JSON since 2.28.7 names every rank. The words of earlier versions tell of ranks only where something is wrong, and
count operations only where ranks differ; the table of groups tells the rest (NCCL user guide, "RAS").
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from firstlight.core.collective import Communicator

COMMUNICATORS_MAX = 1024
RANKS_MAX = 1 << 13
SECTIONS_MAX = 256
BLOCKS_MAX = 16
_SUCCESS, _IN_PROGRESS = 0, 7
_RESULTS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote process error",
}

_GROUP = re.compile(r"\s*(\d{1,4})\s+(\d{1,6})\s+\d+\s+[\d-]+\s+(\d{1,6})\s+\d+\s+([A-Z]+)\s+[A-Z,]+\s*")
_HEAD = re.compile(r"#(\d{1,4})-(\d{1,6}) \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)")
_COUNTS_DIFFER = re.compile(r"\s+Communicator ranks have different (\w+) operation counts")
_STATUS_DIFFERS = re.compile(r"\s+Communicator ranks have different status")
_SOME = re.compile(r"\s+(\d+) ranks have (?:launched up to operation (\d+)|(not launched) any|status (\w+))")
_ONE = re.compile(r"\s+Rank (\d+) has (?:launched up to operation (\d+)|(not launched) any|status (\w+))")
_LISTED = re.compile(r"\s+Rank (\d+) -- ")
_REPORTED = re.compile(r"\s+(?:Rank )?(\d+)(?: ranks)? reported ([A-Za-z ]+?)(?: -- .*)?")
_ANSWER_BEGINS = re.compile(r"NCCL version |Job summary|Communicators")


class _Status(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = {}


class _Comm(msgspec.Struct):
    hash: str
    size: int
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []


class _Answer(msgspec.Struct):
    communicators: list[_Comm]


def from_json(data: bytes) -> tuple[Communicator, ...]:
    """The communicators in an answer of 2.28.7 and later. Raises ValueError if it is not one."""
    answer = msgspec.json.decode(data, type=_Answer, strict=False)
    return tuple(_communicator(one) for one in answer.communicators[:COMMUNICATORS_MAX])


def _communicator(one: _Comm) -> Communicator:
    ranks, missing = one.ranks[:RANKS_MAX], one.missing_ranks[:RANKS_MAX]
    errors = [f"rank {rank.rank}: {wrong}" for rank in ranks if (wrong := _wrong(rank.status))]
    return Communicator(
        id=one.hash[:64],
        ranks=one.size,
        missing=_sorted(rank.rank for rank in missing),
        unresponsive=_sorted(rank.rank for rank in missing if rank.status.unresponsive),
        dead=_sorted(rank.rank for rank in missing if rank.status.considered_dead),
        initialising=_sorted(rank.rank for rank in ranks if rank.status.init_state == _IN_PROGRESS),
        counts=tuple(sorted((rank.rank, sum(rank.collective_counts.values())) for rank in ranks)),
        error="; ".join(errors[:8]),
    )


def _wrong(status: _Status) -> str:
    if status.abort_flag:
        return "aborted"
    codes = (code for code in (status.init_state, status.async_error) if code not in {_SUCCESS, _IN_PROGRESS})
    return next((_RESULTS.get(code, f"error {code}") for code in codes), "")


def _sorted(ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(ranks)))


def from_text(text: str) -> tuple[Communicator, ...]:
    """The communicators in an answer of 2.24 to 2.28.6. Raises ValueError if it is not one."""
    if not _ANSWER_BEGINS.search(text):
        raise ValueError(repr(text[:100]))
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for line in text.splitlines():
        if (row := _GROUP.fullmatch(line)) and len(found) < COMMUNICATORS_MAX:
            group, count, ranks = int(row[1]), int(row[2]), int(row[3])
            for number in range(min(count, COMMUNICATORS_MAX - len(found))):
                found[group, number] = {"id": f"#{group}-{number}", "ranks": ranks}
                if row[4] == "INIT" and ranks <= RANKS_MAX:  # the most that any rank of it has reached
                    found[group, number]["initialising"] = tuple(range(ranks))
    for group, number, name, kind, lines in _sections(text):
        about = found.setdefault((group, number), {"id": f"#{group}-{number}", "ranks": 0})
        about["id"] = f"0x{name.lstrip('0') or '0'}"
        about |= _SECTION_READERS[kind](lines, int(about["ranks"]))
    return tuple(_without_missing(Communicator(**about)) for about in found.values())


def _without_missing(one: Communicator) -> Communicator:
    """Nothing is known of a missing rank, not even that it is still at its beginning."""
    left = tuple(rank for rank in one.initialising if rank not in one.missing)
    return msgspec.structs.replace(one, initialising=left)


def _sections(text: str) -> list[tuple[int, int, str, str, list[str]]]:
    """Every paragraph about one communicator: its number, its hash, what is wrong, and the lines that say so."""
    sections: list[tuple[int, int, str, str, list[str]]] = []
    inside = False
    for line in text.splitlines():
        if (head := _HEAD.match(line)) and len(sections) < SECTIONS_MAX:
            sections.append((int(head[1]), int(head[2]), head[3], head[4], []))
            inside = True
        elif not line.startswith(" ") and line:
            inside = False
        elif inside and line:
            sections[-1][4].append(line)
    return sections


def _incomplete(lines: list[str], _ranks: int) -> dict[str, Any]:
    listed = _sorted(int(match[1]) for line in lines if (match := _LISTED.match(line)))
    return {"missing": listed, "unresponsive": listed}


def _error(lines: list[str], _ranks: int) -> dict[str, Any]:
    said = [line.strip().partition(" -- ")[0] for line in lines if _REPORTED.fullmatch(line)]
    return {"error": "; ".join(said[:8])}


def _mismatch(lines: list[str], ranks: int) -> dict[str, Any]:
    totals: dict[int, int] = {}
    initialising: tuple[int, ...] = ()
    for block in _blocks(lines)[:BLOCKS_MAX]:
        values = _by_rank(block[1:], ranks)
        if _COUNTS_DIFFER.match(block[0]):
            for rank, value in values.items():
                totals[rank] = totals.get(rank, 0) + (int(value) if value.isdecimal() else 0)
        else:
            initialising = _sorted(rank for rank, value in values.items() if value == "INIT")
    found: dict[str, Any] = {"counts": tuple(sorted(totals.items()))}
    return found | ({"initialising": initialising} if initialising else {})


def _blocks(lines: list[str]) -> list[list[str]]:
    """The lines from one "ranks have different …" to the next."""
    blocks: list[list[str]] = []
    for line in lines:
        if _COUNTS_DIFFER.match(line) or _STATUS_DIFFERS.match(line):
            blocks.append([line])
        elif blocks:
            blocks[-1].append(line)
    return blocks


def _by_rank(lines: list[str], ranks: int) -> dict[int, str]:
    """What each rank has, from lines that name all who have it or only how many do. One set that is not named is
    everybody else; of several, nothing is known."""
    found: dict[int, str] = {}
    sets: list[tuple[str, bool]] = []
    for line in lines:
        if some := _SOME.match(line):
            sets.append((_value(some), False))
        elif one := _ONE.match(line):
            found[int(one[1])] = _value(one)
        elif (listed := _LISTED.match(line)) and sets:
            found[int(listed[1])] = sets[-1][0]
            sets[-1] = (sets[-1][0], True)
    unnamed = [value for value, is_named in sets if not is_named]
    if len(unnamed) == 1 and ranks <= RANKS_MAX:
        found |= {rank: unnamed[0] for rank in range(ranks) if rank not in found}
    return found


def _value(match: re.Match[str]) -> str:
    """How many operations, or which status."""
    launched, not_launched, status = match.groups()[1:]
    return launched or ("0" if not_launched else status)


_SECTION_READERS = {"INCOMPLETE": _incomplete, "ERROR": _error, "MISMATCH": _mismatch}
