"""Healthy and slow, in one of many ways (--way), with pauses of random length (--seed); then it serves.

Each way moves by one kind of signal and shows nothing else of its work: no log line, unless the log is its way.
"""

import mmap
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from multiprocessing.synchronize import Barrier, Semaphore
from pathlib import Path

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import call_myself, options, say, start, wait_for_ever

MIB = 1 << 20
PAUSE_MAX_S = 9.0
"""The longest that a way is silent: less than any watcher may take for a stall."""

CONNECTIONS = 4

Beats = Iterator[float]
"""The moments at which something is done, as seconds since the last; ends when the start is over."""


def beats(seed: int, seconds: float) -> Beats:
    """Pauses of random length, most short and some long, until `seconds` have passed."""
    pick = random.Random(seed)
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        pause = min(left, PAUSE_MAX_S, pick.lognormvariate(-0.5, 1.2))
        time.sleep(pause)
        yield pause


def reads_weights(when: Beats) -> None:
    with tempfile.TemporaryFile(buffering=0) as weights:
        weights.write(bytes(64 * MIB))
        weights.seek(0)
        for _ in when:
            if not weights.read(MIB):
                weights.seek(0)


def maps_weights(when: Beats) -> None:
    with tempfile.TemporaryFile() as weights:
        weights.truncate(512 * MIB)
        with mmap.mmap(weights.fileno(), 0) as mapped:
            for at, _ in enumerate(when):
                begin = at * 4 * MIB % (500 * MIB)
                for page in range(begin, begin + 4 * MIB, mmap.PAGESIZE):
                    mapped[page] = 1


def grows(when: Beats) -> None:
    kept = [bytearray(4 * MIB) for _ in when]
    del kept


def fills_shared_memory(when: Beats) -> None:
    segment = shared_memory.SharedMemory(create=True, size=256 * MIB)
    memory = segment.buf
    assert memory is not None
    try:
        for at, _ in enumerate(when):
            begin = at * 2 * MIB % (250 * MIB)
            memory[begin : begin + 2 * MIB] = bytes(2 * MIB)
    finally:
        memory.release()
        segment.close()
        segment.unlink()


def downloads(when: Beats) -> None:
    """From a hub on loopback into a file."""
    hub = socket.create_server(("127.0.0.1", 0))
    child = start("hub", _give, hub, when, 32768)
    with socket.create_connection(hub.getsockname()) as connection, tempfile.TemporaryFile() as file:
        while data := connection.recv(65536):
            file.write(data)
    child.join()


def _give(hub: socket.socket, when: Beats, size: int) -> None:
    connection, _ = hub.accept()
    with connection:
        for _ in when:
            connection.sendall(bytes(size))


def is_fed_by_a_pipe(when: Beats) -> None:
    source, sink = os.pipe()

    def feed() -> None:
        for _ in when:
            os.write(sink, bytes(16384))
        os.close(sink)

    threading.Thread(target=feed, daemon=True).start()
    while os.read(source, 65536):
        pass


def logs(when: Beats) -> None:
    words = ("tokenizer", "config", "layer", "head", "norm", "rotary", "cache", "sampler", "graph", "scheduler")
    for at, _ in enumerate(when):
        say(f"{random.choice(words)} {random.choice(words)} of part {chr(97 + at % 26)} is {random.choice(words)}")


def counts(when: Beats) -> None:
    """As the bars of tqdm do, in a log where each update is a line."""
    for at, _ in enumerate(when):
        shards = f"Completed | {at}/1000 [00:{at % 60:02}<09:59,  1.2s/it]"
        say(f"Loading safetensors checkpoint shards: {at / 10:3.0f}% {shards}")


def compiles_once(when: Beats) -> None:
    """One child that calls itself a compiler and computes throughout."""
    child = start("cc1plus", _burn_until_killed)
    for _ in when:
        pass
    child.kill()
    child.join()


def compiles_many(when: Beats) -> None:
    for _ in when:
        compiler = start("ptxas", _burn, 0.3)
        compiler.join()


def _burn_until_killed() -> None:
    while True:
        pass


def _burn(seconds: float) -> None:
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass


def computes(when: Beats) -> None:
    """In bursts, with the interpreter lock."""
    for _ in when:
        _burn(0.4)


def computes_in_native_code(when: Beats) -> None:
    """In bursts, without the interpreter lock."""
    data = random.randbytes(4 * MIB)
    for _ in when:
        zlib.compress(data, 6)


def fills_a_cache(when: Beats) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for at, _ in enumerate(when):
            Path(folder, f"kernel_{at}.cubin").write_bytes(bytes(256 * 1024))


def runs_programs(when: Beats) -> None:
    for _ in when:
        subprocess.run([sys.executable, "-c", "print(sum(range(10**5)))"], stdout=subprocess.DEVNULL, check=True)


def one_rank_is_late(when: Beats) -> None:
    """The others wait in a barrier for the one that still computes."""
    barrier = multiprocessing.get_context("fork").Barrier(3)
    for rank in range(2):
        start(f"worker_TP{rank}", _meet, barrier)
    computes(when)
    barrier.wait()


def _meet(barrier: Barrier) -> None:
    barrier.wait()
    wait_for_ever()


def rank_after_rank(when: Beats) -> None:
    """Each rank loads in its turn; the others wait for it."""
    turns = [multiprocessing.get_context("fork").Semaphore(0) for _ in range(3)]
    for rank, turn in enumerate(turns):
        start(f"worker_TP{rank}", _load_in_turn, turn)
    for at, _ in enumerate(when):
        turns[at % 3].release()


def _load_in_turn(turn: Semaphore) -> None:
    kept = []
    while True:
        turn.acquire()
        kept.append(bytearray(3 * MIB))


def passes_weights_on(when: Beats) -> None:
    """Over a unix socket, to a rank that keeps them."""
    ours, theirs = socket.socketpair()
    start("worker_TP0", _take_and_keep, theirs, ours)
    theirs.close()
    for _ in when:
        ours.sendall(bytes(MIB))
    ours.close()


def _take_and_keep(connection: socket.socket, other_end: socket.socket) -> None:
    other_end.close()
    kept = bytearray()
    while data := connection.recv(65536):
        kept += data
    wait_for_ever()


def waits_for_a_builder(when: Beats) -> None:
    """Polls a lock file while somebody else builds, in bursts."""
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "lock")
        lock.touch()
        builder = start("ninja", _build, lock)
        threading.Thread(target=_release, args=(lock, when), daemon=True).start()
        while lock.exists():
            time.sleep(0.1)
        builder.kill()
        builder.join()


def _build(lock: Path) -> None:
    while lock.exists():
        _burn(0.3)
        time.sleep(0.5)


def _release(lock: Path, when: Beats) -> None:
    for _ in when:
        pass
    lock.unlink()


def downloads_in_threads(when: Beats) -> None:
    """Over four connections at once, and keeps nothing."""
    hub = socket.create_server(("127.0.0.1", 0))
    child = start("hub", _give_in_turn, hub, when)
    threads = [threading.Thread(target=_fetch, args=(hub.getsockname(),)) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child.join()


def _give_in_turn(hub: socket.socket, when: Beats) -> None:
    connections = [hub.accept()[0] for _ in range(CONNECTIONS)]
    for at, _ in enumerate(when):
        connections[at % CONNECTIONS].sendall(bytes(16384))


def _fetch(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        while connection.recv(65536):
            pass


def writes_a_snapshot(when: Beats) -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        for at, _ in enumerate(when):
            file.seek(at * MIB % (64 * MIB))
            file.write(bytes(MIB))


def renames_itself(when: Beats) -> None:
    """Computes a little under one name after the other, as engines do from phase to phase."""
    for at, _ in enumerate(when):
        call_myself(f"scheduler_TP{at % 2}")
        _burn(0.3)


WAYS: dict[str, Callable[[Beats], None]] = {
    way.__name__: way
    for way in (
        reads_weights,
        maps_weights,
        grows,
        fills_shared_memory,
        downloads,
        is_fed_by_a_pipe,
        logs,
        counts,
        compiles_once,
        compiles_many,
        computes,
        computes_in_native_code,
        fills_a_cache,
        runs_programs,
        one_rank_is_late,
        rank_after_rank,
        passes_weights_on,
        waits_for_a_builder,
        downloads_in_threads,
        writes_a_snapshot,
        renames_itself,
    )
}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    say("Starting")
    WAYS[given.way](beats(given.seed, given.seconds))
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
