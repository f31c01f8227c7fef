"""The answer of an executor that no second try would change."""

from __future__ import annotations

from ematix_flow.executors.protocol import DispatchError


class DispatchRefused(DispatchError):
    """A worker could not be started, and somebody must change something first."""

    retryable = False
