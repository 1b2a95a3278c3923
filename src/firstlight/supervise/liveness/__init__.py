"""Moving, slow, quiet or stalled: what is measured every second, and what it means."""
