"""The screen for logs and pipes: plain lines, one for what matters, a heartbeat while nothing does."""

from firstlight.cli.screen.outlet import Outlet
from firstlight.cli.screen.phasenews import PhaseNews
from firstlight.cli.screen.results import Results
from firstlight.cli.screen.sentences import is_error, sentence, stays
from firstlight.core import redact
from firstlight.core.events import Event, LogSeen, MotionChanged, Stopping, Verdict
from firstlight.core.log import Counter
from firstlight.core.view import LiveView
from firstlight.core.vocabulary import Motion, Phase
from firstlight.core.words import counted, printable, seconds, size

HEARTBEAT_S = 10.0
ERROR_LINES_MAX = 30
AFTER_THIS_S = 1.0
CALM = frozenset({Motion.MOVING, Motion.QUIET})


class PlainScreen:
    """Writes `[  12.3 s] what happened` to `out`, and the verdict to `results`."""

    def __init__(self, out: Outlet, results: Outlet, *, show_log: bool = False) -> None:
        self._out = out
        self._results = Results(results)
        self._show_log = show_log
        self._phases = PhaseNews()
        self._ending = False
        self._error_lines = 0
        self._calm_said = -HEARTBEAT_S
        self._next_heartbeat = HEARTBEAT_S

    def event(self, event: Event) -> None:
        if isinstance(event, Verdict):
            self._out.drain(AFTER_THIS_S)  # both may be the same terminal
            self._results.show(event.report)
            self._say(event.t, stays(event.report, ending=self._ending))
        elif isinstance(event, LogSeen):
            self._say(event.t, self._log_line(event))
        elif isinstance(event, MotionChanged):
            self._say(event.t, self._motion(event))
        else:
            self._ending = self._ending or isinstance(event, Stopping)
            self._say(event.t, self._phases.see(event) or sentence(event))

    def tick(self, view: LiveView) -> None:
        if view.elapsed_s >= self._next_heartbeat:
            self._next_heartbeat = view.elapsed_s + HEARTBEAT_S
            self._say(view.elapsed_s, heartbeat(view))

    def close(self) -> None:
        self._out.drain()
        self._results.close()

    def _motion(self, event: MotionChanged) -> str:
        """A start that breathes (moving, quiet, moving …) is told of as rarely as the heartbeat."""
        if event.motion in CALM:
            if event.t - self._calm_said < HEARTBEAT_S:
                return ""
            self._calm_said = event.t
        return sentence(event)

    def _log_line(self, event: LogSeen) -> str:
        if self._show_log:
            return f"│ {printable(event.text)}"
        if not is_error(event):
            return ""
        self._error_lines += 1
        if self._error_lines == ERROR_LINES_MAX:
            return "│ … more errors follow in the server's log; they are not shown here"
        return f"│ {printable(event.text, 300)}" if self._error_lines < ERROR_LINES_MAX else ""

    def _say(self, t: float, line: str) -> None:
        if line:
            self._next_heartbeat = max(self._next_heartbeat, t + HEARTBEAT_S)
            self._out.write(f"[{t:7.1f} s] {redact.text(line)}\n")
            self._out.flush()


def heartbeat(view: LiveView) -> str:
    """What moves, in one line."""
    parts = [str(view.phase)]
    if view.counter is not None:
        parts.append(counter_words(view.counter, view.eta_s))
    parts.append(_standing(view))
    return ", ".join(parts)


def _standing(view: LiveView) -> str:
    if view.motion == Motion.STALLED:
        return f"stalled for {seconds(view.quiet_s)}"
    if view.phase == Phase.SERVING and view.in_flight is not None:
        return requests(view.in_flight)
    if view.motion in {Motion.MOVING, Motion.SLOW}:
        return _busy(view)
    return _quiet(view)


def requests(in_flight: int) -> str:
    """What a server that serves has to do."""
    return f"{counted(in_flight, 'request')} in flight" if in_flight else "idle"


def _quiet(view: LiveView) -> str:
    """How long there was no sign of progress, and what follows from it."""
    if view.looking:
        return f"quiet for {seconds(view.quiet_s)}, looking closer"
    if view.asleep:
        return f"quiet for {seconds(view.quiet_s)}, {printable(view.asleep)}"
    if view.quiet_s > view.threshold_s:
        return f"quiet for {seconds(view.quiet_s)}"
    return f"quiet for {seconds(view.quiet_s)}, looking closer after {seconds(view.threshold_s)}"


def counter_words(counter: Counter, eta_s: float | None) -> str:
    """Progress as "12 of 64 shards, about 40 s left"."""
    if counter.unit == "bytes":
        done = f"{size(counter.done)} of {size(counter.total)}"
    else:
        done = f"{counter.done:g} of {counter.total:g} {counter.unit}".rstrip()
    return f"{done}, about {seconds(eta_s)} left" if eta_s is not None else done


def _busy(view: LiveView) -> str:
    busy = sum(row.cpu_percent >= 5 for row in view.rows)
    read = sum(row.read_bytes_s for row in view.rows)
    cpu = sum(row.cpu_percent for row in view.rows)
    many = counted(len(view.rows), "process", "processes")
    words = f"{view.motion}: {busy} of {many} busy, CPU {cpu:.0f} %"
    return f"{words}, reads {size(read)}/s" if read >= 1000 else words
