"""Stalls: two Python threads take the same two locks in opposite order.

With --undumpable no other process may read its stacks, descriptors or memory without CAP_SYS_PTRACE, as in a
hardened container.
"""

import ctypes
import threading

from firstlight.testing.stage import options, say

PR_SET_DUMPABLE = 4

pool = threading.Lock()
cache = threading.Lock()
has_pool = threading.Event()
has_cache = threading.Event()


def allocate() -> None:
    with pool:
        has_pool.set()
        has_cache.wait()
        with cache:
            say("allocated")


def evict() -> None:
    with cache:
        has_cache.set()
        has_pool.wait()
        with pool:
            say("evicted")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--undumpable", action="store_true")
    if parser.parse_args().undumpable:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    threads = [threading.Thread(target=allocate, name="allocate"), threading.Thread(target=evict, name="evict")]
    say("KV cache: allocating blocks")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
