"""How much memory the embedded engine needs beside weights and KV cache, all its processes together: up to 600 MB.

Counted are proportional shares (a page that two processes map counts half in each), so that what ranks share counts
once, after one long prompt and a batch. Weights count with the bytes of their files, the KV cache with all tokens it
was asked to hold; it takes more, since the kernel may give it memory in pages of 2 MB. The peak is the sum of each
process's own peak of resident memory, loading included, so that shared pages count more than once in it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from firstlight.embedded.demo.demo_model import ensure_demo_model, progress_on
from pairs import machine
from processes import Memory, memory, resident_of_reserves
from prompts import fresh_prompt
from servers import Server, embedded

LONG, SHORT, TOGETHER, ANSWER = 1000, 16, 16, 32
"""Tokens of the long prompt and of the short ones, how many short ones at once, and tokens of each answer."""
MB = 1e6
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def fill(server: Server) -> int:
    """Ask; returns how many tokens the KV cache was asked to hold."""
    server.ask(fresh_prompt(LONG), ANSWER)
    server.batch_per_s([fresh_prompt(SHORT) for _ in range(TOGETHER)], ANSWER)
    return LONG + ANSWER + TOGETHER * (SHORT + ANSWER)


def kv_bytes_of_token(model: Path) -> int:
    """A key and a value for each layer, in the numbers of the model."""
    config = json.loads((model / "config.json").read_text())
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    number = BYTES[config.get("dtype") or config.get("torch_dtype", "bfloat16")]
    return int(2 * config["num_hidden_layers"] * heads * head * number)


def weights_bytes(model: Path) -> int:
    return sum(path.stat().st_size for path in model.glob("*.safetensors"))


def report(processes: dict[str, Memory], weights: float, kv: float, kv_resident: float) -> None:
    for name, one in processes.items():
        print(f"    {name:<18} resident {one.rss / MB:6.0f} MB, its share {one.pss / MB:6.0f} MB, ", end="")
        print(f"of that files {one.pss_of_files / MB:6.0f} MB, peak {one.peak_rss / MB:6.0f} MB")
    share = sum(one.pss for one in processes.values())
    peak = sum(one.peak_rss for one in processes.values())
    print(f"    together {share / MB:.0f} MB; without weights ({weights / MB:.0f}) and KV ({kv / MB:.0f}): ", end="")
    print(f"{(share - weights - kv) / MB:.0f} MB; at the peak {(peak - weights - kv) / MB:.0f} MB")
    print(f"    without weights and all that the KV cache takes ({kv_resident / MB:.0f}): ", end="")
    print(f"{(share - weights - kv_resident) / MB:.0f} MB\n", flush=True)


def measure(name: str, model: Path, options: Sequence[str]) -> None:
    with embedded(name, model, *options) as server:
        tokens = fill(server)
        pids = sorted(server.pids)
        processes = {f"{comm(pid)} {pid}": memory(pid) for pid in pids}
        kept = sum(map(resident_of_reserves, pids))
        report(processes, weights_bytes(model), tokens * kv_bytes_of_token(model), kept)


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="*", type=Path, help="model folders (default: the demo model, in bf16 and in 4-bit)"
    )
    parser.add_argument("--tp", default="1,3", help="numbers of ranks (default: %(default)s)")
    options = parser.parse_args()
    print(__doc__)
    print(machine())
    show = progress_on(sys.stderr)
    for model in options.models or [ensure_demo_model(show), ensure_demo_model(show, quantised=True)]:
        for ranks in options.tp.split(","):
            measure(f"{model.name}, ranks: {ranks}", model, ("--tp", ranks))


if __name__ == "__main__":
    main()
