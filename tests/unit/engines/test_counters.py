"""Progress counters in log lines, and text that only looks like one."""

import pytest

from firstlight.engines.counters import counter


@pytest.mark.parametrize(
    ("message", "done", "total", "unit"),
    [
        ("Loading safetensors checkpoint shards:   0% Completed | 0/1 [00:00<?, ?it/s]", 0, 1, "shards"),
        ("Multi-thread loading shards: 100% Completed | 64/64 [00:01<00:00,  1.25s/it]", 64, 64, "shards"),
        ("Capturing batches (bs=4 avail_mem=9.16 GB):  75%|███████▌  | 3/4 [00:01<00:00,  2.1it/s]", 3, 4, "batches"),
        ("Capturing CUDA graphs (decode, FULL):  12%|█▏        | 2/16 [00:01<00:09,  1.4it/s]", 2, 16, "graphs"),
        ("Capturing num tokens (num_tokens=64):  12%|█▏        | 2/16 [00:01<00:09,  1.4it/s]", 2, 16, "graphs"),
        ("DeepGEMM warmup:  12%|█▏        | 2/16 [00:01<00:09,  1.4it/s]", 2, 16, "steps"),
        ("  5%|▌         | 1/20 [00:00<?, ?it/s]", 1, 20, "steps"),
        ("model.safetensors:  20%|██        | 1.2G/6.0G [00:10<00:40, 120MB/s]", 1.2e9, 6e9, "bytes"),
        ("model.safetensors:  20%|██        | 512k/2.56M [00:10<00:40, 50.0kB/s]", 512e3, 2.56e6, "bytes"),
        ("Fetching 12 files:  50%|█████     | 6/12 [00:00<00:00,  1.35it/s]", 6, 12, "files"),
        ("copied 1.5/4.5 GiB", 1.5 * 2**30, 4.5 * 2**30, "bytes"),
        ("downloaded 100 MB / 2 GB", 100e6, 2e9, "bytes"),
        ("loaded 3/64 shards", 3, 64, "shards"),
        ("loaded 3 of 64 layers", 3, 64, "layers"),
        ("progress phase=weights done=1024 total=4096 unit=bytes", 1024, 4096, "bytes"),
    ],
)
def test_counters(message: str, done: float, total: float, unit: str) -> None:
    found = counter(message)
    assert found is not None
    assert (found.done, found.total, found.unit) == (pytest.approx(done), pytest.approx(total), unit)


@pytest.mark.parametrize(
    "message",
    [
        'INFO:     127.0.0.1:35596 - "GET /v1/models HTTP/1.1" 200 OK',
        "Explicitly set (2.0/11.71) GiB for KV cache on node 0.",
        "5it [00:01,  4.9it/s]",
        "CPU KV cache usage: 0.1%, Prefix cache hit rate: 0.0%",
        "Loading safetensors checkpoint shards:   0% Completed | 7/3 [00:00<?, ?it/s]",
        "progress 0/0 files",
        "2/3 of users",
        "see /docs/1/2 files",
        "at 11/29 12:42",
        "8/8 graphs-are-nice in v1/2",
        "%|%|%|%|",
        "",
    ],
)
def test_what_is_no_counter(message: str) -> None:
    assert counter(message) is None
