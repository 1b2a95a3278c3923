"""A process is stopped by a signal: it does nothing until somebody lets it go on."""

from functools import partial

from firstlight.diagnose.clues import Advice, Cause, Nature, decides
from firstlight.diagnose.stops import stopped

CAUSE = Cause(
    id="stopped_process",
    nature=Nature.HELD,
    title="{who} is stopped by a signal",
    clues=(
        decides(
            "Is a process in state T that runs the server, or that others wait for?", partial(stopped, needed=True)
        ),
    ),
    advice=Advice(
        steps=(
            "kill -CONT {pid} (SIGCONT) lets it go on.",
            "Find out who stopped it: SIGSTOP, Ctrl-Z, a debugger.",
        )
    ),
    each=True,
    evident=True,
)
