"""Look, gently: everything that can be seen of a server's processes from outside, with a deadline on every glance."""

from firstlight.evidence.around import ask_for_flight_records, kernels_covered
from firstlight.evidence.host import host
from firstlight.evidence.logs import tails
from firstlight.evidence.look import look, look_around
from firstlight.evidence.stacks import asking_by_signal

__all__ = ["ask_for_flight_records", "asking_by_signal", "host", "kernels_covered", "look", "look_around", "tails"]
