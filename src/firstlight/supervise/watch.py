"""The watcher: at every tick it gathers what is new of one server, judges it, and says what happened.

It never blocks: files are followed, /proc is sampled, HTTP questions run in threads that can be abandoned. It never
decides what to do either; `attempt` reads its judgement and its events and acts.
"""

from collections.abc import Iterator

import msgspec

from firstlight.clock import Clock
from firstlight.core.events import (
    Event,
    GapNoted,
    MotionChanged,
    ProcessAppeared,
    ProcessGone,
    TokenVerified,
    Verifying,
)
from firstlight.core.gap import Gap
from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import GapReason, Motion, Phase
from firstlight.engines import EngineProfile
from firstlight.supervise.earlier_starts import EarlierStarts
from firstlight.supervise.liveness.history import History
from firstlight.supervise.liveness.judge import Confirmation, Judgement, Liveness
from firstlight.supervise.liveness.sampling import Sampler
from firstlight.supervise.log.listen import LogListener
from firstlight.supervise.log.phases import PhaseTracker
from firstlight.supervise.processes.exits import ExitWatch
from firstlight.supervise.processes.ports import addresses_of_port
from firstlight.supervise.processes.tree import ProcessTree
from firstlight.supervise.questions.own_port import OwnPort
from firstlight.supervise.questions.seek import Questions
from firstlight.supervise.questions.verify import AnswerKind
from firstlight.supervise.rows import Rows
from firstlight.supervise.stamp import Stamps
from firstlight.supervise.strips import Strips
from firstlight.supervise.target import Target

SAMPLE_EVERY_S = 1.0
YOUNG_S = 15.0
"""While a server is this young its tree is refreshed at every tick: many a rank dies within its first second."""
JUMP_S = 2.0
"""NTP slews a clock by less than a millisecond a second; what is more was a jump."""
VERIFY_AFTER_S = 1.0
"""A question that has been out for so long is a phase of its own; most are answered sooner."""


class Watch:
    """One server followed from its launch."""

    def __init__(
        self,
        target: Target,
        command: ServerCommand,
        profile: EngineProfile,
        *,
        tree: ProcessTree,
        exits: ExitWatch,
        sampler: Sampler,
        liveness: Liveness,
        history: History,
        questions: Questions,
        clock: Clock,
        attached: bool = False,
        show_log: bool = False,
    ) -> None:
        self.target = target
        self.command = command
        self.attached = attached
        self.stamp = Stamps(clock)
        self.started_wall = clock.wall()
        self.phases = PhaseTracker(profile, self.started_wall)
        self.log = LogListener(
            target.followers, self.phases, liveness.is_new_text, clock, self.stamp, tell_all=show_log
        )
        self.questions = questions
        self.rows = Rows()
        self.strips = Strips(self.started_wall)
        self.exits: list[Exit] = []
        self.judgement: Judgement = liveness.initial()
        self.in_flight: int | Gap = 0
        self._tree = tree
        self._exit_watch = exits
        self._sampler = sampler
        self._port = OwnPort(command.port, sampler)
        self._liveness = liveness
        self._earlier = EarlierStarts(history, liveness, self.phases, command)
        self._clock = clock
        self._motion = Motion.MOVING
        self._asleep = False
        self._next_sample = 0.0
        self._gaps: set[Gap] = set()
        self._answers = 0
        self._jumped_s = 0.0

    # What is known now

    @property
    def serving(self) -> bool:
        return self.questions.serving

    @property
    def processes(self) -> dict[ProcessId, Process]:
        return self._tree.processes

    @property
    def gone(self) -> bool:
        """Whether the server has ended. One whose first process exited with 0 while others live on has only gone into
        the background.
        """
        root = next((exit_ for exit_ in self.exits if exit_.id == self.target.root), None)
        return root is not None and not (root.clean and self.processes)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        gaps = {*self._gaps, *self._earlier.gaps, *self._port.gaps}
        return tuple(sorted(gaps, key=lambda gap: (gap.pid, gap.what)))

    @property
    def port(self) -> int:
        """The port that the server answers at, 0 while that is not known."""
        return self._port.number

    @property
    def url(self) -> str:
        """Where the server answers, empty while that is not known."""
        last = self.questions.first.last
        host = last.host if last is not None and last.host else self.command.host
        return msgspec.structs.replace(self.command, port=self.port, host=host).url if self.port else ""

    @property
    def profile(self) -> EngineProfile:
        """The engine's profile; that of a server of unknown kind may show itself in its log."""
        return self.phases.profile

    @property
    def quiet_since(self) -> float:
        """Wall time of the last progress signal."""
        return self._clock.wall() - self.judgement.quiet_s

    # One tick

    def tick(self) -> list[Event]:
        """Gather what is new and judge it; the events say what happened since the last tick."""
        due = self._clock.monotonic() >= self._next_sample
        events: list[Event] = []
        if due or self.stamp.elapsed_s < YOUNG_S:
            events += self._follow_tree()
        events += [*self.log.read(), *self._follow_exits()]
        if due:
            self._next_sample = self._clock.monotonic() + SAMPLE_EVERY_S
            events += self._sample()
        events += self._ask()
        return events

    def confirm(self, confirmation: Confirmation) -> list[Event]:
        """Tell liveness what two looks showed."""
        self.judgement = self._liveness.confirm(confirmation)
        return list(self._motion_events())

    def _follow_exits(self) -> Iterator[Event]:
        self._exit_watch.told(self.target.reported_exits())
        for seen in self._exit_watch.poll():
            exit_ = seen if self._tree.known(seen.id) else self._identified(seen)
            self.exits.append(exit_)
            yield ProcessGone(**self.stamp(), exit=exit_)

    def _identified(self, stranger: Exit) -> Exit:
        """The end of a process that the tree never saw alive: only its name tells what it was, a compiler say."""
        who = self.profile.identify((), stranger.name)
        return msgspec.structs.replace(stranger, role=who.role, label=who.label, rank=who.rank)

    def _follow_tree(self) -> Iterator[Event]:
        change = self._tree.refresh()
        self._exit_watch.gone(change.gone)
        for process in (*change.appeared, *change.changed):
            self._exit_watch.watch(process.id, process)
        for process in change.appeared:
            yield ProcessAppeared(**self.stamp(), process=process)

    def _sample(self) -> Iterator[Event]:
        self._earlier.recall()
        measurement = self._sampler.sample(self.processes.values())
        self.rows.update(measurement, self.processes, self.phases)
        self.strips.add(self.rows.all, measurement, self._clock.wall())
        if self.serving:
            self.in_flight = self.questions.in_flight(
                self.port, quiet_s=self.judgement.quiet_s, clients=self._sampler.clients_of(self.port)
            )
        self.judgement = self._liveness.update(
            measurement,
            log=self.log.take_activity(),
            phase=self.phases.phase,
            serving=self.serving,
            in_flight=self.in_flight,
            gone=self.left,
            processes=self.processes,
        )
        for gap in (*self.judgement.gaps, *self.target.gaps, *self._tree.gaps, *self._clock_jumps()):
            if gap not in self._gaps:
                self._gaps.add(gap)
                yield GapNoted(**self.stamp(), gap=gap)
        yield from self._motion_events()

    def _clock_jumps(self) -> Iterator[Gap]:
        """A jump of the system's clock since the last sample. The run's own times go on as if there had been none."""
        jumped_s = self._clock.jumped_s()
        if abs(jumped_s - self._jumped_s) >= JUMP_S:
            self._jumped_s = jumped_s
            detail = (
                f"it is {jumped_s:+.0f} s off now: it was set, or the machine slept; this run's times ignore that"
            )
            yield Gap(what="the system's clock", reason=GapReason.FAILED, detail=detail)

    def learn(self) -> None:
        """Remember this good start."""
        self._earlier.learn(self._clock.wall())

    def _motion_events(self) -> Iterator[Event]:
        asleep = bool(self.judgement.asleep)
        dozed_off = self.judgement.motion == Motion.QUIET and asleep and not self._asleep
        self._asleep = asleep
        if self.judgement.motion != self._motion or dozed_off:
            self._motion = self.judgement.motion
            yield MotionChanged(
                **self.stamp(),
                motion=self.judgement.motion,
                phase=self.phases.phase,
                why=self.judgement.why,
                signals=tuple(self.judgement.signals),
                quiet_s=round(self.judgement.quiet_s, 1),
            )

    @property
    def left(self) -> tuple[Exit, ...]:
        """Processes of the server that have ended while its root lives on."""
        return tuple(exit_ for exit_ in self.exits if exit_.id != self.target.root and self._tree.known(exit_.id))

    # HTTP

    def _ask(self) -> Iterator[Event]:
        if self.log.says_ready:
            self.log.says_ready = False
            self.questions.first.hurry()
        pending = self.questions.first.pending_s > 0
        port = 0 if self.serving else self._port.find(self.processes.values(), turn=self._answers, asking=pending)
        if port and self.phases.phase not in {Phase.HTTP_BIND, Phase.VERIFY}:
            yield from self.log.enter(Phase.HTTP_BIND)
        if self._first_token_is_due(port):
            yield from self.log.enter(Phase.VERIFY)
        before = self.questions.first.last
        answer = self.questions.poll(port, addresses_of_port(port) if port and not pending else ())
        if answer is None:
            return
        if answer.kind == AnswerKind.TOKEN and answer.token is not None:
            yield from self.log.enter(Phase.SERVING)
            yield TokenVerified(**self.stamp(), token=answer.token)
            return
        self._answers += 1
        if before is None or before.kind != answer.kind:
            yield Verifying(**self.stamp(), url=self.url, what=answer.what)

    def _first_token_is_due(self, port: int) -> bool:
        """Whether the server took the question and has not said that it is not ready."""
        first = self.questions.first
        refused = first.last is not None and first.last.kind in {AnswerKind.NOT_READY, AnswerKind.REFUSED}
        return bool(port) and first.pending_s >= VERIFY_AFTER_S and not refused and self.phases.phase != Phase.VERIFY
