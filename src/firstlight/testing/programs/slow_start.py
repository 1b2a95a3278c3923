"""Healthy and slow, in one of many ways (--way), with pauses of random length (--seed); then it serves."""

from collections.abc import Callable

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.slow import alone, together
from firstlight.testing.slow.beats import Beats, beats
from firstlight.testing.stage import options, say

WAYS: dict[str, Callable[[Beats], None]] = {
    way.__name__: way
    for way in (
        alone.reads_weights,
        alone.maps_weights,
        alone.grows,
        alone.fills_shared_memory,
        together.downloads,
        alone.is_fed_by_a_pipe,
        alone.logs,
        alone.counts,
        together.compiles_once,
        together.compiles_many,
        alone.computes,
        alone.computes_in_native_code,
        alone.fills_a_cache,
        together.runs_programs,
        together.one_rank_is_late,
        together.rank_after_rank,
        together.passes_weights_on,
        together.waits_for_a_builder,
        together.downloads_in_threads,
        alone.writes_a_snapshot,
        alone.renames_itself,
    )
}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    say("Starting")
    WAYS[given.way](beats(given.seed, given.seconds))
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
