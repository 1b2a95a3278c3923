"""Listens and refuses: --with key wants an API key, --with starting answers 503 for ever."""

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--with", dest="how", choices=["key", "starting"], required=True)
    given = parser.parse_args()
    health = 503 if given.how == "starting" else 200
    key = "a-key-that-nobody-told" if given.how == "key" else ""
    serve(TinyServer(given.port, health=health, key=key))


if __name__ == "__main__":
    main()
