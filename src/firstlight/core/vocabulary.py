"""One word, one meaning. The enumerations that every part shares."""

from enum import StrEnum


class Phase(StrEnum):
    """A stage of start-up. Phases may repeat, may be missing, and may come in another order."""

    SPAWN = "spawn"
    IMPORT = "import"
    CONFIG = "config"
    RENDEZVOUS = "rendezvous"
    COMM_INIT = "comm_init"
    WEIGHTS = "weights"
    MODEL_INIT = "model_init"
    DRAFT_INIT = "draft_init"
    KV_CACHE = "kv_cache"
    COMPILE = "compile"
    GRAPH_CAPTURE = "graph_capture"
    WARMUP = "warmup"
    HTTP_BIND = "http_bind"
    VERIFY = "verify"
    SERVING = "serving"


class Motion(StrEnum):
    """What the progress signals say about a server or a process."""

    MOVING = "moving"
    """A real progress signal was measured within the last window."""
    SLOW = "slow"
    """Signals are there, but weaker or longer than this phase has been known to need."""
    QUIET = "quiet"
    """No signal for a while; within, or just beyond, what this phase is known to need."""
    STALLED = "stalled"
    """Quiet beyond what the phase is known to need, confirmed by a second look."""


class Signal(StrEnum):
    """A measured change that means work; `supervise/liveness/floors.py` says from how much on."""

    CPU = "cpu"
    READ = "bytes read"
    WRITE = "bytes written"
    FAULTS = "major faults"
    MEMORY = "memory growth"
    SHARED_MEMORY = "shared memory growth"
    GPU_MEMORY = "GPU memory growth"
    GPU = "GPU work"
    COMPILE_CHILD = "compile child"
    CACHE_FILES = "cache files growing"
    SOCKET = "bytes on sockets"
    LOG = "new log text"
    COUNTER = "progress counter"
    STACKS = "stacks change"
    TREE = "processes come and go"
    PHASE = "a new phase"


class Price(StrEnum):
    """What a probe costs the process that is looked at."""

    READS = "reads"
    """Reads kernel tables; the target does not notice."""
    ASKS = "asks"
    """Sends the target a question it is built to answer (HTTP)."""
    PAUSES = "pauses"
    """Stops the target for milliseconds."""
    SIGNALS = "signals"
    """Sends the target a signal; only ever to a server that firstlight launched."""


class Role(StrEnum):
    """What a process is to its server."""

    FRONT = "front"
    """Answers HTTP; usually the process that the user started."""
    ENGINE = "engine"
    """Schedules (vLLM EngineCore, SGLang data-parallel controller)."""
    WORKER = "worker"
    """Runs the model; a rank."""
    HELPER = "helper"
    """Tokenizer, detokenizer, resource tracker, coordinator."""
    COMPILER = "compiler"
    """nvcc, ptxas, cc1plus, ninja, an inductor worker."""
    OTHER = "other"


class Outcome(StrEnum):
    """How an attempt ended."""

    SERVING = "serving"
    """The first token was verified."""
    STALLED = "stalled"
    EXITED = "exited"
    """The server ended by itself, or lost a rank and fell."""
    DEADLINE = "deadline"
    """The user's deadline passed while the server still moved."""
    NOT_STARTED = "not_started"
    """It was not launched: no such command, or a port that is taken."""
    NOT_LOOKED = "not_looked"
    """firstlight could not observe the server."""
    LOOKED = "looked"
    """It was looked at once, and nobody waited for an end."""
    INTERRUPTED = "interrupted"
    """Ctrl-C or SIGTERM before there was a verdict."""


EXIT_CODES: dict[Outcome, int] = {
    Outcome.SERVING: 0,
    Outcome.STALLED: 1,
    Outcome.NOT_STARTED: 2,
    Outcome.EXITED: 3,
    Outcome.NOT_LOOKED: 4,
    Outcome.DEADLINE: 5,
    Outcome.LOOKED: 0,
    Outcome.INTERRUPTED: 130,
}


class Certainty(StrEnum):
    """What the clues of a cause come to, by one table (`diagnose/weigh.py`, `Weighed.certainty`). No percentages."""

    ESTABLISHED = "established"
    """A decisive clue for it was seen."""
    SUPPORTED = "supported"
    """Only supporting clues were seen."""
    OPEN = "open"
    """Clues on both sides; both are shown."""
    EXCLUDED = "excluded"
    """A decisive clue against it was seen, and no decisive one for it."""
    NOT_EXAMINED = "not examined"
    """Every probe that it needs ended in a gap."""
    NOT_SEEN = "not seen"
    """Its probes looked; nothing was there."""


class GapReason(StrEnum):
    """Why a fact was not seen."""

    NO_PERMISSION = "no permission"
    TIMED_OUT = "timed out"
    VANISHED = "vanished"
    """The process ended, or changed identity, while it was looked at."""
    NOT_SUPPORTED = "not supported"
    """Not on this kernel, this libc, this engine version."""
    NOT_INSTALLED = "not installed"
    FAILED = "failed"
    """The probe itself went wrong, or its answer made no sense."""
