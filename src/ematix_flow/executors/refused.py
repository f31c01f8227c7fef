"""The error of an executor that no retry would resolve."""

from __future__ import annotations

from ematix_flow.executors.protocol import DispatchError


class DispatchRefused(DispatchError):
    """Raised when a worker could not be started and a retry cannot help without a change by the user."""

    retryable = False
