"""First errors: the line a person wants to see, and the many that only follow from it."""

import pytest

from firstlight.core.log import LogLine, RawLine
from firstlight.engines import profile


def read(engine: str, text: str) -> LogLine:
    return profile(engine).read_line(RawLine(stream="stderr", at=1.0, text=text))


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("vllm", "ValueError: Free memory on device (3.2/80 GiB) is less than desired GPU memory utilization"),
        ("vllm", "  Value error, Total number of attention heads (9) must be divisible by tensor parallel size (2)."),
        ("vllm", "(EngineCore pid=1) ERROR 11-29 12:45:03 [core.py:9] RuntimeError: CUDA error: an illegal access"),
        (
            "vllm",
            "ERROR:    [Errno 98] error while attempting to bind on address ('::1', 80): address already in use",
        ),
        ("vllm", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        ("vllm", "api_server.py: error: unrecognized arguments: --port-number 3"),
        ("vllm", "/usr/bin/python3: No module named vllm"),
        ("vllm", "AssertionError"),
        ("vllm", "[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1"),
        ("vllm", "[rank0]:[E1129 12:42:22.816263866 ProcessGroupNCCL.cpp:616] Watchdog caught collective timeout"),
        ("sglang", "[2026-11-29 13:50:55 TP0] Not enough memory. Please try to increase --mem-fraction-static."),
        ("sglang", "[2026-11-29 13:50:55 TP1] Capture cuda graph failed: CUDA error"),
        (
            "sglang",
            "[2026-11-29 13:50:55 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        ),
        (
            "sglang",
            "[2026-11-29 13:51:00] Subprocess scheduler_0 (pid=1) crashed with exit code -11. Triggering SIGQUIT",
        ),
        (
            "sglang",
            "[2026-11-29 13:51:00] Subprocess scheduler_0 (pid=1) crashed with exit code 1. Triggering SIGQUIT",
        ),
        ("sglang", "[2026-11-29 13:51:00] Rank 0 scheduler died during initialization (exit code: -9)."),
        ("embedded", "[firstlight front pid=5] error: worker rank=0 pid=6 was killed by SIGKILL (phase=weights)"),
        ("embedded", "[firstlight front pid=5] error: worker rank=0 pid=6 exited with code 1 (phase=weights)"),
        ("embedded", "[firstlight worker rank=0 pid=6] error: model.safetensors is truncated"),
        ("generic", "Killed"),
        ("generic", "run.sh: line 7:  4711 Segmentation fault      (core dumped) python server.py"),
        ("generic", "Fatal Python error: Segmentation fault"),
        ("generic", "bash: line 1: vllm: command not found"),
        ("generic", "OSError: [Errno 98] Address already in use"),
        ("generic", "2026-01-02 03:04:05,678 - server - ERROR - it broke"),
        ("generic", "Exception: the model folder is empty"),
        ("sglang", "[11-29 13:51:00] Rank 0 scheduler is dead. Please check if there are relevant logs."),
        ("sglang", "[11-29 13:51:02] Exit code: -9"),
        ("generic", "(raylet) A worker died or was killed while executing a task by an unexpected system error."),
        ("generic", "    exitcode  : -9 (pid: 4711)"),
        ("generic", "subprocess.CalledProcessError: Command '['nvcc']' died with <Signals.SIGKILL: 9>."),
        ("generic", "Bus error (core dumped)"),
        ("generic", "zsh: illegal hardware instruction  python server.py"),
        ("generic", "python3: error while loading shared libraries: libcudart.so.12: cannot open shared object file"),
        ("generic", "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"),
        ("sglang", "launch_server.py: error: ambiguous option: --pp could match --pp-size, --pp-max-micro"),
        ("generic", "Error: No such option: --prot (Possible options: --port)"),
        ("generic", "│ No such option: --prot Did you mean --port?                              │"),
        ("generic", "error: unexpected argument '--prot' found"),
        ("generic", "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification"),
        ("generic", "libnuma: Error: node 3 is not there"),
        ("generic", "numactl: execution of `vllm': No such file or directory"),
        ("generic", "set_mempolicy: Operation not permitted"),
        ("generic", "/bin/sh: 1: exec: vllm: not found"),
        ("generic", "start.sh: line 4: /opt/server: Permission denied"),
        ("generic", "exec /usr/bin/server: exec format error"),
        ("generic", "[FATAL tini (7)] exec vllm failed: No such file or directory"),
        ("generic", "[n1:4711] *** Process received signal ***"),
        ("generic", "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD"),
        ("generic", "E0223 12:03:30.795466 120 model_lifecycle.cc:839] failed to load 'llm'"),
        ("generic", "[E ProcessGroupNCCL.cpp:587] [Rank 5] Some NCCL operations have failed or timed out."),
        ("generic", "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=18421)"),
        ("generic", "double free or corruption (!prev)"),
        ("generic", "[2026-11-29 13:51:00,014 C 77 77] logging.cc:113: Unhandled exception: out of threads"),
    ],
)
def test_errors(engine: str, text: str) -> None:
    line = read(engine, text)
    assert profile(engine).is_error(line)
    assert not profile(engine).is_consequence(line)


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (
            "vllm",
            "(EngineCore pid=1) INFO 11-29 12:43:26 [shm.py:1] No available shared memory broadcast block found",
        ),
        ("vllm", "(APIServer pid=1) ERROR 11-29 12:43:26 [a.py:1] Waiting for 1 core engine proc(s) to start."),
        ("vllm", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
        ("vllm", "(EngineCore pid=1) ERROR 11-29 12:43:26 [core.py:1] EngineCore failed to start."),
        ("vllm", "(Worker pid=1) ERROR 11-29 12:43:26 [multiproc.py:1] WorkerProc failed to start."),
        (
            "vllm",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)",
        ),
        (
            "vllm",
            "(APIServer pid=1) WARNING 11-29 12:45:03 [s.py:225] [shutdown] force killing sub process VLLM::Worker",
        ),
        (
            "vllm",
            "/x/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 2 leaked semaphores",
        ),
        ("vllm", "nanobind: leaked 4 instances!"),
        ("sglang", "[2026-11-29 13:51:00] Received sigquit from a child process. It usually means the child failed."),
        ("sglang", "[2026-11-29 13:51:00] Subprocess scheduler_0 (pid=1) crashed with exit code -15."),
        ("sglang", "[2026-11-29 13:51:00] Ignore import error when loading x: No module named 'cutlass'"),
        ("sglang", "[2026-11-29 13:51:00] Rank 0 scheduler died during initialization (exit code: -15). Exit code"),
        ("embedded", "[firstlight front pid=5] error: worker rank=0 pid=6 was killed by SIGTERM (phase=serving)"),
        ("embedded", "[firstlight front pid=5] error: worker rank=0 pid=6 exited with code 0 (phase=serving)"),
        ("vllm", "(EngineCore pid=1) ERROR 11-29 12:43:26 [core.py:9] RuntimeError: Executor failed."),
        ("vllm", "(EngineCore pid=1) ERROR 11-29 12:43:26 [core.py:9] RuntimeError: cancelled"),
        ("generic", "KeyboardInterrupt"),
        ("generic", "asyncio.exceptions.CancelledError"),
    ],
)
def test_consequences_are_never_first_errors(engine: str, text: str) -> None:
    line = read(engine, text)
    assert profile(engine).is_consequence(line)
    assert not profile(engine).is_error(line)


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("vllm", "(APIServer pid=1) ERROR 11-29 12:45:03 [a.py:906] Traceback (most recent call last):"),
        ("vllm", '(APIServer pid=1) ERROR 11-29 12:45:03 [a.py:906]   File "x.py", line 849, in output_handler'),
        ("vllm", "(APIServer pid=1) ERROR 11-29 12:45:03 [a.py:906]               ^^^^^^^^^^^^^^"),
        ("vllm", "(APIServer pid=1) ERROR 11-29 12:45:03 [a.py:906] "),
        ("vllm", "(APIServer pid=1) WARNING 11-29 12:41:44 [s.py:255] OSError: [Errno 24] Too many open files"),
        ("vllm", "(APIServer pid=1) INFO 11-29 12:41:44 [s.py:255] Killed nothing"),
        ("sglang", "[2026-11-29 13:51:00 TP0] Scheduler hit an exception: Traceback (most recent call last):"),
        ("sglang", "[2026-11-29 13:51:00] Initialization failed. warmup error: Traceback (most recent call last):"),
        ("sglang", "  warnings.warn("),
        ("sglang", "/x/awq.py:53: UserWarning: Only CUDA, HIP and XPU support AWQ currently."),
        ("generic", "Request aborted by the client"),
        ("generic", "If the worker exits with exit code 1, start it again"),
        ("generic", "Error handling is on"),
        ("generic", "sees 1: 640x480, nothing found"),
        ("generic", "Handling an Error: gracefully"),
        ("generic", ""),
    ],
)
def test_neither(engine: str, text: str) -> None:
    assert not profile(engine).is_error(read(engine, text))


def test_the_line_that_raises_is_not_the_line_that_names_the_error() -> None:
    source = '    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")'
    named = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB"
    generic = profile("generic")
    lines = [generic.read_line(RawLine(stream="stderr", at=0.0, text=text)) for text in (source, named)]
    assert [generic.is_error(line) for line in lines] == [False, True]


def first_error(engine: str, log: str) -> str:
    lines = [read(engine, text) for text in log.strip().splitlines()]
    return next((line.message for line in lines if profile(engine).is_error(line)), "")


def test_a_killed_worker_is_named_by_the_first_error_and_not_by_what_follows() -> None:
    """vLLM 0.32 with one of its workers killed by signal 9."""
    log = """
(EngineCore pid=7) ERROR 11-29 12:43:26 [mp.py:270] Worker proc VllmWorker-0 died unexpectedly (exit code: None), \
shutting down executor.
(EngineCore pid=7) ERROR 11-29 12:43:26 [core.py:1100] EngineCore encountered a fatal error.
(EngineCore pid=7) ERROR 11-29 12:43:26 [core.py:1100] RuntimeError: Executor failed.
(APIServer pid=5) ERROR 11-29 12:43:27 [async_llm.py:906] EngineDeadError: EngineCore encountered an issue.
"""
    assert first_error("vllm", log).startswith("Worker proc VllmWorker-0 died unexpectedly")


def test_what_a_worker_itself_said_comes_before_its_death() -> None:
    log = """
(Worker_TP0 pid=8) ERROR 11-29 12:43:25 [mp.py:800] WorkerProc hit an exception.
(Worker_TP0 pid=8) ERROR 11-29 12:43:25 [mp.py:800] ValueError: the weights do not fit
(EngineCore pid=7) ERROR 11-29 12:43:26 [mp.py:270] Worker proc VllmWorker-0 died unexpectedly, shutting down
"""
    assert first_error("vllm", log) == "ValueError: the weights do not fit"


def test_a_server_that_is_asked_to_end_names_no_error() -> None:
    log = """
[2026-11-29 13:51:00] Subprocess scheduler_0 (pid=19754) crashed with exit code -15. Triggering SIGQUIT for cleanup...
[2026-11-29 13:51:00] Received sigquit from a child process. It usually means the child failed.
"""
    assert first_error("sglang", log) == ""


def test_a_library_that_is_not_preloaded_is_ignored_as_it_says() -> None:
    text = (
        "ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored."
    )
    generic = profile("generic")
    assert not generic.is_error(generic.read_line(RawLine(stream="stderr", at=0.0, text=text)))


@pytest.mark.parametrize(
    "prefix",
    [
        "ERROR 11-29 10:00:00 [core.py:99] ",
        "ERROR 2026-11-30 02:45:23,154 [x.py:4] ",
        "CRITICAL 2026-11-30T02:45:23 ",
    ],
)
def test_a_level_before_the_moment_is_understood_of_any_server(prefix: str) -> None:
    generic = profile("generic")
    line = generic.read_line(RawLine(stream="stdout", at=0.0, text=f"{prefix}no such dtype: fp3"))
    assert (line.level, line.message) == (prefix.split(maxsplit=1)[0], "no such dtype: fp3")
    assert generic.is_error(line)


@pytest.mark.parametrize("level", ["INFO", "[WARN]", "WARNING", "DEBUG"])
def test_a_line_that_says_it_is_mild_names_no_error_in_whatever_format(level: str) -> None:
    text = f"{level} hint: if you see 'CUDA out of memory', lower --gpu-memory-utilization"
    generic = profile("generic")
    assert not generic.is_error(generic.read_line(RawLine(stream="stderr", at=0.0, text=text)))
    assert generic.is_error(generic.read_line(RawLine(stream="stderr", at=0.0, text="CUDA out of memory")))
