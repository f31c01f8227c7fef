"""The scheduler: who carries out what is due."""

from ematix_flow.scheduler.executor_url import executor_from_url

__all__ = ["executor_from_url"]
