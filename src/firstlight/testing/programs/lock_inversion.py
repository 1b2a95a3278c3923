"""Stalls: two Python threads take the same two locks in opposite order."""

import threading

from firstlight.testing.stage import options, say

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
    options(__doc__).parse_args()
    threads = [threading.Thread(target=allocate, name="allocate"), threading.Thread(target=evict, name="evict")]
    say("KV cache: allocating blocks")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
