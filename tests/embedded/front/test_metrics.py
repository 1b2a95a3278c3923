"""/metrics: Prometheus' text format to the letter, and the numbers in it."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from firstlight.embedded.front.measures import Histogram, Measures

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(\{{(?:{NAME}="[^"\\\n]*",?)+\}})? (-?\d+(?:\.\d+)?(?:e-?\d+)?)')
COMMENT = re.compile(rf"# (HELP|TYPE) ({NAME}) (.+)")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}


def samples(text: str) -> dict[str, float]:
    """Every sample by name and labels; fails on what is not the text format (version 0.0.4)."""
    found: dict[str, float] = {}
    told: dict[str, str] = {}
    family = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if comment := COMMENT.fullmatch(line):
            what, family, rest = comment.groups()
            assert (family in told) == (what == "TYPE"), f"HELP and TYPE once each, in this order: {line}"
            told[family] = rest if what == "TYPE" else ""
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, f"not a sample: {line!r}"
        name, labels, value = sample.groups()
        assert name in {family + suffix for suffix in SUFFIXES.get(told[family], ("",))}, f"{name} under {family}"
        assert name + (labels or "") not in found
        found[name + (labels or "")] = float(value)
    assert set(told.values()) <= {"gauge", "counter", "histogram"}
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in told.items())
    return found


def scraped(server: Any) -> dict[str, float]:
    reply = server.ask("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(reply.body.decode())


@pytest.fixture(scope="module")
def server(start_scripted: Callable[..., Any]) -> Any:
    return start_scripted("--max-num-seqs", "1", "--max-queue", "1").ready()


def ask(server: Any, prompt: str, **fields: Any) -> Any:
    return server.ask("/v1/completions", {"prompt": prompt, "max_tokens": 100} | fields)


def test_requests_are_counted_by_how_they_end_and_timed(server: Any) -> None:
    before = scraped(server)
    ask(server, "echo 12345")
    ask(server, "echo 12345", max_tokens=2)
    ask(server, "error x")
    after = scraped(server)

    def grown(name: str) -> float:
        return after["firstlight:" + name] - before.get("firstlight:" + name, 0)

    assert grown('requests_total{finish="stop"}') == 1
    assert grown('requests_total{finish="length"}') == 1
    assert grown('requests_total{finish="error"}') == 1
    assert grown("prompt_tokens_total") == len("echo 12345") * 2 + len("error x")
    assert grown("generation_tokens_total") == 6 + 2 + 2, "five and an end token, two, and two before the error"
    assert grown("time_to_first_token_seconds_count") == 3
    assert grown("inter_token_latency_seconds_count") == 5 + 1 + 1
    assert grown("e2e_request_latency_seconds_count") == 3
    assert grown("time_to_first_token_seconds_sum") > 0
    assert after['firstlight:time_to_first_token_seconds_bucket{le="+Inf"}'] == 3


def test_refusals_of_a_full_queue_are_counted(server: Any) -> None:
    held = [server.stream("/v1/completions", {"prompt": "flood", "max_tokens": 8000}) for _ in range(2)]
    assert ask(server, "echo x").status == 429
    metrics = scraped(server)
    assert metrics["firstlight:requests_rejected_total"] == 1
    assert metrics["firstlight:num_requests_running"] + metrics["firstlight:num_requests_waiting"] == 2
    for connection, _ in held:
        connection.sock.shutdown(2)
        connection.close()
    server.until(lambda health: health["in_flight"] == 0, "nothing in flight")
    assert scraped(server)['firstlight:requests_total{finish="cancelled"}'] == 2


def test_what_the_worker_counts_is_there_under_our_names_and_vllm_s(server: Any) -> None:
    assert "firstlight:kv_cache_pages" not in scraped(server), "not before it has told"
    ask(server, "count")
    metrics = scraped(server)
    assert metrics["firstlight:kv_cache_pages"] == 40
    assert metrics["firstlight:kv_cache_pages_used"] == 3
    assert metrics["firstlight:prefix_cache_queries_total"] == 100
    assert metrics["firstlight:prefix_cache_hits_total"] == 64
    assert metrics["firstlight:num_preemptions_total"] == 2
    assert metrics["firstlight:prefill_tokens_total"] == 36
    assert metrics["firstlight:greedy_ties_total"] == 1
    for prefix in ("firstlight:", "vllm:"):
        name = prefix + "spec_decode_num_"
        assert metrics[name + "drafts_total"] == 10
        assert metrics[name + "draft_tokens_total"] == 30
        assert metrics[name + "accepted_tokens_total"] == 17
        per_position = [metrics[f'{name}accepted_tokens_per_pos_total{{position="{at}"}}'] for at in range(3)]
        assert per_position == [9, 6, 2]


def test_a_histogram_counts_up_to_and_including_its_bounds() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 99.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.sum == 104.0


def test_tokens_that_come_together_share_their_time() -> None:
    measures = Measures()
    measures.tokens_came(4, 0.4, first=False)
    assert measures.between_tokens.sum == pytest.approx(0.4)
    assert sum(measures.between_tokens.counts) == 4
    assert measures.between_tokens.counts[measures.between_tokens.bounds.index(0.1)] == 4
