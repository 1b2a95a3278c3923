"""What is asked of the server over HTTP, and what its answers mean."""
