"""Look, gently: everything that can be seen of a server's processes from outside, with a deadline on every glance."""

from firstlight.evidence.host import host
from firstlight.evidence.logs import tails
from firstlight.evidence.look import look

__all__ = ["host", "look", "tails"]
