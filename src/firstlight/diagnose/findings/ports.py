"""The port that the server wants belongs to somebody else. Pure."""

from collections.abc import Iterator

from firstlight.core.report import Finding
from firstlight.diagnose.quotes import ESTABLISHED, SUPPORTED
from firstlight.diagnose.scene import Scene


def port_taken(scene: Scene) -> Iterator[Finding]:
    """A listener on the server's port that is none of the server's processes."""
    for listener in scene.foreign_listeners[:1]:
        known = bool(listener.pid)
        owner = f"pid {listener.pid}" if known else "a process that could not be seen"
        yield Finding(
            id="port_taken",
            title=f"port {listener.port} {'is already taken' if known else 'may be taken'} by {owner}",
            verdict=ESTABLISHED if known else SUPPORTED,
            pids=(listener.pid,) if known else (),
            evidence=(
                f"{owner} listens on {listener.host} port {listener.port}"
                + (", and is not part of this server" if known else "; it may be the server itself"),
            ),
            advice=("Choose another port, or end the process that holds it if an earlier run left it behind.",),
        )
