"""The public functions of the scheduler: its loop, and executors by address."""

from ematix_flow.scheduler.executor_url import executor_from_url
from ematix_flow.scheduler.loop import DispatchFailedEvent, run_scheduler

__all__ = ["DispatchFailedEvent", "executor_from_url", "run_scheduler"]
