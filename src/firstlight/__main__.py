"""`python -m firstlight` is the same as `firstlight`."""

from firstlight.cli.main import main

if __name__ == "__main__":
    main()
