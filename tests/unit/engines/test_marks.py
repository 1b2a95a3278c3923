"""Lines that move phases, by engine and version, in the shapes that the engines have printed since 2025."""

import pytest

from firstlight.core.log import RawLine
from firstlight.core.vocabulary import Phase
from firstlight.engines import profile
from firstlight.engines.table import ENGINES, in_range, table


def marks(engine: str, message: str, version: str = "") -> str:
    """ "-weights +kv_cache": what a line ends and begins."""
    spoken_by = profile(engine)
    line = spoken_by.read_line(RawLine(stream="stderr", at=1.0, text=message))
    return " ".join(("-" if mark.ends else "+") + mark.phase for mark in spoken_by.marks(line, version))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("vLLM API server version 0.10.2", "+config"),
        ("non-default args: {'port': 8100}", "+config"),
        ("Resolved architecture: LlamaForCausalLM", "+config"),
        ("Initializing a V1 LLM engine (v0.32.0) with config: model='m'", "-config +spawn"),
        ("world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://127.0.0.1:4 backend=nccl", "+rendezvous"),
        ("vLLM is using nccl==2.27.3", "+comm_init"),
        ("rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, TP rank 0", "-rendezvous -comm_init"),
        ("Starting to load model /m...", "+model_init"),
        ("Loading model from scratch...", "+model_init"),
        ("Initializing model took 0.23 seconds", "-model_init +weights"),
        ("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  1.35it/s]", "+weights"),
        ("Loading pt checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  1.35it/s]", "+weights"),
        ("Multi-thread loading shards:  50% Completed | 1/2 [00:00<00:00,  1.35it/s]", "+weights"),
        ("Loading weights took 0.75 seconds", "-weights"),
        ("Loading drafter model...", "+draft_init"),
        ("Model loading took 0.25 GiB memory and 1.2 seconds", "-weights -draft_init -model_init"),
        ("Using cache directory: /c for vLLM's torch.compile", "+compile"),
        ("[backbone] Dynamo bytecode transform time: 4.1 s", "+compile"),
        ("Compiling a graph for dynamic shape takes 21.4 s", "+compile"),
        ("Directly load the compiled graph(s) for dynamic shape from the cache, took 1.2 s", "+compile"),
        ("torch.compile takes 25.5 s in total", "-compile"),
        ("[eagle_head] Initial profiling/warmup run took 4.06 s", "-compile"),
        ("Warming up model for the compilation...", "+compile"),
        ("Warming up done.", "-compile"),
        ("Available KV cache memory: 3.2 GiB", "+kv_cache"),
        ("Explicitly set (2.0/11.71) GiB for KV cache on node 0.", "+kv_cache"),
        ("GPU KV cache size: 93,184 tokens", "+kv_cache"),
        ("JIT kernel warmup starting.", "+warmup"),
        ("JIT kernel warmup finished in 3.2s.", "-warmup"),
        ("DeepGEMM warmup:  12%|█▏        | 2/16 [00:01<00:09,  1.4it/s]", "+warmup"),
        ("Capturing CUDA graph shapes:  12%|█▏        | 2/16 [00:01<00:09,  1.4it/s]", "+graph_capture"),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  12%|█▏ | 2/16 [00:01<00:09]", "+graph_capture"),
        ("Graph capturing finished in 12 secs, took 0.5 GiB", "-graph_capture"),
        (
            "init engine (profile, create kv cache, warmup model) took 122.33 s",
            "-rendezvous -comm_init -model_init -weights -draft_init -kv_cache -compile -warmup -graph_capture",
        ),
        ("Starting vLLM API server 0 on http://0.0.0.0:8000", "+http_bind"),
        ("Starting vLLM server on http://0.0.0.0:8100", "+http_bind"),
        ("Started server process [21345]", "+http_bind"),
        ("Application startup complete.", "-http_bind"),
        ("No available shared memory broadcast block found in 60 seconds.", ""),
        ("Route: /v1/completions, Methods: POST", ""),
    ],
)
def test_vllm(message: str, expected: str) -> None:
    assert marks("vllm", f"(Worker pid=1) INFO 11-29 12:42:22 [a.py:1] {message}") == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("server_args=ServerArgs(model_path='/m'", "+config"),
        ("server_args={'model_path': '/m'", "+config"),
        ("Init torch distributed begin.", "+rendezvous"),
        ("Init torch distributed ends. elapsed=0.53 s, mem usage=0.30 GB", "-rendezvous -comm_init"),
        ("Init torch distributed ends. mem usage=0.30 GB", "-rendezvous -comm_init"),
        ("Init parallel begin.", "+rendezvous"),
        ("Init parallel ends. elapsed=0.06 s", "-rendezvous -comm_init"),
        ("sglang is using nccl==2.27.3", "+comm_init"),
        ("Load weight begin. avail mem=19.84 GB", "+weights"),
        ("Load weight end. elapsed=1.37 s, type=LlamaForCausalLM, avail mem=19.62 GB", "-weights"),
        ("KV Cache is allocated. #tokens: 8192, K size: 0.09 GB, V size: 0.09 GB", "+kv_cache"),
        ("Mamba Cache is allocated. conv_state size: 1.00GB", "+kv_cache"),
        ("Memory pool end. avail mem=19.38 GB", "-kv_cache"),
        ("Running FlashInfer autotune with cache: /c", "+warmup"),
        ("FlashInfer autotune completed.", "-warmup"),
        ("Entering DeepGEMM JIT Pre-Compile session. It may take a long time", "+compile"),
        ("Capture cuda graph begin. This can take up to several minutes. avail mem=9 GB", "+graph_capture"),
        (
            "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=9 GB",
            "+graph_capture",
        ),
        ("Capture draft extend CUDA graph begin. backend=full", "+graph_capture"),
        ("Capture draft cuda graph begin. This can take up to several minutes.", "+graph_capture"),
        ("Capture piecewise CUDA graph begin. avail mem=9 GB", "+graph_capture"),
        (
            "Capturing batches (bs=1 avail_mem=9.16 GB):  75%|███████▌  | 3/4 [00:01<00:00,  2.1it/s]",
            "+graph_capture",
        ),
        (
            "Capturing prefill shape (num_tokens=64 avail_mem=9 GB):  75%|███████▌  | 3/4 [00:01<00:00]",
            "+graph_capture",
        ),
        ("Capture cuda graph end. Time elapsed: 4.56 s. mem usage=0.5 GB", "-graph_capture"),
        ("Capture target decode CUDA graph end. bs=[1, 2], elapsed=4.5 s, mem usage=0.5 GB", "-graph_capture"),
        (
            "max_total_num_tokens=8192, chunked_prefill_size=4096, max_prefill_tokens=16384",
            "-kv_cache -graph_capture -warmup -compile",
        ),
        ("INFO:     Uvicorn running on http://127.0.0.1:8201 (Press CTRL+C to quit)", "+http_bind"),
        (
            "INFO:     Started server process [19731]",
            "-rendezvous -comm_init -weights -kv_cache -graph_capture -warmup -compile +http_bind",
        ),
        ('INFO:     127.0.0.1:5 - "GET /model_info HTTP/1.1" 200 OK', "+warmup"),
        ("The server is fired up and ready to roll!", "-warmup -http_bind"),
        ("Decode batch, #running-req: 1, cuda graph: True, gen throughput (token/s): 3", ""),
        ("INFO:     Shutting down", ""),
    ],
)
def test_sglang(message: str, expected: str) -> None:
    assert marks("sglang", f"[2026-11-29 13:50:55] {message}") == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("[firstlight worker rank=0 pid=6] phase=weights begin", "+weights"),
        ("[firstlight worker rank=0 pid=6] phase=weights end seconds=0.41", "-weights"),
        ("[firstlight front pid=5] phase=serving begin", "+serving"),
        ("[firstlight front pid=5] phase=lunch begin", ""),
        ("[firstlight front pid=5] error: worker rank=0 was killed (phase=weights begin)", ""),
    ],
)
def test_embedded(message: str, expected: str) -> None:
    assert marks("embedded", message) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Loading checkpoint shards:  50%|█████     | 1/2 [00:00<00:00,  1.35it/s]", "+weights"),
        ("Fetching 12 files:  50%|█████     | 6/12 [00:00<00:00,  1.35it/s]", "+weights"),
        ("srv  load_model: loading model '/m.gguf'", "+weights"),
        ("Loading model from /m", "+weights"),
        ("INFO:     Application startup complete.", "+http_bind"),
        ("INFO:     Waiting for application startup.", ""),
        ("Serving HTTP on 0.0.0.0 port 8000 (http://0.0.0.0:8000/) ...", "+http_bind"),
        ("node1:4711:4800 [3] NCCL INFO ncclCommInitRank comm 0x1 rank 3 nranks 8 - Init START", "+comm_init"),
        ("node1:4711:4800 [3] NCCL INFO ncclCommInitRank comm 0x1 rank 3 nranks 8 - Init COMPLETE", "-comm_init"),
        ("I was loading model trains yesterday", ""),
        ("we are still loading", ""),
    ],
)
def test_generic(message: str, expected: str) -> None:
    assert marks("generic", message) == expected


def test_a_mark_of_another_version_does_not_count() -> None:
    total = "INFO 11-29 12:42:22 [a.py:1] torch.compile takes 25.5 s in total"
    assert marks("vllm", total, "0.16.0") == "-compile"
    assert marks("vllm", total, "0.32.0") == ""
    assert marks("vllm", total, "") == "-compile"


@pytest.mark.parametrize(
    ("version", "since", "until", "inside"),
    [
        ("0.5.4.post3", "0.5.4", "0.5.4", True),
        ("0.16.2", "", "0.16", True),
        ("0.17.0", "", "0.16", False),
        ("0.9.2", "0.11", "", False),
        ("0.34.0rc1", "0.32", "", True),
        ("", "9.9", "0.1", True),
        ("unknown", "9.9", "", True),
    ],
)
def test_version_ranges(version: str, since: str, until: str, inside: bool) -> None:
    assert in_range(version, since, until) is inside


@pytest.mark.parametrize("engine", ENGINES)
def test_every_mark_of_a_table_moves_something(engine: str) -> None:
    for mark in table(engine).marks:
        assert mark.begins or mark.ends or "?P<phase>" in mark.pattern, mark.has
        assert Phase.SERVING not in {mark.begins, *mark.ends}, "only a token says that"
