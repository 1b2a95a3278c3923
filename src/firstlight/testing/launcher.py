"""How a test starts a program of this package: its command line, and a port for it."""

import socket
import sys
from pathlib import Path


def command(program: str, *options: str | int) -> list[str]:
    """The command line that runs `program` with this interpreter."""
    return [sys.executable, "-m", f"firstlight.testing.programs.{program}", *map(str, options)]


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def in_disguise(site: Path, module: str, program: str, *options: str) -> Path:
    """Make `python -m module` run `program`, wherever `site` is in PYTHONPATH; gives `site`.

    A program is then watched as the engine that its command line names. Of that command line it takes the port.
    """
    *packages, name = module.split(".")
    folder = site.joinpath(*packages)
    folder.mkdir(parents=True)
    for depth in range(len(packages)):
        site.joinpath(*packages[: depth + 1], "__init__.py").touch()
    (folder / f"{name}.py").write_text(
        f"import sys\n\n"
        f"from firstlight.testing.programs.{program} import main\n\n"
        f"port = sys.argv[sys.argv.index('--port') + 1]\n"
        f"sys.argv[1:] = [*{list(options)!r}, '--port', port]\n"
        f"main()\n"
    )
    return site
