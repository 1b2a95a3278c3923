"""Ways to be slow and healthy: each moves by one kind of signal and shows nothing else of its work."""
