"""The run log in Azure Blob Storage."""

from ematix_flow.runlog.azure_blob import AzureBlobRunLog

__all__ = ["AzureBlobRunLog"]
