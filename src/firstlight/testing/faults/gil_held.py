"""A native call waits in the C library without having released the interpreter lock; every other thread stands."""

import ctypes
import threading
import time

from firstlight.testing.stage import options, say

SEMAPHORE_BYTES = 64


def beat() -> None:
    while True:
        time.sleep(0.5)


def main() -> None:
    options(__doc__).parse_args()
    threading.Thread(target=beat, name="heartbeat", daemon=True).start()
    semaphore = ctypes.create_string_buffer(SEMAPHORE_BYTES)
    library = ctypes.PyDLL(None)
    library.sem_init(semaphore, 0, 0)
    say("stuck")
    library.sem_wait(semaphore)


if __name__ == "__main__":
    main()
