"""Alerts as lines on stderr, or on any stream."""

from __future__ import annotations

import sys
from typing import TextIO

from ematix_flow.alerters.event import AlertEvent
from ematix_flow.alerters.text import alert_lines
from ematix_flow.foundation.redact import mask


class StdoutAlerter:
    """An alerter that writes `[ALERT]` lines to stderr or a given stream; stdout is reserved for data."""

    address = "stdout://"

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def notify(self, event: AlertEvent) -> None:
        """Write the event."""
        stream = self._stream or sys.stderr
        stream.write("".join(f"[ALERT] {mask(line)}\n" for line in alert_lines(event)))
        stream.flush()

    def __repr__(self) -> str:
        return "StdoutAlerter()"
