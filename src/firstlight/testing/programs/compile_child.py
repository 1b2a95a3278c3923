"""Healthy and slow: waits in silence for a compiler, as every JIT extension build does; then it serves.

The compiler is the machine's own g++ on as much source as takes about --seconds of CPU. Without one, a child by
the name of `cc1plus` burns CPU instead.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say, start

SAMPLE = 100
"""Functions compiled first, to learn how many this machine compiles in a second."""


def kernel(number: int) -> str:
    return f"""
    void kernel_{number}(float* x, const float* y, const float* z, int n) {{
        for (int i = {number % 7}; i + {number % 5} < n; ++i)
            x[i] = x[i] * y[i + {number % 5}] + (z[i] > {number}.0f ? y[i] / (z[i] + 1.0f) : z[i] - y[i]);
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j) x[i] += y[j] * z[i] - {number}.0f * x[j];
    }}"""


def build(compiler: str, folder: Path, functions: int) -> float:
    """Compile `functions` functions; the seconds of CPU it took."""
    source = folder / "kernels.cpp"
    source.write_text("".join(map(kernel, range(functions))))
    before = os.times()
    subprocess.run([compiler, "-O3", "-c", source, "-o", folder / "kernels.o"], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def burn(seconds: float) -> None:
    while time.process_time() < seconds:
        pass


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    say("Building extension module fused_rotary")
    compiler = shutil.which("g++")
    if compiler:
        with tempfile.TemporaryDirectory() as folder:
            sample_s = build(compiler, Path(folder), SAMPLE)
            build(compiler, Path(folder), int(SAMPLE * given.seconds / sample_s))
    else:
        start("cc1plus", burn, given.seconds).join()
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
