"""A process for which nobody is seen to wait is stopped by a signal: it may matter, and explains nothing."""

from functools import partial

from firstlight.diagnose.clues import Advice, Cause, Nature, supports
from firstlight.diagnose.stops import stopped

CAUSE = Cause(
    id="stopped_bystander",
    nature=Nature.SYMPTOM,
    title="{who} is stopped by a signal, and nobody is seen to wait for it",
    clues=(supports("Is a process in state T for which nobody is seen to wait?", partial(stopped, needed=False)),),
    advice=Advice(steps=("kill -CONT {pid} (SIGCONT) lets it go on.",)),
    each=True,
)
