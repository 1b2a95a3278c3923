"""Find the culprit: the smallest set of options that still shows the same stall, in as few launches as possible."""
