"""The product's cache folder; its content can be created again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_home() -> Path:
    """Return EMATIX_FLOW_CACHE, else the product's folder in the user's cache."""
    own = os.environ.get("EMATIX_FLOW_CACHE")
    if own:
        return Path(own).expanduser()
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "ematix-flow"
