"""A library from LD_PRELOAD blocks the server in its constructor, before any of the server's own code runs."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from firstlight.testing.stage import options, say, wait_for_ever

SHIM = """
#include <unistd.h>
__attribute__((constructor)) static void hook(void) { write(1, "INFO: stuck\\n", 12); for (;;) pause(); }
"""


def main() -> None:
    options(__doc__).parse_args()
    compiler = shutil.which("cc") or sys.exit("there is no C compiler")
    folder = Path(tempfile.mkdtemp())
    (folder / "shim.c").write_text(SHIM)
    library = folder / "libvgpu_limit.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, folder / "shim.c"], check=True)
    say("starting the worker")
    child = subprocess.Popen([sys.executable, "-c", "print()"], env={**os.environ, "LD_PRELOAD": str(library)})
    child.wait()
    wait_for_ever()


if __name__ == "__main__":
    main()
