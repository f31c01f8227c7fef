"""What every run log offers."""

from ematix_flow.runlog.protocol import ClaimResult, ExpiredClaim, RunLog

__all__ = ["ClaimResult", "ExpiredClaim", "RunLog"]
