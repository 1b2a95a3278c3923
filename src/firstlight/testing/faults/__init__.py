"""One planted fault a file, run as `python -m firstlight.testing.faults.NAME [options]`: real, and small.

Each does what a server does, gets stuck for one reason, and says "stuck" just before. `firstlight.testing.zoo` is the
table of what they are and what has to be said of them. Nothing here knows that it is watched.
"""
