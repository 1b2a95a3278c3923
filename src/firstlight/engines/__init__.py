"""What is known of each server: how it is started, what its log says, what its processes are called.

One engine is one TOML file in this folder; the code beside it knows no engine by name.
"""

from firstlight.engines.command import recognise
from firstlight.engines.profile import EngineProfile, profile, profile_for, revealed
from firstlight.engines.ranks import Sizes
from firstlight.engines.titles import Identity
from firstlight.engines.typed import typed_options

__all__ = ["EngineProfile", "Identity", "Sizes", "profile", "profile_for", "recognise", "revealed", "typed_options"]
