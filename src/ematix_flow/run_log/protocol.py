"""The interface of every run log."""

from ematix_flow.runlog.protocol import ClaimResult, ExpiredClaim, RunLog

__all__ = ["ClaimResult", "ExpiredClaim", "RunLog"]
