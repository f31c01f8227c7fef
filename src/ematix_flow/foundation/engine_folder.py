"""The folder of the records of warm engines; in a module of its own, because a handed-over command imports no other."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "EMATIX_FLOW_ENGINE_DIR"


def engine_folder() -> Path:
    """Return EMATIX_FLOW_ENGINE_DIR, else a folder in the user's home."""
    own = os.environ.get(VARIABLE)
    return Path(own) if own else Path.home() / ".ematix-flow" / "engine"
