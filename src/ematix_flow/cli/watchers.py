"""Lets alerters, metrics, traces and lineage watch the runs of a command, when anybody asked for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.cli.output import Output
from ematix_flow.declare.pipeline import PipelineSpec

if TYPE_CHECKING:
    from ematix_flow.engine.result import Listener, Result
    from ematix_flow.observe.watching import Observers
    from ematix_flow.runlog.protocol import RunLog

_VARIABLES = (
    "EMATIX_FLOW_ALERTERS", "EMATIX_FLOW_METRICS", "EMATIX_FLOW_METRICS_URL", "EMATIX_FLOW_TRACES", "EMATIX_FLOW_LINEAGE",
)  # fmt: skip
_TABLES = ("alerters", "metrics", "traces", "lineage")
_RECENT = 200


@dataclass(frozen=True)
class WatchWishes:
    """What the options of a command say about those who watch."""

    alerters: tuple[str, ...] = ()
    metrics: str | None = None
    traces: str | None = None
    lineage: str | None = None


class Watchers:
    """Whoever watches the runs of one command; nobody, unless somebody was named."""

    def __init__(self, wishes: WatchWishes, output: Output, run_log: RunLog | None, run_log_option: str) -> None:
        self._observers = _observers(wishes, output, run_log, run_log_option) if _is_asked_for(wishes) else None

    def run(self, spec: PipelineSpec, listener: Listener, work: Callable[[Listener, str | None], Result]) -> Result:
        """One run, watched; `work` takes the listener and the run's id."""
        if self._observers is None:
            return work(listener, None)
        with self._observers.watching(spec) as watch:

            def heard(event: object) -> None:
                watch.listener(event)  # type: ignore[arg-type]
                listener(event)  # type: ignore[arg-type]

            result = work(heard, watch.run_id)
            watch.succeeded(result.to_dict())
        return result

    def close(self) -> None:
        """Send what is left."""
        if self._observers is not None:
            self._observers.close()


def _is_asked_for(wishes: WatchWishes) -> bool:
    """By an option, a variable, a file, or by the user's own module."""
    if wishes != WatchWishes() or any(os.environ.get(name) for name in _VARIABLES):
        return True
    if "ematix_flow.observe" in sys.modules:
        return True
    from ematix_flow.config import files

    found = [file.data for file in (files.read_project(), files.read_user()) if file is not None]
    return any(table in data for data in found for table in _TABLES)


def _observers(wishes: WatchWishes, output: Output, run_log: RunLog | None, run_log_option: str) -> Observers:
    from ematix_flow.observe.alerts.outages import from_history
    from ematix_flow.observe.settings import Wishes, observers

    known = from_history(run_log.list_runs(limit=_RECENT)[0]) if run_log is not None else None
    said = Wishes(wishes.alerters, wishes.metrics, wishes.traces, wishes.lineage)
    return observers(said, warn=output.warn, known=known, run_log_option=run_log_option)
