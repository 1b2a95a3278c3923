"""What front and worker say to each other: a closed set of small records, JSON on the wire."""

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """Base of all messages."""


class Stamp(Message, frozen=True, kw_only=True, tag="stamp"):
    """Progress of the worker's working thread, written by that thread and by no other.

    `at` is CLOCK_MONOTONIC in seconds, which all processes of a machine share. `steps` counts units of real work
    (pieces of weights, layers). `total` is 0 where there is no counter.
    """

    rank: int
    phase: str
    at: float
    steps: int
    done: int = 0
    total: int = 0
    unit: str = ""


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """The model generates."""

    max_model_len: int
    vocab_size: int


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
    """The worker cannot go on, and ends."""

    message: str


class TopToken(msgspec.Struct, frozen=True, array_like=True):
    """A token that could have been chosen, and the natural logarithm of its probability."""

    token: int
    logprob: float


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token of one request. `finish` is empty while more may come, then "stop", "length" or "error".

    `logprob` and `top` (likeliest first) are of the model's own distribution, before penalties and temperature; they
    are there only if the request asked for them. `error` says why a request ended without an answer.
    """

    request: int
    token: int
    finish: str = ""
    logprob: float | None = None
    top: list[TopToken] = []
    error: str = ""


class Step(Message, frozen=True, kw_only=True, tag="step"):
    """What one round of the scheduler brought."""

    outputs: list[Output]
    stamp: Stamp


class Started(Message, frozen=True, kw_only=True, tag="started"):
    """A request left the queue and has a slot."""

    request: int


class Counters(Message, frozen=True, kw_only=True, tag="counters"):
    """What rank 0 counts for /metrics: pages and requests as they are now, all else since the start.

    `prefix_query_tokens` are prompt tokens looked up in the prefix cache, `prefix_hit_tokens` those found there.
    A draft is one round of one request; `accepted_per_position[i]` is how often its token i was accepted. `ties` are
    greedy choices, of answers that have ended, where another token scored exactly as high.
    """

    running: int = 0
    waiting: int = 0
    pages_used: int = 0
    pages_total: int = 0
    prefix_hit_tokens: int = 0
    prefix_query_tokens: int = 0
    preemptions: int = 0
    prefill_tokens: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = []
    ties: int = 0


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen. `temperature` 0 is greedy; `top_k` 0 keeps all tokens; `seed` None is random.

    Penalties are subtracted from the scores of tokens that were generated before: `presence_penalty` once,
    `frequency_penalty` for each time. `logprobs` is how many likeliest tokens to tell beside the chosen one's own
    logarithm; None tells neither.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logprobs: int | None = None


class Submit(Message, frozen=True, kw_only=True, tag="submit"):
    """A request: prompt tokens in, at most `max_tokens` out, ended early by any of `stop_tokens`."""

    request: int
    prompt: list[int]
    max_tokens: int
    stop_tokens: list[int]
    sampling: Sampling


class Cancel(Message, frozen=True, kw_only=True, tag="cancel"):
    """Nobody waits for this request any more."""

    request: int


FromWorker = Stamp | Ready | Failed | Step | Started | Counters
ToWorker = Submit | Cancel
