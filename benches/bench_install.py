"""How long the base install takes in an empty environment, against making that environment. The aim: under 10 s.

The wheel is built before, as a user gets it from the index. What is installed is listed: torch must not be there.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pairs import compare

ROOT = Path(__file__).parents[1]


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


class EmptyEnvironment:
    """An environment that is made, and then installed into; once for each turn."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder, self.wheel, self.turn = folder, wheel, 0

    @property
    def python(self) -> Path:
        return self.folder / str(self.turn) / "bin" / "python"

    def make(self) -> float:
        self.turn += 1
        began = time.perf_counter()
        run(sys.executable, "-m", "venv", self.folder / str(self.turn))
        return time.perf_counter() - began

    def install(self) -> float:
        began = time.perf_counter()
        run(self.python, "-m", "pip", "install", self.wheel)
        return time.perf_counter() - began

    def installed(self) -> list[str]:
        listed = json.loads(run(self.python, "-m", "pip", "list", "--format", "json"))
        return sorted(f"{package['name']} {package['version']}" for package in listed)


print(__doc__)
with tempfile.TemporaryDirectory() as temporary:
    folder = Path(temporary)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    environment = EmptyEnvironment(folder, next(folder.glob("firstlight-*.whl")))
    compare("python -m venv", environment.make, "pip install firstlight", environment.install, times=3)
    names = environment.installed()
    print("  installed:", ", ".join(names))
    print("  torch is there!" if any(name.startswith("torch ") for name in names) else "  torch is not there")
    print()
