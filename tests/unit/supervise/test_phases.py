"""Phases followed by rank, from log lines and from facts, in whatever order they come."""

import pytest

from firstlight.core.log import RawLine
from firstlight.core.vocabulary import Phase
from firstlight.engines import profile
from firstlight.supervise.log.phases import SOURCES_MAX, SPANS_MAX, PhaseChange, PhaseTracker


class Server:
    """A tracker fed with lines, one a second."""

    def __init__(self, engine: str) -> None:
        self.now = 0.0
        self.tracker = PhaseTracker(profile(engine), 0.0)

    def say(self, *texts: str) -> list[PhaseChange]:
        changes = []
        for text in texts:
            self.now += 1.0
            line = self.tracker.profile.read_line(RawLine(stream="stderr", at=self.now, text=text))
            changes += self.tracker.see(line)
        return changes

    def enter(self, phase: Phase) -> list[PhaseChange]:
        self.now += 1.0
        return self.tracker.enter(phase, self.now)

    @property
    def phase(self) -> Phase:
        return self.tracker.phase

    @property
    def story(self) -> str:
        """ "spawn import weights@TP0": every span in the order of its beginning."""
        return " ".join(span.phase + (f"@{span.source}" if span.source else "") for span in self.tracker.timeline)


def sglang(message: str, rank: str = "") -> str:
    return f"[2026-11-29 13:50:55{' ' + rank if rank else ''}] {message}"


def vllm(message: str, who: str = "Worker", pid: int = 7) -> str:
    return f"({who} pid={pid}) INFO 11-29 12:42:22 [a.py:1] {message}"


def own(message: str, who: str = "worker rank=0", pid: int = 7) -> str:
    return f"[firstlight {who} pid={pid}] {message}"


BAR = "Loading safetensors checkpoint shards:  {percent}% Completed | {done}/4 [00:01<00:03,  1.00it/s]"


def bar(done: int) -> str:
    return BAR.format(percent=25 * done, done=done)


def test_a_launch_begins_with_spawn_and_its_first_words_are_import() -> None:
    server = Server("vllm")
    assert server.phase is Phase.SPAWN
    began = server.say("", "Triton is installed, but doesn't include CPU backend.")
    assert [(change.phase, change.began, change.seconds) for change in began] == [
        (Phase.SPAWN, False, 2.0),
        (Phase.IMPORT, True, 0.0),
    ]
    assert server.phase is Phase.IMPORT


def test_an_unknown_server_that_says_nothing_known_stays_in_spawn() -> None:
    server = Server("generic")
    server.say("hello", "world")
    assert (server.phase, server.story) == (Phase.SPAWN, "spawn")


def test_times_are_measured_from_line_to_line() -> None:
    server = Server("sglang")
    changes = server.say(sglang("Load weight begin. x"), sglang("nothing"), sglang("Load weight end. x"))
    assert [(change.phase, change.seconds) for change in changes if not change.began] == [
        (Phase.SPAWN, 1.0),
        (Phase.WEIGHTS, 2.0),
    ]
    assert changes[-1].text == "Load weight end. x"


def test_a_phase_that_ended_remains_the_last_known_until_another_begins() -> None:
    server = Server("sglang")
    server.say(sglang("Load weight begin. x"), sglang("Load weight end. x"))
    assert server.phase is Phase.WEIGHTS
    server.say(sglang("KV Cache is allocated. #tokens: 1"))
    assert server.phase is Phase.KV_CACHE


def test_a_phase_may_come_again() -> None:
    server = Server("sglang")
    server.say(
        sglang("Load weight begin. x"),
        sglang("Load weight end. x"),
        sglang("KV Cache is allocated. #tokens: 1"),
        sglang("Load weight begin. x"),
    )
    assert server.phase is Phase.WEIGHTS
    assert server.story == "spawn weights kv_cache weights"


def test_the_same_begin_twice_is_one_span() -> None:
    server = Server("vllm")
    server.say(vllm("Starting to load model m..."), bar(0), bar(1), bar(2))
    assert server.story == "spawn model_init@Worker weights@Worker"


def test_the_least_advanced_rank_holds_the_server_back() -> None:
    server = Server("sglang")
    for rank in ("TP0", "TP1", "TP2"):
        server.say(sglang("Init parallel begin.", rank))
    server.say(
        sglang("Init parallel ends. x", "TP0"),
        sglang("Load weight begin. x", "TP0"),
        sglang("Load weight begin. x", "TP2"),
        sglang("Load weight end. x", "TP2"),
        sglang("KV Cache is allocated. x", "TP2"),
    )
    assert server.phase is Phase.RENDEZVOUS
    assert server.tracker.phase_of("TP1") is Phase.RENDEZVOUS
    assert server.tracker.phase_of("TP2") is Phase.KV_CACHE
    server.say(sglang("Load weight begin. x", "TP1"), sglang("Load weight end. x", "TP1"))
    assert server.phase is Phase.WEIGHTS


def test_ranks_that_leave_the_talking_to_the_first_hold_nothing_back() -> None:
    server = Server("vllm")
    for rank in (0, 1):
        text = f"world_size=2 rank={rank} local_rank={rank} distributed_init_method=tcp://127.0.0.1:1 backend=gloo"
        server.say(vllm(text, f"Worker_TP{rank}", 10 + rank))
    server.say(vllm("Starting to load model m...", "Worker_TP0", 10))
    assert server.phase is Phase.MODEL_INIT
    assert server.tracker.phase_of("Worker_TP1", 11) is Phase.RENDEZVOUS


def test_a_rank_that_never_joins_is_the_phase_of_all() -> None:
    server = Server("vllm")
    server.say(vllm("Initializing a V1 LLM engine (v0.32.0) with config", "EngineCore", 5))
    text = "world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://127.0.0.1:1 backend=gloo"
    server.say(vllm(text, "Worker_TP0", 10))
    assert server.phase is Phase.RENDEZVOUS


def test_bars_without_a_name_belong_to_the_first_rank() -> None:
    server = Server("vllm")
    for rank in (1, 0):
        text = f"world_size=2 rank={rank} local_rank={rank} distributed_init_method=tcp://127.0.0.1:1 backend=gloo"
        server.say(vllm(text, f"Worker_TP{rank}", 10 + rank))
    server.say(bar(1))
    assert server.tracker.phase_of("Worker_TP0", 10) is Phase.WEIGHTS


def test_bars_read_late_reopen_nothing() -> None:
    server = Server("vllm")
    server.say(
        vllm("Initializing model took 0.2 seconds"),
        vllm("Loading weights took 0.3 seconds"),
        vllm("Explicitly set (2.0/11.71) GiB for KV cache on node 0."),
        bar(0),
        bar(4),
    )
    assert server.phase is Phase.KV_CACHE
    assert server.story == "spawn weights@Worker kv_cache@Worker"


def test_what_the_drafter_loads_is_the_drafters() -> None:
    server = Server("vllm")
    server.say(vllm("Loading weights took 0.3 seconds"), vllm("Loading drafter model..."))
    server.say(vllm("Initializing model took 0.01 seconds"), bar(0))
    assert server.phase is Phase.DRAFT_INIT
    counter = server.tracker.counter
    assert counter is not None
    assert (counter.done, counter.total, counter.unit) == (0, 4, "shards")


def test_a_process_keeps_its_spans_when_it_takes_its_name() -> None:
    server = Server("vllm")
    server.say(
        vllm("Starting to load model m...", "VllmWorker-1", 9), vllm("Loading drafter model...", "Worker_TP1", 9)
    )
    assert [(span.source, span.rank) for span in server.tracker.timeline if span.rank >= 0] == [
        ("Worker_TP1", 1),
        ("Worker_TP1", 1),
    ]
    assert server.tracker.phase_of("Worker_TP1") is Phase.DRAFT_INIT
    assert server.tracker.phase_of("", 9) is Phase.DRAFT_INIT
    assert server.tracker.phase_of("Worker_TP5", 99) is None


def test_ranks_are_told_apart_before_they_take_their_titles() -> None:
    server = Server("vllm")
    for rank in (0, 1):
        text = f"world_size=2 rank={rank} local_rank={rank} distributed_init_method=tcp://127.0.0.1:1 backend=gloo"
        server.say(vllm(text, "Worker", 10 + rank))
    assert [(span.source, span.rank) for span in server.tracker.timeline[1:]] == [("Worker", 0), ("Worker", 1)]


def test_what_a_process_without_a_rank_ends_is_over_for_all() -> None:
    server = Server("vllm")
    server.say(vllm("Explicitly set (2.0/11.71) GiB for KV cache on node 0."))
    changes = server.say(vllm("init engine (profile, create kv cache, warmup model) took 5.16 s", "EngineCore", 5))
    assert [(change.phase, change.source, change.began) for change in changes] == [(Phase.KV_CACHE, "Worker", False)]


def test_a_silent_rank_is_through_when_its_engine_is() -> None:
    server = Server("vllm")
    for rank in (0, 1):
        text = f"world_size=2 rank={rank} local_rank={rank} distributed_init_method=tcp://127.0.0.1:1 backend=gloo"
        server.say(vllm(text, f"Worker_TP{rank}", 10 + rank))
    server.say(
        vllm("GPU KV cache size: 9 tokens", "EngineCore", 5),
        vllm("init engine (profile, create kv cache, warmup model) took 5.16 s", "EngineCore", 5),
    )
    assert server.phase is Phase.KV_CACHE
    server.say(vllm("Starting vLLM server on http://0.0.0.0:8100", "APIServer", 3))
    server.say("INFO:     Application startup complete.")
    assert server.phase is Phase.HTTP_BIND


def test_one_copy_that_is_through_ends_nothing_of_another() -> None:
    server = Server("vllm")
    for copy in (0, 1):
        server.say(vllm("Starting to load model m...", f"Worker_DP{copy}_TP0", 10 + copy))
    server.say(vllm("init engine (profile, create kv cache, warmup model) took 5.16 s", "EngineCore_DP0", 5))
    still_open = [span.source for span in server.tracker.timeline if span.ended is None]
    assert still_open == ["Worker_DP1_TP0"]
    assert server.phase is Phase.MODEL_INIT


def test_where_the_log_names_nobody_all_speak_as_one() -> None:
    server = Server("sglang")
    server.say(sglang("Load weight begin. x"))
    assert server.tracker.phase_of("scheduler", 99) is Phase.WEIGHTS
    assert server.tracker.phase_of("", 99) is None


def test_a_library_that_names_only_its_pid_speaks_for_that_pid() -> None:
    server = Server("sglang")
    server.say("node1:4711:4800 [3] NCCL INFO ncclCommInitRank comm 0x1 rank 3 nranks 8 - Init START")
    assert server.tracker.phase_of("TP3", 4711) is Phase.COMM_INIT
    assert server.tracker.timeline[-1].source == "pid 4711"


def test_facts_move_phases_and_end_what_was_open() -> None:
    server = Server("sglang")
    server.say(sglang("Load weight begin. x", "TP0"), sglang("Load weight begin. x", "TP1"))
    assert [change.phase for change in server.enter(Phase.HTTP_BIND)] == [Phase.HTTP_BIND]
    assert server.phase is Phase.HTTP_BIND
    assert server.enter(Phase.HTTP_BIND) == []
    ended = [change for change in server.enter(Phase.VERIFY) if not change.began]
    assert {(change.phase, change.source) for change in ended} == {
        (Phase.WEIGHTS, "TP0"),
        (Phase.WEIGHTS, "TP1"),
        (Phase.HTTP_BIND, ""),
    }
    server.enter(Phase.SERVING)
    assert server.phase is Phase.SERVING


def test_a_port_opens_once() -> None:
    server = Server("vllm")
    server.say(
        vllm("Starting vLLM server on http://0.0.0.0:8100", "APIServer", 3), "INFO:     Started server process [3]"
    )
    assert server.enter(Phase.HTTP_BIND) == []
    assert server.story == "spawn http_bind@APIServer"


def test_a_warmup_after_the_port_opened_is_seen() -> None:
    server = Server("sglang")
    server.say(sglang("INFO:     Uvicorn running on http://127.0.0.1:30000"))
    server.enter(Phase.HTTP_BIND)
    server.say(sglang('INFO:     127.0.0.1:1 - "GET /model_info HTTP/1.1" 200 OK'))
    assert server.phase is Phase.WARMUP
    assert server.enter(Phase.HTTP_BIND) == []


def test_an_engine_that_listens_early_is_not_done_because_its_port_is_open() -> None:
    server = Server("embedded")
    server.say(own("phase=http_bind begin", "front", 5), own("phase=http_bind end seconds=0.1", "front", 5))
    server.say(own("phase=weights begin"))
    assert server.enter(Phase.HTTP_BIND) == []
    assert server.phase is Phase.WEIGHTS


def test_an_ended_phase_of_the_front_gives_way_to_the_workers_open_one() -> None:
    server = Server("embedded")
    server.say(own("phase=import begin"), own("phase=config begin", "front", 5))
    assert server.phase is Phase.CONFIG
    server.say(own("phase=config end seconds=1.0", "front", 5))
    assert server.phase is Phase.IMPORT


def test_a_log_that_says_serving_only_claims_it() -> None:
    server = Server("embedded")
    server.say(own("phase=warmup begin"), own("phase=warmup end seconds=0.2"), own("phase=serving begin"))
    assert server.phase is Phase.VERIFY
    server.enter(Phase.SERVING)
    assert server.phase is Phase.SERVING


def test_nothing_moves_once_it_serves() -> None:
    server = Server("sglang")
    server.enter(Phase.SERVING)
    changes = server.say(
        sglang("INFO:     Shutting down"),
        sglang('INFO:     127.0.0.1:1 - "GET /model_info HTTP/1.1" 200 OK'),
        sglang("Load weight begin. x"),
        bar(2),
    )
    assert (changes, server.phase, server.tracker.counter) == ([], Phase.SERVING, None)


def test_a_shutdown_before_serving_moves_nothing() -> None:
    server = Server("vllm")
    server.say(vllm("Loading drafter model..."))
    server.say(
        vllm("[shutdown] EngineCore: trigger received signal=SIGTERM", "EngineCore", 5), "INFO:     Shutting down"
    )
    assert server.phase is Phase.DRAFT_INIT


def test_a_wrappers_engine_is_known_from_its_log() -> None:
    server = Server("generic")
    server.say("starting the server for you", "(APIServer pid=3) INFO 11-29 12:41:44 [a.py:1]  █ █  version 0.32.0")
    assert (server.tracker.profile.name, server.tracker.version) == ("vllm", "0.32.0")
    server.say(vllm("Starting to load model m..."))
    assert server.phase is Phase.MODEL_INIT


def test_the_counter_belongs_to_the_phase() -> None:
    server = Server("vllm")
    server.say(vllm("Starting to load model m..."), bar(1), bar(2), bar(3))
    assert server.tracker.eta_s(server.now) == pytest.approx(1.0)
    server.say(vllm("Loading drafter model..."))
    assert server.tracker.counter is None
    assert server.tracker.eta_s(server.now) is None


def test_lines_out_of_time_give_no_negative_durations() -> None:
    tracker = PhaseTracker(profile("sglang"), 100.0)
    line = profile("sglang").read_line(RawLine(stream="stderr", at=90.0, text=sglang("Load weight begin. x")))
    assert [change.seconds for change in tracker.see(line)] == [0.0, 0.0]


def test_a_log_that_makes_up_processes_and_phases_costs_no_memory() -> None:
    server = Server("vllm")
    for number in range(SOURCES_MAX + 100):
        server.say(vllm("Starting to load model m...", f"Worker_TP{number}", number + 1))
    assert len({span.source for span in server.tracker.timeline}) <= SOURCES_MAX + 2
    server = Server("embedded")
    for _ in range(SPANS_MAX):
        server.say(own("phase=weights begin"), own("phase=weights end seconds=0.1"))
    assert len(server.tracker.timeline) == SPANS_MAX


def test_an_old_log_tells_where_everybody_stands_but_not_since_when() -> None:
    server = Server("sglang")
    server.say(
        sglang("Load weight begin. avail mem=19.84 GB", "TP0"), sglang("Load weight begin. avail mem=1 GB", "TP1")
    )
    server.say(sglang("Load weight end. elapsed=1.37 s, type=L, avail mem=19.62 GB, mem usage=0.22 GB.", "TP0"))
    server.tracker.forget_times(server.now)
    assert server.phase is Phase.WEIGHTS
    assert server.story == "weights@TP1"
    assert server.say(sglang("Load weight end. elapsed=9 s, type=L, avail mem=1 GB, mem usage=0.22 GB.", "TP1")) == []
    assert server.story == ""
