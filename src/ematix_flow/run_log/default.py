"""The run log that is used when the user names none."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

from ematix_flow.foundation.errors import FlowError, Unreachable
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.urls import from_url

URL_VARIABLE = "EMATIX_FLOW_RUN_LOG_URL"
PATH_VARIABLE = "EMATIX_FLOW_RUN_LOG_PATH"

AGAIN_SECONDS = 60.0

_open: dict[str, RunLog] = {}
_unreachable_until: dict[str, float] = {}


def default_address() -> str:
    """Return EMATIX_FLOW_RUN_LOG_URL, else EMATIX_FLOW_RUN_LOG_PATH, else a file in the user's home."""
    own = str(Path.home() / ".ematix-flow" / "run_log.db")
    return os.environ.get(URL_VARIABLE) or os.environ.get(PATH_VARIABLE) or own


def default_run_log() -> RunLog | None:
    """Return the run log at the default address; if it cannot be opened, warn and return None, so that runs go on."""
    address = default_address()
    if address not in _open:
        if time.monotonic() < _unreachable_until.get(address, 0.0):
            return None  # warned already; a program with many runs must not wait for a timeout in each
        try:
            _open[address] = from_url(address)
        except FlowError as error:
            if isinstance(error, Unreachable):
                _unreachable_until[address] = time.monotonic() + AGAIN_SECONDS
            warnings.warn(mask(f"{error.what}; continuing without history"), UserWarning, stacklevel=2)
            return None
    return _open[address]
