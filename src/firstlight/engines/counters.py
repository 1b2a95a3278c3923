"""Progress counters in log lines: tqdm bars, "1.2/4.8 GiB", "3/64 shards", firstlight's own progress lines."""

import re

from firstlight.core.log import Counter

_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_SCALE |= {"Ti": 2.0**40}

_BAR = re.compile(
    r"(?P<description>[^%|]{0,200}?)(?:\d{1,3})%(?: Completed)? ?\|(?:[^|]*\|)? *"
    r"(?P<done>\d{1,15}(?:\.\d+)?)(?P<done_scale>[kKMGT]?)/(?P<total>\d{1,15}(?:\.\d+)?)(?P<total_scale>[kKMGT]?) "
    r"\[[^,\]]*(?:, *(?P<rate>[^\],]*))?"
)
_SIZES = re.compile(
    r"(?<![\w./-])(?P<done>\d{1,15}(?:\.\d+)?) ?(?:(?P<done_scale>[KMGT]?i?)B)? ?/ ?"
    r"(?P<total>\d{1,15}(?:\.\d+)?) ?(?P<total_scale>[KMGT]i?)B\b"
)
_COUNTS = re.compile(
    r"(?<![\w./-])(?P<done>\d{1,15}) ?(?:/|of) ?(?P<total>\d{1,15}) "
    r"(?P<unit>shards|files|layers|tensors|batches|graphs)(?![\w-])"
)
_OWN = re.compile(r"progress phase=\w+ done=(?P<done>\d{1,15}) total=(?P<total>\d{1,15}) unit=(?P<unit>\w+)")

_UNITS = (
    ("shard", "shards"),
    ("batch", "batches"),
    ("graph", "graphs"),
    ("num tokens", "graphs"),
    ("prefill shape", "graphs"),
    ("layer", "layers"),
    ("file", "files"),
    ("warmup", "steps"),
)


def counter(message: str) -> Counter | None:
    """The counter that a line shows, None if it shows none.

    Bars without a total tell no progress and give None, as does any line where "n/m" could be something else.
    """
    if "|" in message and "%" in message and (bar := _BAR.search(message)):
        return _bar_counter(bar)
    if "/" in message:
        if "B" in message and (sizes := _SIZES.search(message)):
            return _size_counter(sizes)
        counts = _COUNTS.search(message)
    elif message.startswith("progress "):
        counts = _OWN.match(message)
    else:
        counts = _COUNTS.search(message) if " of " in message else None
    return _valid(float(counts["done"]), float(counts["total"]), counts["unit"]) if counts else None


def _bar_counter(bar: re.Match[str]) -> Counter | None:
    done = float(bar["done"]) * _SCALE[bar["done_scale"]]
    total = float(bar["total"]) * _SCALE[bar["total_scale"]]
    return _valid(done, total, _unit_of_bar(bar["description"], bar["rate"] or ""))


def _size_counter(sizes: re.Match[str]) -> Counter | None:
    """In "1.2/4.8 GiB" the scale of the total holds for both."""
    scale = _SCALE[sizes["total_scale"]]
    own_scale = sizes["done_scale"]
    done = float(sizes["done"]) * (scale if own_scale is None else _SCALE[own_scale])
    return _valid(done, float(sizes["total"]) * scale, "bytes")


def _valid(done: float, total: float, unit: str) -> Counter | None:
    return Counter(done=done, total=total, unit=unit) if total > 0 and done <= total else None


def _unit_of_bar(description: str, rate: str) -> str:
    if rate.endswith("B/s"):
        return "bytes"
    lowered = description.lower()
    return next((unit for word, unit in _UNITS if word in lowered), "steps")
