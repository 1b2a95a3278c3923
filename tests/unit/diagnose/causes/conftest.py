"""One cause put to one bundle."""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, TypeAlias

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.report import Finding
from firstlight.diagnose.scene import scene_of
from firstlight.diagnose.weigh import weigh


class Judged(NamedTuple):
    """The word for a cause, and its finding where there is something to tell."""

    word: str
    finding: Finding | None

    @property
    def title(self) -> str:
        return self.finding.title if self.finding else ""

    @property
    def evidence(self) -> str:
        return "\n".join(self.finding.evidence) if self.finding else ""


Judge: TypeAlias = Callable[..., Judged]


@pytest.fixture
def judge() -> Judge:
    """Weigh one cause, by its id, for a start under way or `before` it."""

    def judged(bundle: Bundle, id_: str, *, before: bool = False) -> Judged:
        cause = import_module(f"firstlight.diagnose.causes.{id_}").CAUSE
        verdicts = weigh(scene_of(bundle), [cause], before=before)
        finding = next(iter(verdicts.findings), None)
        return Judged(finding.verdict if finding else dict(verdicts.others)[id_], finding)

    return judged
