"""The embedded engine: a small and right server of Llama-family models."""
