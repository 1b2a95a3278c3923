"""What an error refuses, which error ended somebody, and what is no failure though it sounds like one."""

import pytest
from tests.unit.diagnose.conftest import NOW, UNSEEN, bundle, ended, line, look, process, twice

from firstlight.core.bundle import Bundle, LogTail
from firstlight.core.log import LogLine
from firstlight.core.process import Exit, ProcessId
from firstlight.core.vocabulary import Role
from firstlight.diagnose import state
from firstlight.diagnose.failures import Kind, failures, memory, surely
from firstlight.diagnose.failures.kinds import follows, refusal
from firstlight.diagnose.scene import scene_of

ROOT = ProcessId(pid=100, started=1)
TOLD = [
    (Kind.OPTION, "--foo", "vllm: error: unrecognized arguments: --foo bar"),
    (Kind.OPTION, "--foo", "Error: No such option: --foo"),
    (Kind.OPTION, "--foo", "error: unexpected argument '--foo' found"),
    (Kind.OPTION, "--dtype", "api_server.py: error: argument --dtype: invalid choice: 'fp4' (choose from 'auto')"),
    (Kind.OPTION, "--port", "error: invalid value 'abc' for '--port <PORT>': invalid digit found in string"),
    (Kind.PATH, "/m/x/config.json", "FileNotFoundError: [Errno 2] No such file or directory: '/m/x/config.json'"),
    (Kind.PATH, "/m/x", "OSError: /m/x is not a local folder and is not a valid model identifier listed on the hub"),
    (Kind.PATH, "/m/x", "ValueError: Invalid repository ID or local directory specified: '/m/x'."),
    (Kind.PATH, "/m/x.gguf", "gguf_init_from_file: failed to open GGUF file '/m/x.gguf'"),
    (Kind.NAME, "hub.example", "HTTPSConnectionPool(host='hub.example'): … [Errno -2] Name or service not known"),
    (Kind.NAME, "", "socket.gaierror: [Errno -3] Temporary failure in name resolution"),
    (Kind.HUB, "huggingface.co", "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded"),
    (Kind.HUB, "", "LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder"),
    (Kind.HUB_REFUSES, "https://huggingface.co/x", "401 Client Error: Unauthorized for url: https://huggingface.co/x"),
    (Kind.HUB_REFUSES, "org/none", "OSError: org/none is not a local folder and is not a valid model identifier"),
    (Kind.UNREACHABLE, "", "OSError: [Errno 101] Network is unreachable"),
    (Kind.REFUSED, "", "ConnectionRefusedError: [Errno 111] Connection refused"),
    (Kind.PORT, "", "OSError: [Errno 98] Address already in use"),
    (Kind.PORT, "", "ValueError: rpc_port at 21313 is used by a process already."),
    (Kind.LOCK, "/hf/blobs/0a.lock", "Failed to fetch model: Lock acquisition failed: /hf/blobs/0a.lock"),
    (Kind.HUB, "https://hub/x", "HfHubHTTPError: 504 Server Error: Gateway Time-out for url: https://hub/x"),
    (Kind.PERMISSION, "/.triton", "PermissionError: [Errno 13] Permission denied: '/.triton'"),
    (Kind.PERMISSION, "/models/x", "OSError: [Errno 30] Read-only file system: '/models/x'"),
    (Kind.DISK, "/data/x", "OSError: [Errno 28] No space left on device: '/data/x'"),
    (Kind.SHARED_MEMORY, "", "error while creating shared memory segment /dev/shm/nccl-1: No space left on device"),
    (Kind.SHARED_MEMORY, "", "Shard process was signaled to shutdown with signal 7 rank=2"),
    (Kind.INSTALLATION, "libnvrtc.so.12", "ImportError: libnvrtc.so.12: cannot open shared object file"),
    (Kind.INSTALLATION, "flash_attn", "ModuleNotFoundError: No module named 'flash_attn'"),
    (Kind.INSTALLATION, "_ZN3c105Error", "ImportError: /x/_C.abi3.so: undefined symbol: _ZN3c105Error"),
    (Kind.INSTALLATION, "GLIBCXX_3.4.32", "libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by x.so)"),
    (Kind.INSTALLATION, "ninja", "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"),
    (Kind.INSTALLATION, "/usr/local/cuda/bin/nvcc", "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found"),
    (Kind.MODEL, "glm9", "model type `glm9` but Transformers does not recognize this architecture"),
    (Kind.MODEL, "Glm9ForCausalLM", "Model architectures ['Glm9ForCausalLM'] are not supported for now."),
    (Kind.GPU_MEMORY, "", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    (Kind.CACHE_ROOM, "", "ValueError: No available memory for the cache blocks."),
    (Kind.GPU_TAKEN, "cuda:0", "Free memory on device cuda:0 (2.6/15.9 GiB) on startup is less than desired"),
    (Kind.GPU_COUNT, "", "RuntimeError: CUDA error: invalid device ordinal"),
    (Kind.GPU_COUNT, "", "ValueError: World size (8) is larger than the number of available GPUs (4)"),
    (Kind.THREADS, "", "RuntimeError: can't start new thread"),
    (Kind.FILES, "", "OSError: [Errno 24] Too many open files"),
    (Kind.BINDING, "", "setting membind: Invalid argument"),
    (Kind.BUILD, "", "RuntimeError: Error building extension 'sampling'"),
    (Kind.KERNEL, "illegal memory access", "CUDA error: an illegal memory access was encountered"),
    (Kind.INSTRUCTION, "", "Illegal instruction (core dumped)"),
]  # fmt: skip
NOTHING = [
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "the arguments were recognized",
    "wait4 returned signal 17",
    "ValueError: max_model_len (8192) is larger than 4096",
    "OSError: [Errno 22] Invalid argument",
    "RuntimeError: inotify: too many open files",
    "Loading /models/x took 4 s",
    "AssertionError",
]
FOLLOWS = [
    "RuntimeError: Engine core initialization failed. See root cause above.",
    "Worker proc VllmWorker-0 died unexpectedly, shutting down executor.",
    "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.61.7]:22947",
    "Received sigquit from a child process. It usually means the child failed.",
]


@pytest.mark.parametrize(("kind", "what", "message"), TOLD)
def test_what_is_refused_is_told_by_the_systems_own_words(kind: Kind, what: str, message: str) -> None:
    assert refusal(message) == (kind, what)


@pytest.mark.parametrize("message", NOTHING)
def test_what_only_sounds_like_a_refusal_is_none(message: str) -> None:
    assert refusal(message) is None


@pytest.mark.parametrize("message", FOLLOWS)
def test_who_only_notices_that_another_failed_names_no_failure(message: str) -> None:
    assert follows(message)


MISSING = "ModuleNotFoundError: No module named 'flash_attn'"
TRACEBACK = ("Traceback (most recent call last):", '  File "/srv/run.py", line 4, in main', "    import flash_attn")


def died(*messages: str, code: int | None = 1, signal: int | None = None, **more: object) -> Bundle:
    """A server that ended five seconds after its last words."""
    said = [line(one, at=NOW - 35 + 0.01 * at, source="") for at, one in enumerate(messages)]
    unseen = code is None and signal is None
    return over(said, ended(100, code=UNSEEN if unseen else code, signal=signal), **more)


def over(said: list[LogLine], *exits: Exit, **more: object) -> Bundle:
    tails = (LogTail(source="stderr", lines=tuple(said)),)
    return bundle(exits=exits, logs=tails, **more)  # type: ignore[arg-type]


def kinds(made: Bundle) -> list[Kind]:
    return [one.kind for one in failures(scene_of(made, ROOT))]


def test_an_error_that_was_raised_shortly_before_an_end_is_the_failure() -> None:
    (one,) = failures(scene_of(died(*TRACEBACK, MISSING), ROOT))
    assert (one.kind, one.what, one.end.id.pid) == (Kind.INSTALLATION, "flash_attn", 100)
    assert one.error.raised
    assert one.error.frames[-1].source == "import flash_attn"


def test_nobody_has_ended_so_nothing_has_failed() -> None:
    said = (LogTail(source="stderr", lines=(line(MISSING),)),)
    assert kinds(twice(process(100), logs=said)) == []


@pytest.mark.parametrize("how", [{"code": 0}, {"code": None, "signal": 15}, {"code": 143}])
def test_an_orderly_end_has_no_failure(how: dict[str, int]) -> None:
    assert kinds(died(*TRACEBACK, MISSING, **how)) == []


def test_an_error_of_long_before_is_not_the_failure() -> None:
    assert kinds(over([line(MISSING, at=NOW - 400)], ended(100, code=1))) == []


def test_an_error_that_was_got_over_is_not_the_failure() -> None:
    assert kinds(died(MISSING, *(f"INFO layer {word} is loaded" for word in "abcd"))) == []


def test_ordinary_words_of_a_server_that_ends_are_no_sign_that_it_went_on() -> None:
    words = [f"INFO:     Waiting for {word} to shut down" for word in "abcd"]
    assert kinds(died("[Errno 98] address already in use", *words)) == [Kind.PORT]


def test_what_may_be_or_has_a_way_out_is_not_the_failure() -> None:
    assert kinds(died("WARNING No module named 'flash_attn'", f"{MISSING}; falling back to torch")) == []


def test_the_lost_connection_of_others_follows_from_what_was_raised_first() -> None:
    refused = "ConnectionRefusedError: [Errno 111] Connection refused"
    assert kinds(died(*TRACEBACK, "AssertionError", *TRACEBACK, refused)) == []
    assert kinds(died(*TRACEBACK, refused)) == [Kind.REFUSED]


def test_exceptions_of_one_chain_are_one_failure() -> None:
    because = "The above exception was the direct cause of the following exception:"
    made = died(
        *TRACEBACK, "AssertionError", because, *TRACEBACK, "socket.gaierror: [Errno -2] Name or service not known"
    )
    assert kinds(made) == [Kind.NAME]


def test_an_exception_is_known_by_its_place_whatever_its_name() -> None:
    again = "During handling of the above exception, another exception occurred:"
    lost = "importlib.metadata.PackageNotFoundError: No package metadata was found for vllm"
    made = died("Triton is installed, but disabled.", *TRACEBACK, "StopIteration", "", again, "", *TRACEBACK, lost)
    assert [one.what for one in surely(scene_of(made, ROOT), Kind.INSTALLATION)] == ["vllm"]


def test_a_number_of_the_system_is_understood_by_the_call_that_got_it() -> None:
    call = (*TRACEBACK[:2], "    os.sched_setaffinity(0, cores)", "OSError: [Errno 22] Invalid argument")
    assert kinds(died(*call)) == [Kind.BINDING]
    assert kinds(died(*TRACEBACK, call[-1])) == []


def test_a_rank_that_failed_counts_though_its_server_is_still_there() -> None:
    front = process(100, role=Role.FRONT, name="vllm")
    gone = ended(111, "Worker_TP1", code=1, role=Role.WORKER, rank=1)
    said = (LogTail(source="stderr", lines=tuple(line(one, at=NOW - 31) for one in (*TRACEBACK, MISSING))),)
    made = bundle(look(front, at=NOW - 5), look(front), exits=(gone,), logs=said)
    assert [(one.kind, one.end.rank) for one in failures(scene_of(made))] == [(Kind.INSTALLATION, 1)]


def test_a_failure_is_sure_with_a_status_of_its_own_and_no_other_exception() -> None:
    alone = died(*TRACEBACK, MISSING)
    beside = died(*TRACEBACK, "KeyError: 'x'", *TRACEBACK, MISSING)
    unseen = died(*TRACEBACK, MISSING, code=None)
    assert [len(list(surely(scene_of(one, ROOT), Kind.INSTALLATION))) for one in (alone, beside, unseen)] == [1, 0, 0]


@pytest.mark.parametrize(
    "after", ["trying without it", "error: unknown model 'x'", "WARNING falling back to sdpa", "Loading: weights"]
)
def test_a_failure_is_not_sure_if_other_words_came_after_it(after: str) -> None:
    made = died(*TRACEBACK, MISSING, after)
    assert list(surely(scene_of(made, ROOT), Kind.INSTALLATION)) == []
    assert kinds(made) == [Kind.INSTALLATION]


@pytest.mark.parametrize(
    "after", ["", "=======", "INFO: Shutting down", "Exception ignored in: <x>", "  at x (y.c:3)"]
)
def test_a_failure_is_sure_if_only_what_follows_from_it_came_after_it(after: str) -> None:
    assert len(list(surely(scene_of(died(*TRACEBACK, MISSING, after), ROOT), Kind.INSTALLATION))) == 1


def test_words_of_another_stream_tell_that_a_server_went_on_if_they_came_clearly_later() -> None:
    told = LogTail(source="stderr", lines=tuple(line(one, at=NOW - 35, source="") for one in (*TRACEBACK, MISSING)))
    for later_s, sure in ((0.5, 1), (3.0, 0)):
        other = LogTail(source="stdout", lines=(line("on the CPU, then", at=NOW - 35 + later_s, source=""),))
        made = bundle(exits=(ended(100, code=1),), logs=(told, other))
        assert len(list(surely(scene_of(made, ROOT), Kind.INSTALLATION))) == sure


def test_a_failure_is_not_sure_with_a_status_that_is_not_of_an_exception_or_long_before_the_end() -> None:
    assert list(surely(scene_of(died(*TRACEBACK, MISSING, code=4), ROOT), Kind.INSTALLATION)) == []
    said = [line(one, at=NOW - 70, source="") for one in (*TRACEBACK, MISSING)]
    assert list(surely(scene_of(over(said, ended(100, code=1)), ROOT), Kind.INSTALLATION)) == []


@pytest.mark.parametrize(
    ("words", "sure"),
    [
        (MISSING, True),
        ("OSError: libnccl.so.2: cannot open shared object file: No such file or directory", True),
        ("AttributeError: module 'json' has no attribute 'rope'", False),
        ("ValueError: the template is not valid: No module named 'x'", False),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'nvcc'", False),
        ("ValueError: Unsupported type: int8", False),
    ],
)
def test_only_who_loads_knows_that_something_is_missing(words: str, *, sure: bool) -> None:
    findings = state(died(*TRACEBACK, words), root=ROOT).findings
    told = {one.verdict for one in findings if one.id != "process_died"}
    assert ("established" in told) is sure


def test_a_name_is_that_of_a_program_where_one_was_started() -> None:
    missing = "FileNotFoundError: [Errno 2] No such file or directory: 'nvcc'"
    start = (
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.11/subprocess.py", line 9, in _execute_child',
    )
    assert kinds(died(*start, missing)) == [Kind.INSTALLATION]
    assert kinds(died(*TRACEBACK, missing)) == [Kind.PATH]
    assert kinds(died(missing)) == [Kind.INSTALLATION]


@pytest.mark.parametrize(
    ("words", "full"),
    [
        ("ERROR Failed to parse kv cache dtype", False),
        ("ERROR failed to create KV cache connector", False),
        ("RuntimeError: failed to allocate buffer for kv cache", True),
    ],
)
def test_not_every_failure_with_a_cache_is_for_want_of_room(words: str, *, full: bool) -> None:
    assert kinds(died(words)) == ([Kind.CACHE_ROOM] if full else [])


def test_a_refused_option_is_not_sure_if_the_server_went_on_after_it() -> None:
    statement = state(died("nvcc: error: unrecognized arguments: --threads", "one thread, then", code=2), root=ROOT)
    assert statement.headline.endswith("(supported, not established)")


def test_the_reason_stands_in_the_headline_and_the_end_needs_no_advice_of_its_own() -> None:
    statement = state(died("vllm: error: unrecognized arguments: --foo", code=2), root=ROOT)
    assert statement.headline.endswith("exited with code 2: the engine does not know the option --foo")
    assert next(one for one in statement.findings if one.id == "process_died").advice == ()


def test_what_is_only_supported_says_so_in_the_headline() -> None:
    statement = state(died("vllm: error: unrecognized arguments: --foo", code=1), root=ROOT)
    assert statement.headline.endswith("does not know the option --foo (supported, not established)")


GIB = 1 << 30
NEW = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is "
    "free. {}this process has {} GiB memory in use. Of the allocated memory 9.00 GiB is allocated by PyTorch"
)
OLD = "Tried to allocate 2.00 GiB (GPU 0; 24.00 GiB total capacity; 8.00 GiB already allocated; 1.00 GiB free; 9.00 GiB reserved in total by PyTorch)"  # noqa: E501


def test_the_figures_of_an_allocation_that_failed_tell_whose_the_memory_is() -> None:
    whole = memory.told(NEW.format("Including non-PyTorch memory, ", "23.00"))
    shared = memory.told(NEW.format("Process 7 has 13.00 GiB memory in use. ", "10.00"))
    assert whole == (2 * GIB, 24 * GIB, GIB, 23 * GIB, 0)
    assert shared == (2 * GIB, 24 * GIB, GIB, 10 * GIB, 13 * GIB)
    assert memory.told(OLD) == (2 * GIB, 24 * GIB, GIB, 9 * GIB, 14 * GIB)
    assert memory.told("CUDA out of memory.") is None


def test_what_is_used_before_the_engine_has_any_is_somebody_elses() -> None:
    told = memory.at_start("Free memory on device cuda:0 (4/24 GiB) on startup is less than desired")
    assert told is not None
    assert told.others == 20 * GIB
