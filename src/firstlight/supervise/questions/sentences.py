"""What a server's answer means: one plain sentence and a way out. Its own words are shortened and redacted.

No sentence ends in "token", since its words follow after a colon, and redaction would take them for one.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from firstlight.core import redact
from firstlight.core.report import FirstToken
from firstlight.core.server import ServerCommand
from firstlight.core.words import counted, printable
from firstlight.supervise.questions.http_question import Failure, Reply

QUOTED_CHARACTERS = 200
MODELS_LISTED = 5
COUNTED_MAX = 1e18
QUOTED_FROM = 4096
"""Bytes of a reply that are looked at for its words."""

_UNKNOWN_MODEL = re.compile(r"(?is)model_not_found|unknown model|\bmodels?\b.{0,300}\b(?:not exist|not found)")


class Saying(NamedTuple):
    """One plain sentence, a way out, and what the server itself said: short, on one line, and without secrets."""

    fact: str
    advice: str
    said: str = ""


def url(host: str, port: int) -> str:
    """The base URL."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def token(made: FirstToken) -> Saying:
    """The proof."""
    return Saying(f"{made.model} answered with {counted(made.tokens, 'token')} in {made.request_s:.2f} s", "")


def failure(where: str, why: Failure) -> Saying:
    """There was no reply to the first questions."""
    return {
        Failure.REFUSED: Saying(
            f"nothing listens at {where} yet; the connection was refused", "wait, or check --host and --port"
        ),
        Failure.UNREACHABLE: Saying(f"{where} cannot be reached from this machine", "check --host and --port"),
        Failure.NO_REPLY: Saying(
            f"{where} accepts connections but answers no question, not even /health",
            "its HTTP process is blocked or too busy: see what it waits for",
        ),
        Failure.CLOSED: Saying(
            f"{where} closes connections without an answer", "the end of the server's log may say why"
        ),
        Failure.NOT_HTTP: Saying(
            f"something listens at {where}, but it does not speak HTTP",
            "check the port, and whether it expects TLS",
        ),
    }[why]


def hung(where: str, health: int | None, waited_s: float) -> Saying:
    """The question for a token was taken and never answered."""
    health_says = f"/health says {health}, but " if health is not None else ""
    return Saying(
        f"{health_says}{where} gave no token within {waited_s:.0f} s",
        "the engine behind it hangs or is very slow: see what it waits for",
    )


def not_asked(why: str) -> Saying:
    """The question itself went wrong, before or after the server had its say."""
    return Saying(f"the question for a token failed inside firstlight ({why})", "please report this fault")


def no_token(where: str, reply: Reply, command: ServerCommand) -> Saying:
    """A completion, and nothing in it."""
    return Saying(
        f"{where} answered {reply.status} with a completion that has not a single token in it",
        "if the model ends at once, try another --prompt, else the engine's output is broken",
        quoted(reply, command) if _message(reply.fields) else "",
    )


def unreadable(where: str, reply: Reply, command: ServerCommand) -> Saying:
    """200, and what came is not a completion at all."""
    what = "is empty or breaks off" if not reply.body else "is not JSON" if reply.json is None else "is no completion"
    return Saying(
        f"{where} answered a request for a token with {reply.status}, but what came {what}",
        "check that the port is the LLM server's, and that nothing between rewrites its answers",
        quoted(reply, command),
    )


def redirected(where: str, reply: Reply) -> Saying:
    """3xx."""
    to = redact.text(reply.location)[:QUOTED_CHARACTERS]
    return Saying(
        f"{where} redirects ({reply.status}) instead of answering",
        "check that the port is the LLM server's own, and not that of a proxy or a web page in front of it",
        f"Location: {to}" if to else "",
    )


def needs_key(where: str, reply: Reply, command: ServerCommand) -> Saying:
    """401 or 403."""
    refused = "refuses the API key it was given" if command.api_key else "wants an API key"
    return Saying(
        f"{where} {refused} ({reply.status})",
        "set FIRSTLIGHT_API_KEY, or pass the key with the --api-key option",
        quoted(reply, command),
    )


def wrong_model(where: str, asked_for: str, served: tuple[str, ...]) -> Saying:
    """The model's name is not one that is served."""
    known = ", ".join(redact.text(name)[:QUOTED_CHARACTERS] for name in served[:MODELS_LISTED])
    listed = f"it serves: {known}" if known else "ask /v1/models what it serves"
    return Saying(
        f"{where} does not serve a model called {asked_for[:QUOTED_CHARACTERS]!r}; {listed}",
        "the name is set by --served-model-name",
    )


def not_an_llm_server(where: str, status: int) -> Saying:
    """HTTP, but none of the routes."""
    return Saying(
        f"{where} speaks HTTP but offers no way to generate (no /v1/completions, /v1/chat/completions or /generate, "
        f"status {status})",
        "check that the port is the LLM server's",
    )


def server_error(where: str, reply: Reply, command: ServerCommand) -> Saying:
    """The server's own words."""
    return Saying(
        f"{where} answered a request for a token with {reply.status}",
        "the server's log may say more",
        quoted(reply, command),
    )


def not_ready(where: str, reply: Reply, command: ServerCommand) -> Saying:
    """503, with the phase and the progress where the body tells."""
    phase = reply.fields.get("phase")
    if isinstance(phase, str):
        said = _short(f"phase {phase[:40]}{_progress(reply.fields.get('progress'))}", command)
    else:
        said = quoted(reply, command)
    return Saying(f"{where} says that it is not ready ({reply.status})", "wait, or see the server's log", said)


def failed_start(where: str, reply: Reply, command: ServerCommand) -> Saying:
    """503 from a server that has given up."""
    return Saying(
        f"{where} says that its start has failed ({reply.status})", "see the server's log", quoted(reply, command)
    )


def names_unknown_model(reply: Reply) -> bool:
    """True if the server refuses because of the model's name rather than of the route."""
    return (
        reply.status in {400, 404}
        and _UNKNOWN_MODEL.search(reply.body[:QUOTED_FROM].decode(errors="replace")) is not None
    )


def quoted(reply: Reply, command: ServerCommand) -> str:
    """What the server says, on one line, short, and without secrets."""
    said = _message(reply.fields) if reply.fields else reply.body[:QUOTED_FROM].decode(errors="replace")
    return _short(said, command)


def _short(said: str, command: ServerCommand) -> str:
    """Redacted before it is cut: half a secret is no longer known for one."""
    said = said[:QUOTED_FROM]
    if command.api_key:
        said = said.replace(command.api_key, redact.HIDDEN)
    return printable(" ".join(redact.text(said).split()), QUOTED_CHARACTERS)


def _message(fields: Mapping[str, Any]) -> str:
    """FastAPI says `detail`, OpenAI `error.message`, older vLLM `message`, firstlight's own engine `reason`."""
    error = fields.get("error")
    inner = error.get("message") if isinstance(error, dict) else error
    found = (inner, fields.get("message"), fields.get("detail"), fields.get("reason"), fields.get("status"))
    return next((text for text in found if isinstance(text, str) and text), "")


def _progress(progress: object) -> str:
    if not isinstance(progress, dict):
        return ""
    done, total = progress.get("done"), progress.get("total")
    if isinstance(done, int | float) and isinstance(total, int | float) and done >= 0 and 0 < total <= COUNTED_MAX:
        return f", {100 * min(done, total) / total:.0f} %"
    return ""
