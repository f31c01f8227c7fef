"""Executors from their addresses."""

from ematix_flow.executors.urls import executor_from_url

__all__ = ["executor_from_url"]
