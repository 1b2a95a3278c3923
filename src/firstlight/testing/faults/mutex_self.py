"""A thread takes a pthread mutex that it holds already."""

import ctypes

from firstlight.testing.stage import options, say

MUTEX_BYTES = 64


def main() -> None:
    options(__doc__).parse_args()
    mutex = ctypes.create_string_buffer(MUTEX_BYTES)
    library = ctypes.CDLL(None)
    library.pthread_mutex_lock(mutex)
    say("stuck")
    library.pthread_mutex_lock(mutex)


if __name__ == "__main__":
    main()
