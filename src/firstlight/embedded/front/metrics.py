"""The document behind /metrics, in Prometheus' text format, version 0.0.4.

Names begin with `firstlight:`. What drafts brought is there under vLLM's names as well (`vllm:spec_decode_*`), so
that a dashboard or a benchmark made for vLLM reads it without change.
"""

from collections.abc import Iterable, Iterator

from firstlight.embedded.front.crew import Crew
from firstlight.embedded.front.link import Link
from firstlight.embedded.front.measures import Histogram, Measures
from firstlight.embedded.messages import Counters

OURS = "firstlight:"
VLLM = "vllm:"


def document(crew: Crew, link: Link, measures: Measures) -> str:
    """Everything, as of now."""
    lines = [
        *_one("num_requests_running", "gauge", "Requests that the worker has begun.", link.running),
        *_one("num_requests_waiting", "gauge", "Requests that wait.", link.in_flight - link.running),
        *_one("prompt_tokens_total", "counter", "Tokens of accepted prompts.", measures.prompt_tokens),
        *_one("generation_tokens_total", "counter", "Tokens generated.", measures.generation_tokens),
        *_one(
            "requests_rejected_total", "counter", "Requests refused because the queue was full.", measures.rejected
        ),
        *_family("requests_total", "counter", "Requests that ended, by how.", _labelled("finish", measures.ended)),
        *_histogram("time_to_first_token_seconds", "From request to first token.", measures.first_token),
        *_histogram("inter_token_latency_seconds", "From token to token.", measures.between_tokens),
        *_histogram("e2e_request_latency_seconds", "From request to end.", measures.whole_request),
        *_family("worker_stamp_age_seconds", "gauge", "Time since a rank's working thread moved.", _ages(crew)),
    ]
    if measures.counters is not None:
        lines += _of_worker(measures.counters)
    return "\n".join(lines) + "\n"


def _of_worker(counters: Counters) -> list[str]:
    lines = [
        *_one("kv_cache_pages_used", "gauge", "Pages of the KV cache in use.", counters.pages_used),
        *_one("kv_cache_pages", "gauge", "Pages of the KV cache.", counters.pages_total),
        *_one("prefix_cache_queries_total", "counter", "Tokens looked up.", counters.prefix_query_tokens),
        *_one("prefix_cache_hits_total", "counter", "Tokens found again.", counters.prefix_hit_tokens),
        *_one("num_preemptions_total", "counter", "Requests put back for want of pages.", counters.preemptions),
        *_one("prefill_tokens_total", "counter", "Prompt tokens computed.", counters.prefill_tokens),
        *_one("greedy_ties_total", "counter", "Greedy choices where another token scored the same.", counters.ties),
    ]
    for prefix in (OURS, VLLM):
        lines += _speculation(prefix, counters)
    return lines


def _speculation(prefix: str, counters: Counters) -> Iterator[str]:
    name = "spec_decode_num_"
    yield from _one(f"{name}drafts_total", "counter", "Drafts.", counters.drafts, prefix)
    yield from _one(f"{name}draft_tokens_total", "counter", "Tokens drafted.", counters.draft_tokens, prefix)
    yield from _one(f"{name}accepted_tokens_total", "counter", "Tokens accepted.", counters.accepted_tokens, prefix)
    positions = {str(position): count for position, count in enumerate(counters.accepted_per_position)}
    rows = _labelled("position", positions)
    yield from _family(f"{name}accepted_tokens_per_pos_total", "counter", "Accepted by position.", rows, prefix)


def _one(name: str, kind: str, meaning: str, value: float, prefix: str = OURS) -> Iterator[str]:
    return _family(name, kind, meaning, [("", value)], prefix)


def _family(
    name: str, kind: str, meaning: str, rows: Iterable[tuple[str, float]], prefix: str = OURS
) -> Iterator[str]:
    yield f"# HELP {prefix}{name} {meaning}"
    yield f"# TYPE {prefix}{name} {kind}"
    for suffix, value in rows:
        yield f"{prefix}{name}{suffix} {value}"


def _labelled(label: str, values: dict[str, int]) -> Iterator[tuple[str, float]]:
    for value, count in values.items():
        yield f'{{{label}="{value}"}}', count


def _ages(crew: Crew) -> Iterator[tuple[str, float]]:
    for member in crew.members:
        yield f'{{rank="{member.rank}"}}', round(member.stamp_age_s, 3)


def _histogram(name: str, meaning: str, histogram: Histogram) -> Iterator[str]:
    return _family(name, "histogram", meaning, _buckets(histogram))


def _buckets(histogram: Histogram) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        total += count
        yield f'_bucket{{le="{bound}"}}', total
    yield "_sum", round(histogram.sum, 6)
    yield "_count", total
