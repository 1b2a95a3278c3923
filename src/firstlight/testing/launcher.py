"""How a test starts a program of this package: its command line, and a port for it."""

import socket
import sys


def command(program: str, *options: str | int) -> list[str]:
    """The command line that runs `program` with this interpreter."""
    return [sys.executable, "-m", f"firstlight.testing.programs.{program}", *map(str, options)]


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
