"""What ranks have launched and finished together, by torch's flight recorder and by NCCL's own service."""

from firstlight.evidence.collectives.dump_pipes import ask_for_dumps, dump_pipes
from firstlight.evidence.collectives.flight import flight_folders, flight_records
from firstlight.evidence.collectives.ras import communicators, is_safe_to_ask, ras_address

__all__ = [
    "ask_for_dumps",
    "communicators",
    "dump_pipes",
    "flight_folders",
    "flight_records",
    "is_safe_to_ask",
    "ras_address",
]
