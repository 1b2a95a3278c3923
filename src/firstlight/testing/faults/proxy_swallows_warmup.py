"""The server listens, and sends its own warm-up request through a proxy of the environment that answers nobody."""

import os
import socket
import sys
import urllib.request

from firstlight.testing.stage import options, say, start, wait_for_ever


def proxy(listener: socket.socket) -> None:
    connections = []
    while True:
        connections.append(listener.accept())


def main() -> None:
    options(__doc__).parse_args()
    if "http_proxy" not in os.environ:
        listener = socket.create_server(("127.0.0.1", 0))
        if os.fork() == 0:
            os.setsid()
            proxy(listener)
        os.environ |= {"http_proxy": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        os.environ.pop("no_proxy", None)
        os.execv(sys.executable, [sys.executable, "-m", "firstlight.testing.faults.proxy_swallows_warmup"])
    server = socket.create_server(("127.0.0.1", 0))
    start("scheduler_TP0", wait_for_ever)
    say("stuck")
    with urllib.request.urlopen(f"http://127.0.0.1:{server.getsockname()[1]}/get_model_info") as answer:
        answer.read()


if __name__ == "__main__":
    main()
