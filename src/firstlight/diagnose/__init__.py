"""Weigh: pure functions of a bundle that say who is stuck where, and what speaks for it."""

from firstlight.diagnose.compare import Change, Difference, ProcessChange, compare
from firstlight.diagnose.losses import first_loss
from firstlight.diagnose.merge import merge
from firstlight.diagnose.reasons import because
from firstlight.diagnose.reported import reported
from firstlight.diagnose.sleeps import sleeping
from firstlight.diagnose.statement import Statement, check, state

__all__ = [
    "Change",
    "Difference",
    "ProcessChange",
    "Statement",
    "because",
    "check",
    "compare",
    "first_loss",
    "merge",
    "reported",
    "sleeping",
    "state",
]
