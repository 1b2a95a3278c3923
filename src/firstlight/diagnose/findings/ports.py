"""The port that the server wants belongs to somebody else. Pure."""

from collections.abc import Iterator

from firstlight.core.report import Finding
from firstlight.diagnose.findings.quotes import ESTABLISHED
from firstlight.diagnose.scene import Scene


def port_taken(scene: Scene) -> Iterator[Finding]:
    """A listener on the server's port that is none of the server's processes."""
    for listener in scene.foreign_listeners[:1]:
        owner = f"pid {listener.pid}" if listener.pid else "a process that may not be seen"
        yield Finding(
            id="port_taken",
            title=f"port {listener.port} is already taken by {owner}",
            verdict=ESTABLISHED,
            pids=(listener.pid,) if listener.pid else (),
            evidence=(f"{owner} listens on {listener.host} port {listener.port}, and is not part of this server",),
            advice=("Choose another port, or end the process that holds it if an earlier run left it behind.",),
        )
