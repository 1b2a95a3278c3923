"""Where the time of a decode step of the embedded engine goes: the worker's stacks, sampled from outside by py-spy.

    python benches/where_decode_time_goes.py [--model FOLDER] [--at-once N] [--native] [-- OPTIONS OF THE ENGINE]

Every sample of the worker's working thread counts for the innermost function that is ours, whether it computes or
waits, so the shares add up to the step. The front and whoever asks work beside it; their CPU time is told apart. With
--native the C programs are taken apart too; the worker is then paused for each sample, which makes it slower.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from firstlight.embedded.demo.demo_model import ensure_demo_model, progress_on
from pairs import machine
from processes import cpu_s
from prompts import QUESTIONS
from servers import Server, embedded

PY_SPY = Path(sys.executable).with_name("py-spy")
FRAME = re.compile(r"([^ ;]+) \((?:\S*/)?firstlight/embedded/(\S+?)\.py:\d+\)")
"""A frame of ours: function, file, line."""

LIBRARY = re.compile(r"([^ ;]+) \([0-9a-f]{16,}\.so\)")
"""A frame of the compiled C programs, which are named by a hash."""

ROOMS = {
    "kernels/": "C programs",
    "model/": "torch and what calls the programs",
    "speculate/": "drafting",
    "worker/sampler": "choosing tokens",
    "worker/distribution": "choosing tokens",
    "channel": "messages to and from the front",
    "": "everything else",
}
"""The first prefix of the file decides."""

FEW = 32
"""Tokens asked for to see how fast it is."""
LEAST_SHARE = 0.005


class Sampled(NamedTuple):
    """A stretch of decoding: seconds a step, how often each function was seen, and CPU seconds a step beside it."""

    step_s: float
    seen: Counter[tuple[str, str]]
    front_s: float
    asking_s: float


def steps_per_s(server: Server, requests: int, tokens: int) -> float:
    """A step brings each request a token, if nothing is drafted."""
    prompts = [QUESTIONS[number % len(QUESTIONS)] for number in range(requests)]
    with ThreadPoolExecutor(requests) as askers:
        return statistics.median(
            answer.decoded_per_s for answer in askers.map(lambda one: server.ask(one, tokens), prompts)
        )


def sample(server: Server, requests: int, seconds: float, native: bool) -> Sampled:
    """Ask for what takes a little longer than `seconds`, and sample in the middle."""
    tokens = int((seconds + 2) * steps_per_s(server, requests, FEW))
    pids = {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in server.pids}
    front, worker = pids["fl-front"], pids["fl-worker-0"]
    with ThreadPoolExecutor(1) as asker:
        rate = asker.submit(steps_per_s, server, requests, tokens)
        time.sleep(1)
        before = cpu_s([front]), time.process_time()
        seen = Counter(innermost(py_spy(worker, seconds, native)))
        after = cpu_s([front]), time.process_time()
        steps = rate.result() * seconds
    return Sampled(seconds / steps, seen, (after[0] - before[0]) / steps, (after[1] - before[1]) / steps)


def py_spy(pid: int, seconds: float, native: bool) -> Iterator[tuple[str, int]]:
    """Stacks, outermost frame first, and how often each was seen. Waiting threads are looked at as well."""
    with tempfile.TemporaryDirectory(prefix="firstlight-bench-") as folder:
        path = Path(folder, "stacks")
        how = ["--rate", "200", "--duration", f"{seconds:.0f}", "--idle", "--format", "raw"]
        how.append("--native" if native else "--nonblocking")
        command = [str(PY_SPY), "record", "--pid", str(pid), *how, "--output", str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=seconds + 60)
        for line in path.read_text().splitlines():
            stack, _, times = line.rpartition(" ")
            yield stack, int(times)


def innermost(stacks: Iterable[tuple[str, int]]) -> dict[tuple[str, str], int]:
    """How often each (file, function) of ours was the innermost, in the thread that runs the worker's main.

    A C program counts for the function that has it run.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for stack, times in stacks:
        ours = FRAME.findall(stack)
        if any(file == "worker/__main__" for _, file in ours):
            function, file = ours[-1]
            if file.startswith("kernels/"):
                caller = next(caller for caller, where in reversed(ours) if not where.startswith("kernels/"))
                function = f"{caller} {operation(stack)}"
            seen[file, function] += times
    return seen


def operation(stack: str) -> str:
    """What the C programs did; empty if the stack says nothing of them."""
    ours: list[str] = [name for name in LIBRARY.findall(stack) if not name.startswith("firstlight_run")]
    if ours:
        return ours[0]
    if "firstlight_run" not in stack:
        return ""
    last = stack.rpartition(";")[2]
    return "small operations, and spinning for the others" if LIBRARY.match(last) else "waiting for the other threads"


def report(sampled: Sampled, requests: int) -> None:
    per_sample_ms = 1000 * sampled.step_s / sampled.seen.total()
    print(f"  requests at once: {requests}; a step takes {1000 * sampled.step_s:.2f} ms, of that")
    rooms: dict[str, Counter[tuple[str, str]]] = {}
    for (file, function), times in sampled.seen.items():
        room = next(room for prefix, room in ROOMS.items() if file.startswith(prefix))
        rooms.setdefault(room, Counter())[file, function] = times
    for room, functions in sorted(rooms.items(), key=lambda one: -one[1].total()):
        print(f"    {room:<68} {per_sample_ms * functions.total():7.2f} ms")
        for (file, function), times in functions.most_common():
            if times > LEAST_SHARE * sampled.seen.total():
                print(f"      {file + ' ' + function:<66} {per_sample_ms * times:7.2f} ms")
    print(f"  beside it, CPU time a step: front {1000 * sampled.front_s:.2f} ms, ", end="")
    print(f"the program that asks {1000 * sampled.asking_s:.2f} ms\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", type=Path, help="model folder (default: the demo model)")
    add("--at-once", type=int, action="append", help="requests at once; may be repeated (default: 1 and 16)")
    add("--native", action="store_true", help="look into the C programs too")
    add("--seconds", type=float, default=10)
    add("engine", nargs="*", metavar="OPTION", help="options of the engine, after --")
    options = parser.parse_args()
    print(__doc__)
    print(machine())
    model = options.model or ensure_demo_model(progress_on(sys.stderr))
    with embedded(model.name, model, *options.engine) as server:
        for requests in options.at_once or (1, 16):
            report(sample(server, requests, options.seconds, options.native), requests)


if __name__ == "__main__":
    main()
