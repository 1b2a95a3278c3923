"""Reads dumps of torch's flight recorder, in a process of its own: `python -I -S flight_reader.py FILE…`.

A dump is a pickle, and a pickle can name any code to run and claim any amount of memory. So no name in it is ever
looked up, the whole reader has little memory and time, and what it prints is JSON of known fields, cut to size: one
line a file, `{"calls": […]}` or `{"error": "…"}`. Uses the standard library alone.
"""

import io
import json
import pickle
import resource
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

FILE_BYTES_MAX = 64 * 1024 * 1024
MEMORY_BYTES_MAX = 1024 * 1024 * 1024
CPU_S_MAX = 20
CALLS_MAX = 64
"""The last so many calls of each group are kept."""
GROUPS_MAX = 64
WORD_MAX = 200
TENSORS_MAX = 16
DIMENSIONS_MAX = 16


class NoNames(pickle.Unpickler):
    """Builds numbers, words, lists and mappings; a pickle that names anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a dump has no names"[:WORD_MAX])

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside itself")


def calls_of(data: bytes) -> list[dict[str, Any]]:
    """The last calls of each group in a dump, pickled or JSON, oldest first. Raises what pickle and json do."""
    dump = json.loads(data) if data.lstrip()[:1] == b"{" else NoNames(io.BytesIO(data)).load()
    entries = dump.get("entries") if isinstance(dump, dict) else None
    if not isinstance(entries, list):
        raise pickle.UnpicklingError("it holds no entries of a flight recorder")
    by_group: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in reversed(entries):
        call = _call(entry) if isinstance(entry, dict) else None
        if call and (call["group"] in by_group or len(by_group) < GROUPS_MAX):
            kept = by_group[call["group"]]
            if len(kept) < CALLS_MAX:
                kept.append(call)
    return [call for kept in by_group.values() for call in reversed(kept)]


def _call(entry: dict[Any, Any]) -> dict[str, Any]:
    operation = _word(entry.get("profiling_name"))
    return {
        "group": _group(entry.get("process_group")),
        "sequence": _count(entry.get("p2p_seq_id" if entry.get("is_p2p") is True else "collective_seq_id")),
        "operation": operation,
        "state": _state(entry, operation),
        "input_sizes": _sizes(entry.get("input_sizes")),
        "output_sizes": _sizes(entry.get("output_sizes")),
        "dtype": _first(entry.get("input_dtypes")),
        "where": _where(entry.get("frames")),
    }


def _state(entry: dict[Any, Any], operation: str) -> str:
    """NCCL's states come from events on the GPU; other backends stay "scheduled" and say "retired" in the end."""
    done = entry.get("retired") is True and not operation.startswith("nccl:")
    return "completed" if done else _word(entry.get("state"))


def _group(value: Any) -> str:
    """A group is its name and its description; the latter tells more where there is one."""
    words = [_word(part) for part in value[:2]] if isinstance(value, list | tuple) else [_word(value)]
    return ":".join(word for word in words if word and word != "undefined")


def _where(frames: Any) -> str:
    """The innermost frame outside of torch's own wrappers."""
    known = [frame for frame in frames[:WORD_MAX] if isinstance(frame, dict)] if isinstance(frames, list) else []
    own = (frame for frame in known if "/torch/distributed/" not in str(frame.get("filename")))
    frame = next(own, known[0] if known else None)
    if frame is None:
        return ""
    file = frame.get("filename")
    shown = file[-WORD_MAX:] if isinstance(file, str) else ""
    return f"{_word(frame.get('name'))} ({shown}:{_count(frame.get('line'))})"


def _word(value: Any) -> str:
    return value[:WORD_MAX] if isinstance(value, str) else ""


def _first(value: Any) -> str:
    return _word(value[0]) if isinstance(value, list | tuple) and value else ""


def _count(value: Any) -> int:
    """A number as JSON readers take it: torch's JSON writes some as words."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else 0


def _sizes(value: Any) -> list[list[int]]:
    rows = value[:TENSORS_MAX] if isinstance(value, list | tuple) else ()
    return [[_count(size) for size in row[:DIMENSIONS_MAX]] for row in rows if isinstance(row, list | tuple)]


def report(path: str) -> dict[str, Any]:
    """What is printed about one file."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            return {"error": f"it is larger than {FILE_BYTES_MAX >> 20} MiB"}
        return {"calls": calls_of(data)}
    except MemoryError:
        return {"error": "it claims more memory than a dump can need"}
    except Exception as error:  # noqa: BLE001 - a broken pickle can raise anything
        return {"error": f"{type(error).__name__}: {error}"[:WORD_MAX]}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    for path in sys.argv[1:]:
        print(json.dumps(report(path)), flush=True)


if __name__ == "__main__":
    main()
