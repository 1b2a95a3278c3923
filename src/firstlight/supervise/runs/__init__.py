"""What is kept of a run: its folder, events and state."""
