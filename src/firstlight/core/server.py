"""A server as its command line describes it."""

from firstlight.core.record import Record


class ServerCommand(Record):
    """What a command line says of the server it would start.

    `engine` is "vllm", "sglang", "embedded" or "generic". `argv` is the command exactly as it will run; it may
    hold secrets and is therefore never written anywhere: `redact.command(argv)` is. `host` is where a client on
    this machine reaches it (0.0.0.0 becomes 127.0.0.1), `port` 0 if the command does not tell. `served_name` is
    the model's name in requests, empty if the server must be asked. `ranks` counts the workers on this node
    (tensor x pipeline x data parallel), 0 if unknown; it is node number `node` of `nodes`. `env` holds the variables
    set in front of the command.
    """

    engine: str
    argv: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 0
    model: str = ""
    served_name: str = ""
    api_key: str = ""
    ranks: int = 0
    nodes: int = 1
    node: int = 0
    env: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        """Base URL for a client on this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"
