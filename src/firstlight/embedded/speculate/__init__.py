"""Speculation: cheap guesses at the next tokens, checked by the model in one pass, without changing what it says."""
