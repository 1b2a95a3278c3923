"""Stalls or serves by its options, and by rules that a test gives.

`--with-a` switches a on, and so does a variable ON_a in the environment; `--with-a=VALUE` is on with a value. The
rules: `--guilty a` stalls where a is on, `--guilty a=8` where its value is at least 8, `--guilty-pair a,b` where both
are on, `--guilty-variable NAME` where that variable is set, `--never-cured` always. With `--in-one-of 3 --tally FILE`
it does so only at every third start. `--breaks a` ends with an error where a is on, `--refuses a` with one of usage,
`--without a` where it is off.
`--slow-but-well S` is quiet for S seconds in the very place of the stall, and then serves.
"""

import fcntl
import os
import sys
import tempfile
import threading
from argparse import Namespace
from pathlib import Path

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say, start


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


def is_on(rule: str, on: dict[str, str]) -> bool:
    """Whether the option of a rule is on, with a value that is large enough where it names one."""
    name, _, least = rule.partition("=")
    return name in on and (not least or int(on[name] or 0) >= int(least))


def is_guilty(given: Namespace, on: dict[str, str]) -> bool:
    pairs = (set(pair.split(",")) for pair in given.guilty_pair)
    named = any(is_on(rule, on) for rule in given.guilty) or any(pair <= on.keys() for pair in pairs)
    by_variable = any(name in os.environ for name in given.guilty_variable)
    return given.never_cured or named or by_variable


def its_turn(given: Namespace) -> bool:
    """Whether this start is one of those in which it shows."""
    if not given.tally:
        return True
    with given.tally.open("a") as file:
        file.write("start\n")
    return len(given.tally.read_text().splitlines()) % int(given.in_one_of) == 0


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--guilty", action="append", default=[])
    parser.add_argument("--guilty-pair", action="append", default=[])
    parser.add_argument("--guilty-variable", action="append", default=[])
    parser.add_argument("--never-cured", action="store_true")
    parser.add_argument("--in-one-of", type=int, default=1)
    parser.add_argument("--tally", type=Path, help="counts the starts")
    parser.add_argument("--breaks", action="append", default=[])
    parser.add_argument("--refuses", action="append", default=[])
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--slow-but-well", type=float, default=0.0)
    given, unknown = parser.parse_known_args()
    words = (word.removeprefix("--with-").partition("=") for word in unknown if word.startswith("--with-"))
    on = {name: value for name, _, value in words}
    on |= {name.removeprefix("ON_"): value for name, value in os.environ.items() if name.startswith("ON_")}
    if set(given.refuses) & on.keys():
        parser.error(f"{given.refuses[0]} is not known here")
    if set(given.breaks) & on.keys() or set(given.without) - on.keys():
        sys.exit("RuntimeError: there is no such combination")
    say(f"Starting with {sorted(on)}")
    if given.slow_but_well:
        stall(given.slow_but_well)
    elif is_guilty(given, on) and its_turn(given):
        stall(0.0)
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
