"""The run log that is used when nobody names one."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask
from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.urls import from_url

URL_VARIABLE = "EMATIX_FLOW_RUN_LOG_URL"
PATH_VARIABLE = "EMATIX_FLOW_RUN_LOG_PATH"

_open: dict[str, RunLog] = {}


def default_address() -> str:
    """EMATIX_FLOW_RUN_LOG_URL, else EMATIX_FLOW_RUN_LOG_PATH, else a file in the user's home."""
    own = str(Path.home() / ".ematix-flow" / "run_log.db")
    return os.environ.get(URL_VARIABLE) or os.environ.get(PATH_VARIABLE) or own


def default_run_log() -> RunLog | None:
    """The run log at the default address; when it cannot be opened, a warning and None: the work matters more."""
    address = default_address()
    if address not in _open:
        try:
            _open[address] = from_url(address)
        except FlowError as error:
            warnings.warn(mask(f"{error.what}; continuing without history"), UserWarning, stacklevel=2)
            return None
    return _open[address]
