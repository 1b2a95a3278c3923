"""The server's log: lines as captured, what they say of phases and progress."""
