"""A limit of the process (ulimit) refuses what the server needs: open files, locked memory, threads."""

from collections.abc import Iterator
from signal import Signals

from firstlight.core.facts import UNLIMITED, Limit
from firstlight.core.gap import Gap
from firstlight.core.look import ProcessLook
from firstlight.core.words import exit_words, size
from firstlight.diagnose import where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.failures import Kind, failed
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said

FEW_FILES = 65_536
FEW_FILES_SURELY = 4_096
FEW_PROCESSES = 16_384
"""A rank makes some hundred threads, Ray some thousand on a machine of many cores."""
ENDLESS_FILES = 1 << 28
"""Programs that close every possible descriptor before they start another take minutes over so many."""
NEARLY = 0.8
_NO_FILES = (
    r"^(?!.*(inotify|in system|ENFILE))"
    r".*(too many open files|EMFILE|(Errno|os error) 24\b|received 0 items of ancdata)"
)
"""Not the limits of the machine, nor those of inotify, which say nearly the same. A descriptor that is sent and finds
no place is dropped without an error: whoever should receive it gets none."""
_NO_LOCKED = (
    r"ibv_(reg_mr|create)\w*.*(cannot allocate memory|failed with error 12\b)|mlock\w*.*(failed|cannot allocate)"
    r"|(reg_mr|register\w* memory).*cannot allocate|RLIMIT_MEMLOCK|memlock.{0,40}(too (low|small)|limit)"
    r"|max(imum)? locked memory|fi_mr_reg.*(cannot allocate|\b12\b)"
)
_NOT_REGISTERED = (
    r"\b(ibv_(reg_\w*mr\w*|create_(cq|qp)\w*)|fi_mr_reg|uct_md_mem_reg|mlock(all|2)?|(Register|Reg|reg_)\w*(Mr|MR|mr)\w*)\b"
    r"(?!.*(bad address|invalid argument|permi|not supported|(error|errno|code|status):? (?!12\b)-?\d))"
    r".*\b(fail|unable|cannot|could not)"
)
"""Registered memory is locked. What is told of it need not say why it failed, but no other reason."""
NO_THREADS = (
    r"pthread_create failed|can't start new thread|thread creation failed|fork.*resource temporarily unavailable"
    r"|(Errno|os error) 11\b.*temporarily|failed to (spawn|create|start) (a )?(new )?(os |native |worker )?thread"
    r"|(can't|cannot) spawn (a )?(new |worker )?thread|\bOMP: (system )?error.*#(11|34)\b"
    r"|what\(\): +resource temporarily unavail|unable to create (new )?(native )?thread"
)
_NO_MEMORY = r"cannot allocate memory|bad_alloc|MemoryError|\bENOMEM\b|(Errno|os error) 12\b|cuInit.*out of memory"
_SIGNALS = {int(Signals.SIGXCPU): "cpu", int(Signals.SIGXFSZ): "fsize"}
_CLOSES = r"(_close_open_fds|closerange|_fork_exec|fork_exec|close_range|_execute_child) "


def everyone(scene: Scene) -> tuple[ProcessLook, ...]:
    """Every process of any look: whoever was refused something may have ended since."""
    return tuple({one.process.id: one for look in scene.bundle.looks for one in look.processes}.values())


def _limits(scene: Scene, name: str) -> Iterator[tuple[ProcessLook, Limit] | Gap]:
    for one in everyone(scene):
        if isinstance(one.facts.limits, Gap):
            yield one.facts.limits
        elif limit := one.facts.limit(name):
            yield one, limit


def _quoted(scene: Scene, one: ProcessLook, limit: Limit) -> Sighting:
    pid = one.process.id.pid
    soft = size(limit.soft) if limit.name in {"memlock", "as"} else str(limit.soft)
    return Sighting(shortened(f"/proc/{pid}/limits: {limit.name} of {scene.name(pid)} is {soft}"), (pid,), limit.name)


def _few_files(scene: Scene) -> Iterator[Sighting | Gap]:
    """Those that may open the fewest files, where these are few."""
    rows = list(_limits(scene, "nofile"))
    yield from (row for row in rows if isinstance(row, Gap))
    seen = [row for row in rows if not isinstance(row, Gap) and 0 <= row[1].soft <= FEW_FILES]
    fewest = min((limit.soft for _, limit in seen), default=0)
    yield from (_quoted(scene, *row) for row in seen if row[1].soft == fewest)


def _files_refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that files ran out, and few are allowed."""
    yield from both(_few_files(scene), said(scene, _NO_FILES))


def _little_locked(scene: Scene) -> Iterator[Sighting | Gap]:
    """Processes that may lock little memory, and lack the capability that lifts the limit."""
    for row in _limits(scene, "memlock"):
        if isinstance(row, Gap):
            yield row
            continue
        capabilities = row[0].facts.capabilities
        if row[1].soft != UNLIMITED and isinstance(capabilities, Gap):
            yield capabilities
        elif row[1].soft != UNLIMITED and not isinstance(capabilities, Gap) and "ipc_lock" not in capabilities:
            yield _quoted(scene, *row)


def _locking_refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that memory could not be locked or registered, and little may be."""
    yield from both(_little_locked(scene), said(scene, _NO_LOCKED))


def _not_registered(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that memory could not be registered, not why, and little may be locked."""
    yield from both(_little_locked(scene), said(scene, _NOT_REGISTERED))


def _threads_refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that threads were refused, and the limit of the user is nearly reached."""
    running = sum(one.sample.threads for one in everyone(scene))
    near = (
        row if isinstance(row, Gap) else _quoted(scene, *row)
        for row in _limits(scene, "nproc")
        if isinstance(row, Gap) or (0 < row[1].soft <= running / NEARLY)
    )
    yield from both(near, said(scene, NO_THREADS))


def _ended_by_files(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process ended as it could open no more files, and what it inherits allows few."""
    limit = _inherited(scene, "nofile")
    few = [Sighting(f"ulimit -n: {limit.soft} open files", what="nofile")] if limit and _few(limit, FEW_FILES) else []
    yield from both(few, failed(scene, Kind.FILES))


def _ended_by_threads(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process ended as it could make no thread or process, and what it inherits allows its user few."""
    limit = _inherited(scene, "nproc")
    few = (
        [Sighting(f"ulimit -u: {limit.soft} processes and threads of this user", what="nproc")]
        if limit and _few(limit, FEW_PROCESSES)
        else []
    )
    yield from both(few, failed(scene, Kind.THREADS))


def _few(limit: Limit, few: int) -> bool:
    return limit.soft != UNLIMITED and 0 < limit.soft <= few


def _closing_all(scene: Scene) -> Iterator[Sighting | Gap]:
    """A thread that computes stands where every possible descriptor is closed, and a billion are possible."""
    endless = {row[0].process.id.pid: row for row in _limits(scene, "nofile") if not isinstance(row, Gap)}
    for there in where.at(scene, _CLOSES):
        if isinstance(there, Gap):
            yield there
        elif there.pid in endless and there.thread.state == "R":
            one, limit = endless[there.pid]
            if limit.soft >= ENDLESS_FILES or limit.soft == UNLIMITED:
                yield _quoted(scene, one, limit)
                yield where.shown(scene, there)


def _ended_by_limit(scene: Scene) -> Iterator[Sighting]:
    """A process was ended by the signal that the kernel sends for a limit of time or of file sizes, and for nothing
    else."""
    for gone in scene.ended:
        limit = _SIGNALS.get(gone.signal or 0)
        if limit:
            yield Sighting(shortened(f"{of_exit(gone)} {exit_words(gone)}"), (gone.id.pid,), limit)


def _address_space(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that memory was refused, and a process may not map as much as it likes."""
    bounded = (
        row if isinstance(row, Gap) else _quoted(scene, *row) for row in _limits(scene, "as") if _is_finite(row)
    )
    yield from both(bounded, said(scene, _NO_MEMORY))


def _is_finite(row: tuple[ProcessLook, Limit] | Gap) -> bool:
    return isinstance(row, Gap) or row[1].soft != UNLIMITED


def _told(scene: Scene) -> Iterator[Sighting]:
    """The log says that locking memory was refused; whether the limit is to blame could not be seen."""
    rows = list(_limits(scene, "memlock"))
    if not rows or any(isinstance(row, Gap) or row[1].soft != UNLIMITED for row in rows):
        yield from said(scene, _NO_LOCKED)


def _inherited(scene: Scene, name: str) -> Limit | None:
    limits = scene.bundle.host.limits
    return next((one for one in (() if isinstance(limits, Gap) else limits) if one.name == name), None)


def _foreseen_files(scene: Scene) -> Iterator[Sighting]:
    limit = _inherited(scene, "nofile")
    if limit and 0 <= limit.hard < FEW_FILES_SURELY:
        yield Sighting(f"ulimit -n: at most {limit.hard} open files", what="nofile")


def _foreseen_locking(scene: Scene) -> Iterator[Sighting]:
    """Little memory may be locked, on a machine with InfiniBand or RoCE devices."""
    limit, host = _inherited(scene, "memlock"), scene.bundle.host
    devices = () if isinstance(host.devices, Gap) else host.devices
    if limit and limit.hard != UNLIMITED and "/dev/infiniband" in devices:
        yield Sighting(f"ulimit -l: {size(limit.hard)} may be locked, and /dev/infiniband is there", what="memlock")


CAUSE = Cause(
    id="ulimit",
    nature=Nature.MACHINE,
    title="a limit of the process ({what}) refuses what the server needs",
    clues=(
        decides("Did files run out where few are allowed?", _files_refused),
        decides("Was locking memory refused where little may be locked?", _locking_refused),
        decides("Were threads refused where the user's limit is reached?", _threads_refused),
        decides("Did a limit's own signal end a process?", _ended_by_limit),
        supports("Was memory refused where little may be mapped?", _address_space),
        supports(
            "Did memory fail to be registered, for no reason told, where little may be locked?", _not_registered
        ),
        supports("Did a process end as it could open no more files, where few are allowed?", _ended_by_files),
        supports("Did a process end as it could make no thread, where few are allowed?", _ended_by_threads),
        decides("Does somebody close a billion descriptors one by one?", _closing_all),
        supports("Does the log say that memory could not be registered or locked?", _told),
        foresees("Are few open files allowed?", _foreseen_files),
        foresees("May little memory be locked, with InfiniBand there?", _foreseen_locking),
    ),
    advice=Advice(
        confirm=("cat /proc/{pid}/limits: of the rank itself, not of your shell.",),
        work_around=("NCCL_IB_DISABLE=1 needs no locked memory, and is slower.",),
        repair=(
            (
                "docker run --ulimit memlock=-1 --ulimit nofile=1048576:1048576 --ulimit stack=67108864; in "
                "systemd LimitMEMLOCK=infinity, LimitNOFILE=1048576; in Kubernetes the limits of the "
                "container runtime."
            ),
        ),
    ),
    traps=(
        "limits.conf counts at login: services and containers do not read it.",
        "A limit of a billion open files is a trap of its own: some programs close every possible descriptor.",
    ),
)
