"""The requested observers: options, then the environment, then the project's or the user's file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ematix_flow.alerters.dispatch import Alerts
from ematix_flow.alerters.outages import Outages
from ematix_flow.alerters.settings import requested_alerters
from ematix_flow.config import files
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.isolation import WarnOnce
from ematix_flow.lineage import emitters
from ematix_flow.lineage.events import NAMESPACE
from ematix_flow.metrics import urls as metrics_urls
from ematix_flow.metrics.sinks import NullSink
from ematix_flow.observe import tracing
from ematix_flow.observe.observers import Observers

METRICS_VARIABLES = ("EMATIX_FLOW_METRICS", "EMATIX_FLOW_METRICS_URL")
TRACES_VARIABLE, LINEAGE_VARIABLE = "EMATIX_FLOW_TRACES", "EMATIX_FLOW_LINEAGE"
_T = TypeVar("_T")
_KEYS = {"metrics": ("url",), "traces": ("url",), "lineage": ("url", "namespace")}


@dataclass(frozen=True)
class ObserverOptions:
    """The observer options of a command."""

    alerters: Sequence[str] = ()
    metrics: str | None = None
    traces: str | None = None
    lineage: str | None = None


def requested_observers(options: ObserverOptions | None = None, *, warn: Callable[[str], None], known: Outages | None = None,
              run_log_option: str = "") -> Observers:  # fmt: skip
    """Return all requested observers.

    An invalid address of alerters, metrics or lineage causes a warning, because the run matters more; one of traces is
    an error. `known` are the outages that were alerted before.
    """
    chosen = options or ObserverOptions()
    lineage = _setting("lineage")
    metrics_url = chosen.metrics or _from_environment(*METRICS_VARIABLES) or _setting("metrics").get("url")
    lineage_url = chosen.lineage or _from_environment(LINEAGE_VARIABLE) or lineage.get("url")
    traces = chosen.traces or _from_environment(TRACES_VARIABLE) or _setting("traces").get("url")
    return Observers(
        alerts=Alerts(requested_alerters(chosen.alerters, warn=warn), known=known, report=warn),
        metrics=_or_warn(metrics_urls.from_url, metrics_url, "metrics", warn) or NullSink(),
        tracer=tracing.configure_tracer_from_url(traces) if traces else tracing.get_global_tracer(),
        lineage=_or_warn(emitters.from_url, lineage_url, "lineage", warn),
        namespace=str(lineage.get("namespace") or os.environ.get("OPENLINEAGE_NAMESPACE") or NAMESPACE),
        run_log_option=run_log_option,
        complaints=WarnOnce(warn),
    )


def _from_environment(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _or_warn(make: Callable[[str], _T], url: str | None, what: str, warn: Callable[[str], None]) -> _T | None:
    try:
        return make(url) if url else None
    except FlowError as error:
        warn(f"{error.what}; continuing without {what}" + (f"; {error.hint}" if error.hint else ""))
        return None


def _setting(table: str) -> Mapping[str, Any]:
    """Return `[metrics]`, `[traces]` or `[lineage]` of the project's file, else of the user's."""
    for file in files.configuration_files():
        if isinstance(file.data.get(table), str):
            return {"url": file.data[table]}
        entry = file.table(table, hint=f'write [{table}] and below it url = "…"')
        if entry is not None:
            file.check_keys(entry, _KEYS[table], table)
            return entry
    return {}
