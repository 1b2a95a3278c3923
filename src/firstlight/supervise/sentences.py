"""What a server's answer means: one plain sentence and a way out. Its own words are shortened and redacted."""

import re
from collections.abc import Mapping
from typing import Any

from firstlight.core import redact
from firstlight.core.report import FirstToken
from firstlight.core.server import ServerCommand
from firstlight.supervise.http_question import Failure, Reply

QUOTED_CHARACTERS = 200
MODELS_LISTED = 5

_UNKNOWN_MODEL = re.compile(r"(?is)model_not_found|unknown model|\bmodels?\b.{0,300}\b(?:not exist|not found)")


def url(host: str, port: int) -> str:
    """The base URL."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def token(made: FirstToken) -> str:
    """The proof."""
    plural = "token" if made.tokens == 1 else "tokens"
    return f"{made.model} answered with {made.tokens} {plural} in {made.request_s:.2f} s"


def failure(where: str, why: Failure) -> str:
    """There was no reply to the first questions."""
    return {
        Failure.REFUSED: f"nothing listens at {where} yet; the connection was refused",
        Failure.UNREACHABLE: f"{where} cannot be reached from this machine; check --host and --port",
        Failure.NO_REPLY: f"{where} accepts connections but answers no question, not even /health; "
        "its HTTP process is blocked or too busy: `firstlight look PID` shows where",
        Failure.CLOSED: f"{where} closes connections without an answer; the end of the server's log may say why",
        Failure.NOT_HTTP: f"something listens at {where}, but it does not speak HTTP; "
        "check the port, and whether it expects TLS",
    }[why]


def hung(where: str, health: int | None, waited_s: float) -> str:
    """The question for a token was taken and never answered."""
    health_says = f"/health says {health}, but " if health is not None else ""
    return (
        f"{health_says}{where} gave no token within {waited_s:.0f} s; the engine behind it hangs or is very slow: "
        "`firstlight look PID` shows what it does"
    )


def no_token_in_reply(where: str) -> str:
    """200, and nothing in it."""
    return (
        f"{where} answered 200 without a single token; if the model ends at once, try another prompt, "
        "else the engine's output is broken"
    )


def needs_key(where: str, command: ServerCommand) -> str:
    """401 or 403."""
    refused = "refuses the API key it was given" if command.api_key else "wants an API key"
    return f"{where} {refused}; give the right one with --api-key or FIRSTLIGHT_API_KEY"


def wrong_model(where: str, asked_for: str, served: tuple[str, ...]) -> str:
    """The model's name is not one that is served."""
    known = ", ".join(redact.text(name)[:QUOTED_CHARACTERS] for name in served[:MODELS_LISTED])
    listed = f"it serves: {known}" if known else "ask /v1/models what it serves"
    return f"{where} does not serve a model called {asked_for!r}; {listed}; the name is set by --served-model-name"


def not_an_llm_server(where: str, status: int) -> str:
    """HTTP, but none of the routes."""
    return (
        f"{where} speaks HTTP but offers no way to generate (no /v1/completions, /v1/chat/completions or /generate, "
        f"status {status}); check that the port is the LLM server's"
    )


def server_error(where: str, reply: Reply, command: ServerCommand) -> str:
    """The server's own words."""
    said = quoted(reply, command)
    return f"{where} answered {reply.status}{': ' + said if said else ''}; the server's log may say more"


def not_ready(where: str, reply: Reply, command: ServerCommand) -> str:
    """503, with the phase and the progress where the body tells."""
    fields = reply.fields
    if isinstance(fields.get("phase"), str):
        said = f"phase {fields['phase'][:40]}{_progress(fields.get('progress'))}"
    else:
        said = quoted(reply, command)
    return f"{where} says that it is not ready (503){': ' + said if said else ''}; wait, or see the server's log"


def names_unknown_model(reply: Reply) -> bool:
    """True if the server refuses because of the model's name rather than of the route."""
    return (
        reply.status in {400, 404} and _UNKNOWN_MODEL.search(reply.body[:4096].decode(errors="replace")) is not None
    )


def quoted(reply: Reply, command: ServerCommand) -> str:
    """What the server says, on one line, short, and without secrets."""
    said = _message(reply.fields) if reply.fields else reply.body[:4096].decode(errors="replace")
    if command.api_key:
        said = said.replace(command.api_key, redact.HIDDEN)
    return " ".join(redact.text(said[:4096]).split())[:QUOTED_CHARACTERS]


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
    if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
        return f", {100 * min(1.0, done / total):.0f} %"
    return ""
