"""Executors from their addresses."""

from ematix_flow.executors.protocol import DispatchError
from ematix_flow.executors.urls import executor_from_url

__all__ = ["DispatchError", "executor_from_url"]
