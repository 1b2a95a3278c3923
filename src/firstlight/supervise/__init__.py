"""Start and watch: launch, phases, liveness, watch, verify, stop, journal."""
