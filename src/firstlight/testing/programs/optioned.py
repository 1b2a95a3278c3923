"""Stalls or serves by its options, and by rules that a test gives.

`--with-a` switches a on, and so does a variable ON_a in the environment; `--with-a=8` is on with a value. The rules
are words in front of the options: `guilty=a` stalls where a is on, `guilty=a,b` where both are, `guilty=a>=8` where
its value is at least 8, `guilty=` always; several are as many causes. With `in-one-of=3` and `tally=FILE` it does so
only at every third start. `breaks=a` ends with an error where a is on, `refuses=a` with one of usage, `wants=a` where
it is off. `starts-in=S` takes its time, `deaf` ignores SIGTERM. `slow-but-well=S` is quiet for S seconds in the very
place of the stall, and then serves.
"""

import fcntl
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say, start

On = dict[str, str]


def stall(seconds: float) -> None:
    """Wait for a file lock that a worker holds for `seconds`, or for ever."""
    folder = tempfile.mkdtemp()
    lock, held = Path(folder, "engine.lock"), Path(folder, "held")
    os.mkfifo(held)
    start("worker_TP0", hold, lock, held, seconds)
    held.read_bytes()
    say("Loading model weights")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def hold(lock: Path, held: Path, seconds: float) -> None:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held.write_bytes(b"held")
        threading.Event().wait(seconds or None)


def are_on(names: str, on: On) -> bool:
    """Whether all of these options are on, those with a bound with a value that reaches it."""
    for word in filter(None, names.split(",")):
        name, _, least = word.partition(">=")
        if name not in on or (least and int(on[name] or 0) < int(least)):
            return False
    return True


def its_turn(tally: Path, one_of: int) -> bool:
    """Whether this start is one of those in which it shows."""
    with tally.open("a") as file:
        file.write("start\n")
    return len(tally.read_text().splitlines()) % one_of == 0


def switched_on(words: list[str]) -> On:
    pairs = (word.removeprefix("--with-").partition("=") for word in words if word.startswith("--with-"))
    variables = {name.removeprefix("ON_"): value for name, value in os.environ.items() if name.startswith("ON_")}
    return {name: value for name, _, value in pairs} | variables


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("rules", nargs="*")
    given, others = parser.parse_known_args()
    on = switched_on(others)
    rules = [(rule.partition("=")[0], rule.partition("=")[2]) for rule in given.rules]
    by_name = dict(rules)
    if "deaf" in by_name:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if any(rule == "refuses" and are_on(names, on) for rule, names in rules):
        parser.error("unrecognized arguments: there is no such option")
    if any(rule == "breaks" and are_on(names, on) for rule, names in rules):
        sys.exit("RuntimeError: there is no such combination")
    if any(rule == "wants" and not are_on(names, on) for rule, names in rules):
        sys.exit("RuntimeError: something is missing")
    say(f"Starting with {sorted(on)}")
    time.sleep(float(by_name.get("starts-in", 0)))
    if "slow-but-well" in by_name:
        stall(float(by_name["slow-but-well"]))
    elif any(rule == "guilty" and are_on(names, on) for rule, names in rules):
        one_of = int(by_name.get("in-one-of", 1))
        if one_of == 1 or its_turn(Path(by_name["tally"]), one_of):
            stall(0.0)
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
