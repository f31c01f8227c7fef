"""The retention of run records."""

from __future__ import annotations

import logging
import os
import random
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import ConfigError, FlowError
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog

VARIABLE = "EMATIX_FLOW_RUN_RETENTION_DAYS"
DAYS = 90
_EVERY = 50
_log = logging.getLogger(__name__)


def retention_days() -> int:
    """Return how many days a run record is kept after the run began; 0 keeps it forever."""
    text = os.environ.get(VARIABLE, "").strip()
    if text and not text.isdigit():
        raise ConfigError(
            f"{VARIABLE}={text} is not a number of days", hint=f"give a whole number; it is {DAYS} without"
        )
    return int(text) if text else DAYS


def retire_runs(run_log: RunLog) -> int:
    """Delete the records of runs that are older than the retention; return how many."""
    days = retention_days()
    return run_log.retire_runs(now() - timedelta(days=days)) if days else 0


def retire_runs_occasionally(run_log: RunLog) -> None:
    """Delete old run records after one of 50 runs on average, so that the cost is not added to every run."""
    if random.randrange(_EVERY):  # noqa: S311  not a secret
        return
    try:
        retire_runs(run_log)
    except FlowError as error:
        _log.warning("old runs stay in the run log: %s", mask(error.what))
