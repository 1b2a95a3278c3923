"""Ways of several processes: somebody else gives, builds or computes, and the server waits for it."""

import multiprocessing
import socket
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.synchronize import Barrier, Semaphore
from pathlib import Path

from firstlight.testing.slow.alone import computes
from firstlight.testing.slow.beats import Beats, burn
from firstlight.testing.stage import start, wait_for_ever

CONNECTIONS = 4
MIB = 1 << 20


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


def compiles_once(when: Beats) -> None:
    """One child that calls itself a compiler and computes throughout."""
    child = start("cc1plus", _burn_until_killed)
    for _ in when:
        pass
    child.kill()
    child.join()


def _burn_until_killed() -> None:
    while True:
        pass


def compiles_many(when: Beats) -> None:
    for _ in when:
        compiler = start("ptxas", burn, 0.3)
        compiler.join()


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
        burn(0.3)
        time.sleep(0.5)


def _release(lock: Path, when: Beats) -> None:
    for _ in when:
        pass
    lock.unlink()
