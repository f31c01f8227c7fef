"""Where warm engines are written down; known here, because a command that is handed over imports nothing else."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "EMATIX_FLOW_ENGINE_DIR"


def engine_folder() -> Path:
    """EMATIX_FLOW_ENGINE_DIR, else a folder in the user's home."""
    own = os.environ.get(VARIABLE)
    return Path(own) if own else Path.home() / ".ematix-flow" / "engine"
