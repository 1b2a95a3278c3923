"""Look at the machine before a start: what the server of a command would find, with nothing started."""

import os
from collections.abc import Callable

from firstlight import evidence
from firstlight.attempt.bundles import bundle_before
from firstlight.attempt.hosts_named import hosts_named
from firstlight.clock import Clock
from firstlight.core import redact
from firstlight.core.bundle import Bundle
from firstlight.core.server import ServerCommand
from firstlight.supervise.launch.refusals import foreseen

DEADLINE_S = 1.5


def look_before(command: ServerCommand, clock: Clock, *, say: Callable[[str], None]) -> Bundle:
    """A bundle without a server in it: the machine, its GPUs, the wanted port, locks and leftovers."""
    environ = {**os.environ, **dict(command.env)}
    redact.remember((command.api_key, *redact.secrets_of(command.argv, environ.items())))
    say("looking at the machine")
    names = hosts_named(command, environ)
    host = evidence.host(clock, environ=environ, model=command.model, names=names)
    say("looking at what is there already")
    look = evidence.look_around(
        clock=clock, environ=environ, words=command.argv, port=command.port, deadline_s=DEADLINE_S
    )
    return bundle_before(command, host, look, refused=redact.text(foreseen(command.argv, environ)))
