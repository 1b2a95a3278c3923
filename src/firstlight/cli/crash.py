"""The file that is left behind by a bug of ours."""

import os
import platform
import sys
import tempfile
import traceback

from firstlight import __version__


def write_crash(error: BaseException) -> str:
    """Write the traceback, with secrets replaced; gives the file's path, or the traceback itself if nowhere can be
    written.
    """
    from firstlight.core import redact

    text = "".join(
        [
            f"firstlight {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
            f"command: {' '.join(redact.command(sys.argv))}\n\n",
            redact.text("".join(traceback.format_exception(error))),
        ]
    )
    try:
        fd, path = tempfile.mkstemp(prefix="firstlight-bug-", suffix=".txt")
    except OSError:
        return f"the following lines\n{text}"
    with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path
