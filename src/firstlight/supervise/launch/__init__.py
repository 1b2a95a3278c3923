"""Start a server under a guard, own it, and end it."""
