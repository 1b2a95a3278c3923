"""The server's processes: who they are, how they end, what they leave behind."""
