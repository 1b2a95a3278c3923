"""Which finding tells why somebody ended, and how that is said after the words for the end. Pure."""

from collections.abc import Sequence

from firstlight.core.report import Finding
from firstlight.core.vocabulary import Certainty
from firstlight.diagnose.causes import all_causes
from firstlight.diagnose.clues import Nature


def reason(findings: Sequence[Finding], pid: int) -> Finding | None:
    """The first finding that explains the end of `pid`: it is about that process, and says more than that it ended.
    None if there is none."""
    natures = {cause.id: cause.nature for cause in all_causes()}
    sure = (one for one in findings if one.verdict in {Certainty.ESTABLISHED, Certainty.SUPPORTED})
    about = (one for one in sure if pid in one.pids)
    return next((one for one in about if natures[one.id].explains and natures[one.id] is not Nature.DEATH), None)


def because(findings: Sequence[Finding], pid: int) -> str:
    """What follows the words for the end of `pid`: ": " and the reason; empty if it is not known."""
    found = reason(findings, pid)
    if found is None:
        return ""
    return f": {found.title}{'' if found.verdict == Certainty.ESTABLISHED else ' (supported, not established)'}"
