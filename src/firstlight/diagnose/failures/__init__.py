"""Why somebody ended by itself: the error that ended it, by what was refused, and by whom. Pure."""

from firstlight.diagnose.failures.ending import Failure, ended, failed, failures, is_last, raised, raised_in, surely
from firstlight.diagnose.failures.kinds import Kind, refusal

__all__ = ["Failure", "Kind", "ended", "failed", "failures", "is_last", "raised", "raised_in", "refusal", "surely"]
