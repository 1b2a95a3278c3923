"""Small files of /sys, read as text."""

from pathlib import Path


def text(file: Path) -> str:
    """What a file of /sys says, without white space around it; empty where there is none, or it may not be read."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
