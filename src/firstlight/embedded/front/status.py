"""What the server says of itself: the document behind /health."""

import time
from typing import Any

from firstlight.embedded.front.crew import Crew, Member
from firstlight.embedded.front.link import Link
from firstlight.embedded.messages import Stamp


class Status:
    """Looks at the workers and at the front's own start, and puts it into words."""

    def __init__(self, crew: Crew, link: Link, model_name: str, began: float) -> None:
        self._crew = crew
        self._link = link
        self._model_name = model_name
        self._began = began
        self.text_loaded = False

    @property
    def ready(self) -> bool:
        return self.text_loaded and self._crew.ready is not None and not self._link.failure

    def health(self) -> tuple[int, dict[str, Any]]:
        """HTTP status and document: starting, ready, stalled or failed."""
        link = self._link
        common = {
            "model": self._model_name,
            "elapsed_s": round(time.monotonic() - self._began, 3),
            "in_flight": link.in_flight,
            "running": link.running,
            "waiting": link.in_flight - link.running,
            "ranks": [_rank(member) for member in self._crew.members],
        }
        if link.failure:
            return 503, {"status": "failed", "reason": link.failure, **common}
        if not self.ready:
            return 503, {"status": "starting", **self._phase(), **common}
        if reason := self._crew.stall(link.in_flight):
            return 503, {"status": "stalled", "reason": reason, **common}
        return 200, {"status": "ready", **common}

    def _phase(self) -> dict[str, Any]:
        """Rank 0's phase; once it is ready, what the front itself still does: read the tokenizer."""
        if self._crew.ready is not None:
            return {"phase": "config", "progress": None}
        stamp = self._crew.first.stamp
        return {"phase": stamp.phase, "progress": _progress(stamp)}


def _rank(member: Member) -> dict[str, Any]:
    stamp = member.stamp
    return {
        "rank": member.rank,
        "pid": member.process.pid,
        "phase": stamp.phase,
        "progress": _progress(stamp),
        "stamp_age_s": round(member.stamp_age_s, 3),
        "steps": max(stamp.steps, member.shared_stamp.steps),
        "doing": member.doing(),
    }


def _progress(stamp: Stamp) -> dict[str, Any] | None:
    return {"done": stamp.done, "total": stamp.total, "unit": stamp.unit} if stamp.total else None
