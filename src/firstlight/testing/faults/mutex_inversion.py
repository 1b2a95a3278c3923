"""Two threads take two pthread mutexes in opposite order, in C, with or without the interpreter lock held."""

import ctypes
import threading

from firstlight.testing.stage import options, say, wait_for_ever

MUTEX_BYTES = 64


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--hold-gil", action="store_true", help="call the C library without releasing the GIL")
    given = parser.parse_args()
    first, second = ctypes.create_string_buffer(MUTEX_BYTES), ctypes.create_string_buffer(MUTEX_BYTES)
    both_hold_one = threading.Barrier(2)
    library = ctypes.PyDLL(None) if given.hold_gil else ctypes.CDLL(None)

    def allocate(mine: ctypes.Array[ctypes.c_char], other: ctypes.Array[ctypes.c_char]) -> None:
        library.pthread_mutex_lock(mine)
        both_hold_one.wait()
        say("stuck")
        library.pthread_mutex_lock(other)

    threading.Thread(target=allocate, args=(first, second), name="scheduler", daemon=True).start()
    threading.Thread(target=allocate, args=(second, first), name="evictor", daemon=True).start()
    wait_for_ever()


if __name__ == "__main__":
    main()
