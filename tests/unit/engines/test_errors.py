"""The first error of whole excerpts of logs: what a person would point at, behind headlines, frames and prefixes."""

import pytest

from firstlight.core.log import LogLine, RawLine
from firstlight.engines import profile
from firstlight.engines.errors import SPEAKERS_MAX

FRAMES = '  File "/srv/server.py", line 3, in main\n    run(arguments)\n    ^^^^^^^^^^^^^^\n'
BEGIN = "Traceback (most recent call last):\n" + FRAMES
HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"


def named_in(engine: str, log: str) -> list[LogLine]:
    """The first error as it was known after every line that named one."""
    known = profile(engine)
    reader = known.errors()
    first: LogLine | None = None
    after = []
    for text in log.splitlines():
        line = known.read_line(RawLine(stream="stderr", at=0.0, text=text.rstrip()))
        seen = reader.see(line)
        if seen.named and (first is None or seen.instead_of is first):
            first = line
        if seen.named and first:
            after.append(first)
    return after


def first_error(engine: str, log: str) -> str:
    named = named_in(engine, log)
    return named[-1].message.strip() if named else ""


def prefixed(prefix: str, log: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in log.splitlines())


@pytest.mark.parametrize("engine", ["vllm", "sglang", "embedded", "generic"])
@pytest.mark.parametrize(
    "last",
    [
        "Exception: the model folder is empty",
        "RuntimeError",
        "AssertionError: res=<Response [500]>, res.text='Internal Server Error'",
        "zmq.error.Again: Resource temporarily unavailable",
        "queue.Empty",
        "_queue.Empty",
        "socket.gaierror: [Errno -2] Name or service not known",
        "huggingface_hub.errors.GatedRepo: access is restricted",
        "ShardCannotStart: shard 0",
        "__main__.load.<locals>.Broken: no tensors",
        "KeyError: 'llama5'",
        "jinja2.exceptions.UndefinedVariable: 'x' is undefined",
    ],
)
def test_the_last_line_of_a_traceback_is_the_error_whatever_its_class_is_called(engine: str, last: str) -> None:
    assert first_error(engine, f"Loading\n{BEGIN}{last}\nBye\n") == last


@pytest.mark.parametrize(
    "prefix",
    [
        "(RayWorkerWrapper pid=77, ip=10.0.0.2) ",
        "(EngineCore pid=77) ",
        "(Worker_TP0 pid=77) ERROR 11-29 12:42:10 [multiproc.py:9] ",
        "vllm-1  | ",
        "2026-11-29T12:42:10.123456789Z ",
        "Nov 30 01:10:23 node-1 vllm.service[4711]: ",
        "0: ",
        "[1,0]<stderr>: ",
        "[rank0]: ",
        "[default0]:",
        "vllm-1  | (EngineCore pid=7) (RayWorkerWrapper pid=77, ip=10.0.0.2) ",
    ],
)
def test_a_traceback_behind_a_prefix(prefix: str) -> None:
    log = prefixed(prefix, f"Loading\n{BEGIN}shards.Missing: part 2 of 7{HANDLED}{BEGIN}RuntimeError: no model\n")
    assert first_error("vllm", log) == "shards.Missing: part 2 of 7"


@pytest.mark.parametrize(
    ("log", "error"),
    [
        # The first of a chain, in either wording
        (f"{BEGIN}OSError: no config.json{CAUSED}{BEGIN}ValueError: not a model", "OSError: no config.json"),
        (f"{BEGIN}OSError: no config.json{HANDLED}{BEGIN}ValueError: not a model", "OSError: no config.json"),
        (f"{BEGIN}OSError: a{CAUSED}{BEGIN}b.C: d{HANDLED}{BEGIN}ValueError: e", "OSError: a"),
        # unless it says nothing by itself
        (f"{BEGIN}KeyError: 'llama5'{HANDLED}{BEGIN}ValueError: llama5 is unknown", "ValueError: llama5 is unknown"),
        (f"{BEGIN}_queue.Empty{HANDLED}{BEGIN}TimeoutError: no answer", "TimeoutError: no answer"),
        (f"{BEGIN}KeyError: 1{HANDLED}{BEGIN}queue.Empty{CAUSED}{BEGIN}OSError: x", "OSError: x"),
        (
            f"{BEGIN}asyncio.exceptions.CancelledError{HANDLED}{BEGIN}TimeoutError: no answer",
            "TimeoutError: no answer",
        ),
        # and nothing follows from it
        (f"{BEGIN}KeyError: 'llama5'\n{BEGIN}ValueError: another one", "KeyError: 'llama5'"),
        (f"{BEGIN}AssertionError\nINFO: over\n{BEGIN}ValueError: another one", "AssertionError"),
        # What was asked for is no error, nor what comes of it
        (f"{BEGIN}KeyboardInterrupt", ""),
        (f"{BEGIN}KeyboardInterrupt: terminated{HANDLED}{BEGIN}RuntimeError: cannot join", ""),
        (f"{BEGIN}SystemExit: 1", ""),
        (f"{BEGIN}OSError: no disk{HANDLED}{BEGIN}KeyboardInterrupt", "OSError: no disk"),
        (f"{BEGIN}KeyboardInterrupt\n{BEGIN}RuntimeError: later", "RuntimeError: later"),
        # What Python ignores
        (f"Exception ignored in: <function Pool.__del__ at 0x7>\n{BEGIN}AttributeError: no _state", ""),
        (
            f"Exception ignored in: <function Pool.__del__ at 0x7>\n{BEGIN}AttributeError: x\n{BEGIN}OSError: y",
            "OSError: y",
        ),
        (f"WARNING: no flash kernels: {BEGIN}ImportError: flash", ""),
        # Groups
        (
            (
                "  + Exception Group Traceback (most recent call last):\n"
                '  |   File "/srv/server.py", line 3, in main\n'
                "  |     raise ExceptionGroup('start', errors)\n"
                "  | ExceptionGroup: start (2 sub-exceptions)\n"
                "  +-+---------------- 1 ----------------\n"
                "    | Traceback (most recent call last):\n"
                '    |   File "/srv/server.py", line 9, in load\n'
                "    | weights.Torn: shard 3\n"
                "    +---------------- 2 ----------------\n"
                "    | TypeError: 1\n"
                "    +------------------------------------\n"
            ),
            "| weights.Torn: shard 3",
        ),
        (
            (
                "  + Exception Group Traceback (most recent call last):\n"
                "  | ExceptionGroup: start (1 sub-exception)\n"
                "  +-+---------------- 1 ----------------\n"
                "    | ValueError: bad\n"
            ),
            "| ValueError: bad",
        ),
        (f"Traceback (most recent call last): [repeated 3x across cluster]\n{FRAMES}a.B: c", "a.B: c"),
        # A traceback of another process
        (
            (
                f"{BEGIN}ray.exceptions.RayTaskError(MyError): ray::Worker.load() (pid=7, ip=10.0.0.2)\n{FRAMES}"
                "my.Problem: too small"
            ),
            "my.Problem: too small",
        ),
        (
            f'multiprocessing.pool.RemoteTraceback: \n"""\n{BEGIN}OSError: x\n"""\n{CAUSED}{BEGIN}RuntimeError: y',
            "OSError: x",
        ),
        (
            (
                f"{BEGIN}torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
                f"-- Process 1 terminated with the following error:\n{BEGIN}my.Problem: too small"
            ),
            "my.Problem: too small",
        ),
        (
            f"{BEGIN}torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nTypeError: no triton",
            "TypeError: no triton",
        ),
        (
            (
                f"{BEGIN}RuntimeError: Error(s) in loading state_dict for L:\n    size mismatch for w: 3, 4\n"
                f"{BEGIN}RuntimeError: no worker"
            ),
            "RuntimeError: Error(s) in loading state_dict for L:",
        ),
        (f"{BEGIN}OSError: a\n{BEGIN}KeyError: 1\nx\n{BEGIN}my.Problem: b\nTypeError: c", "OSError: a"),
        # pydantic: what is said of the field
        (
            (
                f"{BEGIN}pydantic_core._pydantic_core.ValidationError: 2 validation errors for EngineArgs\ntp\n"
                "  Input should be a valid integer [type=int_parsing, input_value='x', input_type=str]\n"
            ),
            "Input should be a valid integer [type=int_parsing, input_value='x', input_type=str]",
        ),
        (
            (
                f"{BEGIN}pydantic.error_wrappers.ValidationError: 1 validation error for Args\nport\n"
                "  value is not a valid integer (type=type_error.integer)\n"
            ),
            "value is not a valid integer (type=type_error.integer)",
        ),
        (f"{BEGIN}ValidationError: 1 validation error for Args\n", "ValidationError: 1 validation error for Args"),
        # rich
        (
            (
                "╭──────────────── Traceback (most recent call last) ────────────────╮\n"
                "│ /srv/cli.py:90 in serve                                           │\n"
                "│ ❱ 90 │   server.serve(model)                                      │\n"
                "╰───────────────────────────────────────────────────────────────────╯\n"
                "tgi.NotThere: model"
            ),
            "tgi.NotThere: model",
        ),
        # Mixed with other processes' lines
        (
            (
                "Traceback (most recent call last):\nINFO:     Started server process [7]\n"
                f"Loading: 50%|█████     | 1/2 [00:01<00:01]\n{FRAMES}my.Problem: too small"
            ),
            "my.Problem: too small",
        ),
    ],
)
def test_one_traceback_is_one_thing(log: str, error: str) -> None:
    assert first_error("generic", log) == error


@pytest.mark.parametrize(
    ("engine", "log", "error"),
    [
        # A logger's headline over the traceback
        (
            "generic",
            (
                f"2026-05-14T15:11:38.469468Z ERROR text_generation_launcher: Error when initializing model\n{BEGIN}"
                "NotImplementedError: sharded is not supported for this model\n"
            ),
            "NotImplementedError: sharded is not supported for this model",
        ),
        (
            "generic",
            (
                "2026-05-14T15:11:38.469468Z ERROR shard-manager: text_generation_launcher: "
                "Shard complete standard error output:\n\n/opt/x.py:3: UserWarning: slow\n  warnings.warn(\n"
                'Traceback (most recent call last):\n\n  File "/opt/cli.py", line 8, in run\n    sys.exit(app())\n\n'
                '> File "/opt/server.py", line 133, in serve_inner\n    model = get_model(\n\n'
                "ValueError: unsupported model type llama5\n rank=0\n"
                "2026-05-14T15:11:38.500000Z ERROR text_generation_launcher: Shard 0 failed to start\n"
                "Error: ShardCannotStart\n"
            ),
            "ValueError: unsupported model type llama5",
        ),
        (
            "generic",
            (
                "2026-05-14T15:11:38.469468Z ERROR shard-manager: launcher: Shard complete error output:\n rank=0\n"
                "2026-05-14T15:11:38.5Z ERROR shard-manager: launcher: Shard process was signaled to shutdown with "
                "signal 4 rank=0\nError: ShardCannotStart\n"
            ),
            "shard-manager: launcher: Shard process was signaled to shutdown with signal 4 rank=0",
        ),
        (
            "generic",
            (
                '{"timestamp":"2026-05-14T15:11:38Z","level":"INFO","fields":{"message":"Starting"}}\n'
                '{"timestamp":"2026-05-14T15:11:39Z","level":"ERROR","fields":{"message":"Error when initializing'
                '\\nTraceback (most recent call last):\\n  File x\\nValueError: no"},"target":"launcher"}\n'
                '{"level":"error","msg":"later"}\n'
            ),
            (
                "Error when initializing\\nTraceback (most recent call last):\\n  File x\\nValueError: no"
                '"},"target":"launcher"}'
            ),
        ),
        ("generic", f"ERROR:    Exception in ASGI application\n{BEGIN}app.Broken: x\n", "app.Broken: x"),
        (
            "generic",
            "2026-05-14T15:11:38.4Z ERROR shard-manager: launcher: Shard complete standard error output:\n\n"
            + prefixed("[rank1]: ", f"{BEGIN}torch.cuda.NoRoom: 224 MiB")
            + " rank=1\n2026-05-14T15:11:39.4Z ERROR launcher: Shard 1 failed to start\nError: ShardCannotStart\n",
            "torch.cuda.NoRoom: 224 MiB",
        ),
        (
            "vllm",
            (
                "2026-07-31 19:35:35,770    ERROR worker.py:423 -- Unhandled error (suppress with 'X=1'): "
                f"ray::RayWorkerWrapper.execute_method() (pid=13214, ip=7.2.1.2)\n{FRAMES}my.Problem: 2 arguments\n"
            ),
            "my.Problem: 2 arguments",
        ),
        # which is the error itself where nothing better stands under it
        ("generic", "ERROR:    it broke\nINFO:     bye\n", "it broke"),
        ("generic", f"ERROR:    it broke\n{BEGIN}SystemExit: 1\n", "it broke"),
        ("generic", "ERROR:    these options clash:\n  --a\n  --b\n", "these options clash:"),
        ("generic", f"ERROR:    it broke\nINFO:     going on\n{BEGIN}OSError: x\n", "it broke"),
        ("generic", f"ERROR:    it broke\n{BEGIN}OSError: x\n{BEGIN}TypeError: y\n", "OSError: x"),
        # and never takes the place of an error that came before
        ("generic", f"OSError: a\nERROR:    it broke\n{BEGIN}TypeError: b\n", "OSError: a"),
        # SGLang
        (
            "sglang",
            (
                "[2026-11-29 13:51:00] Initialization failed. warmup error: Traceback (most recent call last):\n"
                f"{FRAMES}AssertionError: res=<Response [500]>, res.text='Internal Server Error'\n"
            ),
            "AssertionError: res=<Response [500]>, res.text='Internal Server Error'",
        ),
        (
            "sglang",
            (
                "[2026-11-29 13:51:00] Initialization failed. warmup error: Traceback (most recent call last):\n"
                f"{FRAMES}ConnectionRefusedError: [Errno 111] Connection refused{HANDLED}{BEGIN}"
                "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=30000)\n"
            ),
            "ConnectionRefusedError: [Errno 111] Connection refused",
        ),
        (
            "sglang",
            "[2026-11-29 13:51:00] Initialization failed. warmup error:\n",
            "Initialization failed. warmup error:",
        ),
        (
            "sglang",
            (
                "[2026-11-29 13:51:00 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
                f"{FRAMES}deep_gemm.Unbuilt: no nvcc\n\n[2026-11-29 13:51:01] Received sigquit from a child process\n"
            ),
            "deep_gemm.Unbuilt: no nvcc",
        ),
        (
            "sglang",
            (
                "[12-11 17:52:52] Rank 0 scheduler is dead. Please check if there are relevant logs.\n"
                f"[12-11 17:52:54] Exit code: -9\n{BEGIN}EOFError\n"
            ),
            "Rank 0 scheduler is dead. Please check if there are relevant logs.",
        ),
        (
            "sglang",
            f"{BEGIN}my.Problem: no VAE\n[12-11 17:52:52] Rank 0 scheduler is dead. Please check its logs.\n",
            "my.Problem: no VAE",
        ),
        # vLLM
        (
            "vllm",
            prefixed(
                "(EngineCore pid=7) ERROR 11-29 12:43:26 [core.py:9] ",
                f"EngineCore failed to start.\n{BEGIN}torch.AcceleratorBroken: x\nCUDA kernels report late\n",
            )
            + f"{BEGIN}RuntimeError: Engine core initialization failed. See root cause above.\n",
            "torch.AcceleratorBroken: x",
        ),
        (
            "vllm",
            "(EngineCore pid=7) (RayWorkerWrapper pid=77, ip=10.0.0.2) ERROR 11-29 12:43:26 [worker.py:9] "
            "Error executing method 'load_model'. This might cause deadlock in distributed execution.\n"
            + prefixed(
                "(EngineCore pid=7) (RayWorkerWrapper pid=77, ip=10.0.0.2) ERROR 11-29 12:43:26 [worker.py:9] ",
                f"{BEGIN}torch.OutOfMemory: 3 GiB",
            ),
            "torch.OutOfMemory: 3 GiB",
        ),
        # torchrun: how a rank ended is better than the summary, and its table better than the exception's name
        (
            "generic",
            (
                "E1129 12:42:22.816000 77 torch/distributed/elastic/api.py:869] failed (exitcode: -9) "
                f"local_rank: 0 (pid: 4711) of binary: /usr/bin/python\n{BEGIN}"
                "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
            ),
            (
                "E1129 12:42:22.816000 77 torch/distributed/elastic/api.py:869] failed (exitcode: -9) "
                "local_rank: 0 (pid: 4711) of binary: /usr/bin/python"
            ),
        ),
        (
            "generic",
            (
                f"{BEGIN}torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
                "=============\nserver.py FAILED\n-------------\nRoot Cause (first observed failure):\n[0]:\n"
                "  rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: 4711)\n  error_file: <N/A>\n"
            ),
            "exitcode  : -9 (pid: 4711)",
        ),
        # An exception of C++
        (
            "generic",
            "terminate called after throwing an instance of 'c10::E'\n  what():  no room\nAborted (core dumped)\n",
            "what():  no room",
        ),
        # uvicorn's level stands in the first line only
        (
            "vllm",
            f"ERROR:    {BEGIN}app.Broken: x\n\nERROR:    Application startup failed. Exiting.\n",
            "app.Broken: x",
        ),
        # llama.cpp, Ollama
        (
            "generic",
            "llama_model_load: error loading model: no room\nmain: error: unable to load model\n",
            "llama_model_load: error loading model: no room",
        ),
        (
            "generic",
            'time=2026-01-01T00:00:00Z level=ERROR source=server.go:1 msg="it has terminated"\n',
            'source=server.go:1 msg="it has terminated"',
        ),
        # Shells and loaders
        (
            "generic",
            "python3: error while loading shared libraries: libcudart.so.12: cannot open shared object file\n",
            "python3: error while loading shared libraries: libcudart.so.12: cannot open shared object file",
        ),
        (
            "generic",
            "Usage: serve [OPTIONS] MODEL\nTry 'serve --help' for help.\n\nError: No such option: --prot\n",
            "Error: No such option: --prot",
        ),
        (
            "generic",
            (
                "╭─ Error ──────────────────────────────────────────────╮\n"
                "│ No such option: --prot Did you mean --port?          │\n"
                "╰──────────────────────────────────────────────────────╯\n"
            ),
            "│ No such option: --prot Did you mean --port?          │",
        ),
    ],
)
def test_headlines_and_consequences_never_win_over_the_error(engine: str, log: str, error: str) -> None:
    assert first_error(engine, log) == error


def test_the_same_behind_docker_compose_with_timestamps() -> None:
    log = f"ERROR:    Error when initializing model\n{BEGIN}app.Broken: x\n"
    assert first_error("generic", prefixed("tgi-1  | 2026-11-29T12:42:10.123456789Z ", log)) == "app.Broken: x"


def test_until_its_traceback_comes_a_headline_is_the_error() -> None:
    log = f"ERROR:    Error when initializing model\n{BEGIN}app.Broken: x\n"
    assert [line.message for line in named_in("generic", log)] == ["Error when initializing model", "app.Broken: x"]


@pytest.mark.parametrize(
    ("first", "second"), [("(Worker_TP0 pid=7) ", "(Worker_TP1 pid=8) "), ("[rank0]: ", "[rank1]: "), ("0: ", "1: ")]
)
def test_two_ranks_fail_at_once_and_each_keeps_its_own_traceback(first: str, second: str) -> None:
    one = prefixed(first, f"{BEGIN}KeyError: 1{HANDLED}{BEGIN}a.First: x").splitlines()
    other = prefixed(second, f"{BEGIN}KeyError: 2{HANDLED}{BEGIN}b.Second: y").splitlines()
    mixed = "\n".join(line for pair in zip(one, other, strict=True) for line in pair)
    assert first_error("vllm", mixed) == "a.First: x"


def test_a_traceback_without_an_end_hides_no_error_for_ever() -> None:
    log = f"{BEGIN}" + "noise of other things\n" * 4000 + "not.One: by its look\nOSError: x\n"
    assert first_error("generic", log) == "OSError: x"


def test_a_flood_of_speakers_is_bounded() -> None:
    log = "".join(f"(Worker pid={pid + 1}) {BEGIN}" for pid in range(SPEAKERS_MAX + 500))
    assert first_error("vllm", log + "my.Problem: too small\n") == "my.Problem: too small"
