"""A script starts its engine at module level, without a main guard; the spawned child runs the script again."""

import os
import sys
import tempfile
from pathlib import Path

from firstlight.testing.stage import options

SCRIPT = """
import multiprocessing as mp
import os, time

def work(queue):
    queue.put("ready")

class LLM:
    def __init__(self):
        context = mp.get_context("spawn")
        queue = context.Queue()
        print("INFO: starting the engine core", flush=True)
        self.core = context.Process(target=work, args=(queue,), name="EngineCore")
        try:
            self.core.start()
        except RuntimeError as error:
            print(f"ERROR: {error}", flush=True)
            print("INFO: stuck", flush=True)
            time.sleep(900)
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
