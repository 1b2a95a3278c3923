"""Cannot bind its port, because somebody else has it; then ends with a traceback, or with --hang lives on.

Whoever asks that port gets the answers of the other process.
"""

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say, wait_for_ever


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--hang", action="store_true", help="log the error and stay")
    given = parser.parse_args()
    say("the model is loaded")
    try:
        server = TinyServer(given.port)
    except OSError as error:
        if not given.hang:
            raise
        say(f"ERROR: cannot listen on port {given.port}: {error}")
        wait_for_ever()
    serve(server)


if __name__ == "__main__":
    main()
