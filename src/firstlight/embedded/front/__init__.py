"""The front: HTTP, text and the links to the workers; imports no torch."""
