"""The run log in S3."""

from ematix_flow.runlog.s3 import S3RunLog

__all__ = ["S3RunLog"]
