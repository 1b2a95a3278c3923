"""The only one who asks GPU drivers: cheaply while a server is watched, and once in full for a look."""

from firstlight.gpus.asking import Told, ask, look
from firstlight.gpus.events import with_xids, xids

__all__ = ["Told", "ask", "look", "with_xids", "xids"]
