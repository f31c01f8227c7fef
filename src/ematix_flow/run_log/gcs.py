"""The run log in Google Cloud Storage."""

from ematix_flow.runlog.gcs import GcsRunLog

__all__ = ["GcsRunLog"]
