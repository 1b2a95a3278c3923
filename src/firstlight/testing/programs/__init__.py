"""One program a file, run as `python -m firstlight.testing.programs.NAME [options]`; `--help` tells what it does.

Those that stall wait for something real that never comes; those that are slow do real work. Nothing here knows
that it is watched.
"""
