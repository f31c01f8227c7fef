"""Whether a user typed the running command: only then may it leave an engine running."""

from __future__ import annotations

import os
import sys

_state = {"is_interactive": False}


def detect() -> None:
    """Record whether this command writes to a terminal outside of continuous integration."""
    _state["is_interactive"] = sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("CI")


def is_interactive() -> bool:
    """Return the result of `detect`; False in programs that use the package as a library."""
    return _state["is_interactive"]
