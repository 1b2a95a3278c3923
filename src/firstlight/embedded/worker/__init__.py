"""One rank: the working thread, what it schedules and what it runs."""
