"""The front: takes the port, starts the workers, answers HTTP from the first second, and ends all together.

The order matters for the time to the first token: port, workers, and only then the HTTP libraries, which are
imported while the workers import torch.
"""

import errno
import importlib.util
import resource
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from firstlight.embedded.errors import EngineError, WrongUsage
from firstlight.embedded.front.worker_process import PROGRAM, Workers
from firstlight.embedded.log import Log
from firstlight.embedded.machine import name_process
from firstlight.embedded.options import NGRAM, ServeOptions

NEEDED = ("torch", "safetensors", "tokenizers", "jinja2", "starlette", "uvicorn")
BACKLOG = 512


def serve(options: ServeOptions, version: str, program: Sequence[str] = PROGRAM) -> int:
    """Serve until told to stop; `program` is the command of a worker, without its options.

    Returns the exit code: 0 asked to stop, 1 worker or model failed, 2 wrong usage.
    """
    began = time.monotonic()
    # Until the event loop takes the signals over, both end the front in order, through every `finally`.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    name_process("fl-front")
    log = Log("front")
    log.line(f"start version={version} model={options.model}")
    try:
        _check_installed()
        _check_folders(options)
        _allow_connections()
        code = _run(options, _listen(options, log), log, began, program)
    except WrongUsage as error:
        log.say("error", str(error))
        return 2
    except EngineError as error:
        log.say("error", str(error))
        return 1
    except KeyboardInterrupt:
        code = 0
    if code == 0:
        log.say("info", "asked to stop; all processes of this server have ended")
    return code


def _run(options: ServeOptions, listener: socket.socket, log: Log, began: float, program: Sequence[str]) -> int:
    workers = _workers(options, program)
    try:
        from firstlight.embedded.front import run as front

        return front.run(options, listener, workers, log, began)
    finally:
        workers.end()


def _workers(options: ServeOptions, program: Sequence[str]) -> Workers:
    try:
        return Workers(options, program)
    except OSError as error:
        raise EngineError(
            f"the workers could not be started: {error}",
            "The system, or a limit of this user, allows no more files, processes or memory (see ulimit -a)",
        ) from error


def _allow_connections() -> None:
    """As many open files as the system lets us have without asking: each client is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _check_installed() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise WrongUsage(
            f"the embedded engine needs {', '.join(missing)}, not installed here",
            "Install firstlight with its embedded extra: pip install '.[embedded]' in its folder",
        )


def _check_folders(options: ServeOptions) -> None:
    if not options.model.is_dir():
        raise WrongUsage(
            f"there is no model folder {options.model}",
            "Name a folder with config.json, model.safetensors and tokenizer.json in it, or demo, or demo-4bit",
        )
    if options.drafter not in {"", NGRAM} and not Path(options.drafter).is_dir():
        raise WrongUsage(
            f"there is no drafter folder {options.drafter}",
            f"Name the folder of an EAGLE-3 drafter with config.json and its weights in it, or {NGRAM}",
        )


def _listen(options: ServeOptions, log: Log) -> socket.socket:
    """Take the port at once: from here on clients wait for an answer instead of being turned away."""
    log.phase_begins("http_bind")
    began = time.monotonic()
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # Named, since asyncio sends small pieces at once (TCP_NODELAY) only where it knows that this is TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _not_bound(options, error) from error
    log.phase_ends("http_bind", time.monotonic() - began)
    log.line(f"listening host={options.host} port={listener.getsockname()[1]}")
    return listener


def _not_bound(options: ServeOptions, error: OSError) -> WrongUsage:
    if error.errno == errno.EADDRINUSE:
        return WrongUsage(
            f"port {options.port} on {options.host} is taken by another process", "Choose another with --port"
        )
    return WrongUsage(
        f"cannot listen on {options.host} port {options.port}: {error.strerror or error}",
        "Name an address of this machine with --host (0.0.0.0 is all of them), and a port from 1024 on with --port",
    )
