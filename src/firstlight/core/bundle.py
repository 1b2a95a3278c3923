"""The bundle: all that was seen of a server about one moment, written once and judged as often as you like.

A file stands between looking and judging. Probes fill a bundle; diagnosis is a pure function of it. The format
is documented in docs/bundle.md; `BUNDLE_VERSION` moves with every change of meaning, older versions stay readable,
newer ones are refused by name.
"""

import msgspec

from firstlight.core.gap import Gap
from firstlight.core.host import Host
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.look import Look
from firstlight.core.process import Exit, ProcessId
from firstlight.core.record import Record
from firstlight.core.vocabulary import Motion, Phase
from firstlight.errors import BundleError

BUNDLE_FORMAT = "firstlight-bundle"
BUNDLE_VERSION = 2
BUNDLE_BYTES_MAX = 256 * 1024 * 1024


class LogTail(Record):
    """The last words of one source of the log (a rank, or a whole stream where lines do not say who speaks).

    `warnings` are earlier lines of it that warn of something or report an error, oldest first.
    """

    source: str
    lines: tuple[LogLine, ...]
    first_error: LogLine | None = None
    warnings: tuple[LogLine, ...] = ()


class Bundle(Record, kw_only=True):
    """All that was seen about one moment.

    `quiet_since` is the wall time of the last progress signal. `looks` holds two or more looks some seconds apart,
    since "slow or stuck" is a difference. `command` is redacted. `question` is what came of asking the server for
    a token, empty if nothing was asked yet or it was answered. `watchers` are the pids of firstlight itself.
    `environment` are the variables of the launch as `core.redact.environ` lets them through. `options` are the
    command's options as they were typed, without dashes in front and with - for _, each with the words that
    followed. `ranks` is how many workers this node should have, 0 if that is not known; `port` the one that it should
    listen on, 0 if the command does not tell; `node` of `nodes` says which
    machine this is. `motion` is what the progress signals said when the bundle was made. `hosts` names the machines
    of a bundle that was merged from several, in the order of their pids, and `machines` holds what was seen on each
    by itself, with the same pids; `host` then tells only what can be said of all. `refused` says why the command
    cannot be run, where that was tried before a start; empty if it can. `root` is the server's first process, where
    it was watched; None if that is not known.
    """

    format: str = BUNDLE_FORMAT
    version: int = BUNDLE_VERSION
    made_by: str
    run: str
    at: float
    engine: str
    engine_version: str
    command: tuple[str, ...]
    phase: Phase
    quiet_since: float
    host: Host
    timeline: tuple[PhaseSpan, ...] = ()
    looks: tuple[Look, ...] = ()
    exits: tuple[Exit, ...] = ()
    logs: tuple[LogTail, ...] = ()
    gaps: tuple[Gap, ...] = ()
    question: str = ""
    watchers: tuple[int, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ranks: int = 0
    port: int = 0
    node: int = 0
    nodes: int = 1
    hosts: tuple[str, ...] = ()
    machines: tuple["Bundle", ...] = ()
    motion: Motion = Motion.STALLED
    started: float = 0.0
    refused: str = ""
    root: ProcessId | None = None

    def option(self, name: str) -> tuple[str, ...] | None:
        """The words after an option of the server, None if it was not given."""
        return next((words for key, words in self.options if key == name), None)

    def variable(self, name: str) -> str:
        """The value of a variable of the launch; empty if it was not set or is hidden."""
        return next((value for key, value in self.environment if key == name), "")


class _Header(msgspec.Struct):
    format: str
    version: int


def read_bundle(data: bytes) -> Bundle:
    """Parse a bundle.

    Raises:
        BundleError: not JSON, truncated, too large, not a bundle, of a version that there never was, from a newer
            firstlight, or with unknown fields.
    """
    if len(data) > BUNDLE_BYTES_MAX:
        raise BundleError(
            f"the bundle is longer than {BUNDLE_BYTES_MAX} bytes, the most that is read",
            "Is this a bundle? firstlight writes them as bundle-1.json, bundle-2.json … into the folder of a run.",
        )
    try:
        header = msgspec.json.decode(data, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(
            f"this is not a bundle, or only part of one: {error}",
            "`firstlight look PID` writes a new one.",
        ) from error
    if header.format != BUNDLE_FORMAT:
        raise BundleError(
            f"this is a {header.format!r} file, not a {BUNDLE_FORMAT}", "`firstlight look PID` writes one."
        )
    if header.version < 1:
        raise BundleError(
            f"the bundle has version {header.version}, which there never was",
            "`firstlight look PID` writes a new one.",
        )
    if header.version > BUNDLE_VERSION:
        raise BundleError(
            f"the bundle has version {header.version}, and this firstlight reads up to {BUNDLE_VERSION}",
            "Read it with a newer firstlight",
        )
    try:
        return msgspec.json.decode(data, type=Bundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(
            f"the bundle does not fit its own version: {error}", "`firstlight look PID` writes a new one."
        ) from error
