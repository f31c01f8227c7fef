"""The choice of the operator for a declared window."""

from __future__ import annotations

from ematix_flow.declare.streams.parts import Window
from ematix_flow.engine.streams.stateful.sessions import Sessions
from ematix_flow.engine.streams.stateful.windows import Windows


def operator_of(window: Window) -> Windows | Sessions:
    """Return the operator of a window."""
    return Sessions(window) if window.kind == "session" else Windows(window)
