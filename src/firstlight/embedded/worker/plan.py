"""What a rank is asked to load and run, and how that is written on its command line."""

import argparse
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """Zero, empty and "auto" mean "choose for me". The fields are named as the options of the server are."""

    model: Path
    dtype: str = "auto"
    threads: int = 0
    max_model_len: int = 0
    max_num_seqs: int = 16
    kv_tokens: int = 0
    drafter: str = ""
    draft_tokens: int = 3
    speculate: str = "auto"
    tp: int = 1
    wait_deadline_s: float = 30.0

    def words(self) -> list[str]:
        """The plan as options of `python -m firstlight.embedded.worker`."""
        return [word for name, value in self._items() for word in (_flag(name), str(value))]

    def _items(self) -> Iterable[tuple[str, object]]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `Plan.words` writes."""
    for field in fields(Plan):
        kind = {"int": int, "float": float, "Path": Path}.get(str(getattr(field.type, "__name__", field.type)), str)
        parser.add_argument(_flag(field.name), type=kind, default=field.default, required=field.default is MISSING)


def plan_of(options: argparse.Namespace) -> Plan:
    """The plan that `words` wrote."""
    return Plan(**{field.name: getattr(options, field.name.removesuffix("_s")) for field in fields(Plan)})


def _flag(name: str) -> str:
    return "--" + name.removesuffix("_s").replace("_", "-")
