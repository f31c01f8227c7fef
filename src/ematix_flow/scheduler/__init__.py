"""The scheduler: its loop as a function, and who carries out what is due."""

from ematix_flow.scheduler.executor_url import executor_from_url
from ematix_flow.scheduler.loop import DispatchFailedEvent, run_scheduler

__all__ = ["DispatchFailedEvent", "executor_from_url", "run_scheduler"]
