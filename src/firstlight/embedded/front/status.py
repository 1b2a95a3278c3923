"""What the server says of itself: the documents behind /health and /metrics."""

import time
from typing import Any

from firstlight.embedded.front.link import Link
from firstlight.embedded.messages import Stamp


class Status:
    """Looks at the link and at the front's own start, and puts it into words."""

    def __init__(self, link: Link, model_name: str, began: float) -> None:
        self._link = link
        self._model_name = model_name
        self._began = began
        self.text_loaded = False

    @property
    def ready(self) -> bool:
        return self.text_loaded and self._link.ready is not None and not self._link.failure

    def health(self) -> tuple[int, dict[str, Any]]:
        """HTTP status and document: starting, ready, stalled or failed."""
        link = self._link
        common = {
            "model": self._model_name,
            "elapsed_s": round(time.monotonic() - self._began, 3),
            "in_flight": link.in_flight,
            "running": link.running,
            "waiting": link.in_flight - link.running,
            "ranks": [self._rank()],
        }
        if link.failure:
            return 503, {"status": "failed", "reason": link.failure, **common}
        if not self.ready:
            return 503, {"status": "starting", **self._phase(), **common}
        if reason := link.stall():
            return 503, {"status": "stalled", "reason": reason, **common}
        return 200, {"status": "ready", **common}

    def metrics(self) -> str:
        """Prometheus text format, version 0.0.4."""
        link = self._link
        rows = [
            ("num_requests_running", "gauge", "Requests that have a slot.", link.running),
            ("num_requests_waiting", "gauge", "Requests that wait for a slot.", link.in_flight - link.running),
            ("prompt_tokens_total", "counter", "Tokens of accepted prompts.", link.prompt_tokens),
            ("generation_tokens_total", "counter", "Tokens generated.", link.generated_tokens),
        ]
        lines = []
        for name, kind, meaning, value in rows:
            lines += [f"# HELP firstlight:{name} {meaning}", f"# TYPE firstlight:{name} {kind}"]
            lines.append(f"firstlight:{name} {value}")
        age = "firstlight:worker_stamp_age_seconds"
        lines += [f"# HELP {age} Time since the worker's working thread showed progress.", f"# TYPE {age} gauge"]
        lines.append(f'{age}{{rank="{link.worker.rank}"}} {link.stamp_age_s():.3f}')
        return "\n".join(lines) + "\n"

    def _phase(self) -> dict[str, Any]:
        """The worker's phase; once it is ready, what the front itself still does: read the tokenizer."""
        if self._link.ready is not None:
            return {"phase": "config", "progress": None}
        return {"phase": self._link.stamp.phase, "progress": _progress(self._link.stamp)}

    def _rank(self) -> dict[str, Any]:
        stamp = self._link.stamp
        return {
            "rank": stamp.rank,
            "pid": self._link.worker.pid,
            "phase": stamp.phase,
            "progress": _progress(stamp),
            "stamp_age_s": round(self._link.stamp_age_s(), 3),
            "steps": stamp.steps,
        }


def _progress(stamp: Stamp) -> dict[str, Any] | None:
    return {"done": stamp.done, "total": stamp.total, "unit": stamp.unit} if stamp.total else None
