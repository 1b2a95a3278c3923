"""firstlight: from "it loaded" to the first verified token, or a plain statement of who is stuck where."""

__version__ = "0.1.0"
