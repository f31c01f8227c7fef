"""The scheduler: decides what is due, fires it once, and hands runs to an executor."""

from typing import TYPE_CHECKING

from ematix_flow.foundation.names import lazy_exports

if TYPE_CHECKING:
    from ematix_flow.executors.urls import executor_from_url
    from ematix_flow.scheduler.loop import DispatchFailedEvent, run_scheduler

__all__ = [
    "DispatchFailedEvent",
    "executor_from_url",
    "run_scheduler",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "DispatchFailedEvent": "ematix_flow.scheduler.loop",
        "executor_from_url": "ematix_flow.executors.urls",
        "run_scheduler": "ematix_flow.scheduler.loop",
    },
)
