"""From launch to the first verified token: the embedded engine against vLLM on the CPU with --enforce-eager.

Both are brought up and judged by `firstlight up --once`, in turns, with warm caches. vLLM serves the demo model, and
the embedded engine each folder that is named, or else the demo model in bf16 and in 4-bit. The aim: the embedded
engine within 5 s, and at least 5 times sooner. FIRSTLIGHT_VLLM_PYTHON names a Python that has vLLM.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from firstlight.embedded.demo.demo_model import ensure_demo_model, progress_on
from pairs import compare, free_port
from servers import VLLM_ENVIRONMENT, VLLM_PYTHON, has_vllm

FIRSTLIGHT = Path(sys.executable).with_name("firstlight")
LIMIT_S = 600


def first_token_s(*server: str) -> float:
    """Seconds from launch to the first token, from the verdict of one attempt."""
    done = subprocess.run(
        [FIRSTLIGHT, "up", "--once", "--json", *server],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | VLLM_ENVIRONMENT,
    )
    lines = done.stdout.splitlines()
    report = json.loads(lines[-1])["report"] if lines else {}
    if not report.get("first_token"):
        sys.exit(f"no first token (exit code {done.returncode}): {report.get('headline', done.stderr)}")
    return float(report["first_token"]["after_launch_s"])


def vllm_command(model: Path) -> Sequence[str]:
    module = ("-m", "vllm.entrypoints.openai.api_server")
    port = ("--port", str(free_port()))
    return ("--", VLLM_PYTHON, *module, "--model", str(model), *port, "--enforce-eager", "--max-model-len", "2048")


print(__doc__)
if not has_vllm():
    sys.exit(0)
show = progress_on(sys.stderr)
demo = ensure_demo_model(show)
for folder in sys.argv[1:] or [str(demo), str(ensure_demo_model(show, quantised=True))]:
    compare(
        f"embedded engine, {Path(folder).name}",
        partial(first_token_s, folder),
        "vLLM on the CPU, --enforce-eager",
        lambda: first_token_s(*vllm_command(demo)),
        times=3,
    )
