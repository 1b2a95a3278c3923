"""Stops a process with SIGSTOP right after it has logged a certain message, once for each that it is to heed.

Every Python that has this folder in PYTHONPATH runs it at its start, however it was started. $STOPS_ITSELF names a
folder with a file `stop-NAME` for each message, which holds a part of it. A process that has logged the message waits
for a file `go-NAME` before it stops, so that whoever watches can tell two stops apart.
"""

import logging
import os
import signal
import time
from pathlib import Path

PATIENCE_S = 200.0
POLL_S = 0.1

_emit = logging.StreamHandler.emit
_folder = Path(os.environ.get("STOPS_ITSELF", os.devnull))
_parts = {path: path.read_text() for path in _folder.glob("stop-*")}


def _emit_and_stop(handler: logging.StreamHandler, record: logging.LogRecord) -> None:
    _emit(handler, record)
    message = record.getMessage()
    path = next((path for path, part in _parts.items() if part in message), None)
    if path is not None:
        del _parts[path]
        _wait_for(path.with_name(path.name.replace("stop", "go")))
        os.kill(os.getpid(), signal.SIGSTOP)


def _wait_for(path: Path) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not path.exists() and time.monotonic() < ends:
        time.sleep(POLL_S)


logging.StreamHandler.emit = _emit_and_stop
