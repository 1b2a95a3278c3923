"""A script starts its engine at module level, without a main guard: the spawned child runs the script again and ends
with an error, and the parent waits for its word.
"""

import os
import sys
import tempfile
from pathlib import Path

from firstlight.testing.stage import options

SCRIPT = """
import multiprocessing as mp
import time

def work(queue):
    queue.put("ready")

class LLM:
    def __init__(self):
        context = mp.get_context("spawn")
        queue = context.Queue()
        print("INFO: starting the engine core", flush=True)
        self.core = context.Process(target=work, args=(queue,), name="EngineCore")
        self.core.start()
        while self.core.is_alive():
            time.sleep(0.1)
        print("INFO: stuck", flush=True)
        queue.get()

llm = LLM()
"""


def main() -> None:
    options(__doc__).parse_args()
    script = Path(tempfile.mkdtemp()) / "generate.py"
    script.write_text(SCRIPT)
    os.execv(sys.executable, [sys.executable, "-u", str(script)])


if __name__ == "__main__":
    main()
