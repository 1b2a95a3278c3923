"""A few operations in plain C for the rows of decoding and verification on the CPU, compiled at first use.

`native.load()` says whether they can be had; without a compiler the engine runs on torch alone.
"""
