"""Listening to the log: what each new line says of phases, progress, errors and readiness, as events."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from firstlight.clock import Clock
from firstlight.core import redact
from firstlight.core.events import Event, LogSeen, PhaseBegan, PhaseEnded, Progress
from firstlight.core.log import Counter, LogLine, RawLine
from firstlight.core.vocabulary import Phase
from firstlight.engines import EngineProfile
from firstlight.supervise.liveness.judge import LogActivity
from firstlight.supervise.log.capture import LogFollower
from firstlight.supervise.log.phases import PhaseChange, PhaseTracker
from firstlight.supervise.stamp import Stamps

LINES_KEPT = 2000
NOTABLE_KEPT = 400
PROGRESS_EVERY_S = 1.0
SHOWN_CHARS = 1000
_WARNS = "NCCL WARN"
_WORTH_TELLING = frozenset({"WARNING", "ERROR", "CRITICAL"})


class LogListener:
    """Follows every log of one server. `lines` are the last ones, `first_error` is never forgotten, `phases` is
    what they say of the start."""

    def __init__(
        self,
        followers: Callable[[], Sequence[LogFollower]],
        phases: PhaseTracker,
        is_new_text: Callable[[str], bool],
        clock: Clock,
        stamps: Stamps,
        *,
        tell_all: bool = False,
    ) -> None:
        """With `tell_all` every line is an event, else only notable ones."""
        self.lines: deque[LogLine] = deque(maxlen=LINES_KEPT)
        self.first_error: LogLine | None = None
        self._notable: deque[LogLine] = deque(maxlen=NOTABLE_KEPT)
        self.says_ready = False
        self._private_keys: defaultdict[str, redact.PrivateKeys] = defaultdict(redact.PrivateKeys)
        self._followers = followers
        self.phases = phases
        self._is_new_text = is_new_text
        self._clock = clock
        self._stamps = stamps
        self._tell_all = tell_all
        self._reads_as, self._errors = phases.profile, phases.profile.errors()
        self._new_text = self._counter_moved = False
        self._bytes = 0
        self._progress_due = 0.0

    @property
    def kept(self) -> Iterator[LogLine]:
        """The warnings and errors that the last lines no longer hold, then the last lines."""
        begin = self.lines[0].at if self.lines else 0.0
        yield from (line for line in self._notable if line.at < begin)
        yield from self.lines

    def read(self) -> Iterator[Event]:
        """Take in what is new."""
        for follower in self._followers():
            for raw in follower.read():
                yield from self._see(raw)

    def catch_up(self) -> None:
        """Take in an old log without a word: its lines tell where the server stands, but not when they came."""
        for follower in self._followers():
            for raw in follower.backlog():
                for _ in self._see(raw):
                    pass
        self.phases.forget_times(self._clock.wall())
        self.take_activity()

    def drain(self) -> Iterator[Event]:
        """Take in all that is left, the line that never got its end included: the server has ended."""
        for follower in self._followers():
            for raw in follower.rest():
                yield from self._see(raw)

    def enter(self, phase: Phase) -> Iterator[Event]:
        """A phase that the watcher knows of as a fact, not from the log."""
        return self._phase_events(self.phases.enter(phase, self._clock.wall()))

    def take_activity(self) -> LogActivity:
        """What the logs did since this was last asked."""
        bytes_now = sum(follower.bytes_seen for follower in self._followers())
        activity = LogActivity(
            new_text=self._new_text, counter_moved=self._counter_moved, new_bytes=bytes_now - self._bytes
        )
        self._new_text = self._counter_moved = False
        self._bytes = bytes_now
        return activity

    def _see(self, raw: RawLine) -> Iterator[Event]:
        profile = self.phases.profile
        hidden = self._private_keys[raw.stream].hide(raw.text)
        line = profile.read_line(raw if hidden == raw.text else msgspec.structs.replace(raw, text=hidden))
        self.lines.append(line)
        if not profile.is_consequence(line) and self._is_new_text(line.message):
            self._new_text = True
        before = self.phases.counter
        changes = self.phases.see(line)
        yield from self._phase_events(changes)
        if (counter := self.phases.counter) is not None and counter != before:
            yield from self._count(counter, before)
        error = self._notes_error(profile, line)
        notable = bool(error or changes or line.level in _WORTH_TELLING)
        if error or line.level in _WORTH_TELLING or _WARNS in line.message:
            self._notable.append(line)
        if notable or (self._tell_all and line.text):
            yield LogSeen(
                **self._stamps(),
                stream=line.stream,
                source=line.source,
                level=line.level,
                text=line.text[:SHOWN_CHARS],
                notable=notable,
                first_error=line is self.first_error,
            )
        self.says_ready = self.says_ready or profile.ready(line)

    def _notes_error(self, profile: EngineProfile, line: LogLine) -> bool:
        """Whether the line is an error. The first one kept is the line that names it, not the headline over it."""
        if profile is not self._reads_as:
            self._reads_as, self._errors = profile, profile.errors()
        seen = self._errors.see(line)
        if seen.named and (self.first_error is None or seen.instead_of is self.first_error):
            self.first_error = line
        return seen.named

    def _count(self, counter: Counter, before: Counter | None) -> Iterator[Event]:
        if before is None or before.unit != counter.unit or counter.done > before.done:
            self._counter_moved = True
        if self._clock.monotonic() >= self._progress_due or counter.done >= counter.total:
            self._progress_due = self._clock.monotonic() + PROGRESS_EVERY_S
            eta_s = self.phases.eta_s(self._clock.wall())
            yield Progress(**self._stamps(), phase=self.phases.phase, counter=counter, eta_s=eta_s)

    def _phase_events(self, changes: Sequence[PhaseChange]) -> Iterator[Event]:
        for change in changes:
            stamp = self._stamps()
            if change.began:
                yield PhaseBegan(
                    **stamp,
                    phase=change.phase,
                    source=change.source,
                    rank=change.rank,
                    text=change.text[:SHOWN_CHARS],
                )
            else:
                yield PhaseEnded(
                    **stamp,
                    phase=change.phase,
                    source=change.source,
                    rank=change.rank,
                    seconds=round(change.seconds, 3),
                )
