"""How fast memory is read by one thread on each CPU: it bounds decode, which reads all weights for a token."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BYTES_EACH = 512 << 20
"""Much more than any cache holds."""
TIMES = 7


def read_bandwidth() -> float:
    """Bytes a second, the best of a few reductions over arrays of floats: others can only take from it."""
    arrays = [np.ones(BYTES_EACH // 4, np.float32) for _ in range(os.cpu_count() or 1)]
    with ThreadPoolExecutor(len(arrays)) as threads:

        def seconds() -> float:
            began = time.perf_counter()
            list(threads.map(np.max, arrays))
            return time.perf_counter() - began

        return len(arrays) * BYTES_EACH / min(seconds() for _ in range(TIMES))
