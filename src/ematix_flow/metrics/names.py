"""The definition of every metric, from which dashboards, alert rules, sinks and documentation take the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

COUNTER, HISTOGRAM, GAUGE = "counter", "histogram", "gauge"
RUN_BUCKETS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 10800.0)
STEP_BUCKETS = (0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


@dataclass(frozen=True)
class Metric:
    """One metric: its name, kind, labels in order, and description."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    says: str
    unit: str = ""
    buckets: tuple[float, ...] = ()


RUNS = Metric("pipeline_runs_total", "counter", ("pipeline", "outcome"), "Runs that ended, by how they ended.")
DURATION = Metric(
    "pipeline_duration_seconds", "histogram", ("pipeline",), "How long a run took.", unit="s", buckets=RUN_BUCKETS
)
ATTEMPT = Metric("pipeline_retry_attempt", "gauge", ("pipeline",), "Failures in a row; 0 when the last run succeeded.")
STEP_DURATION = Metric(
    "pipeline_step_duration_seconds",
    "histogram",
    ("pipeline", "step"),
    "How long a step of a run took.",
    unit="s",
    buckets=STEP_BUCKETS,
)
ROWS = Metric("pipeline_rows_total", "counter", ("pipeline", "direction"), "Rows read (in), written (out), rejected.")
BYTES = Metric(
    "pipeline_bytes_total", "counter", ("pipeline", "direction"), "Bytes read (in) and written (out).", unit="By"
)
WATERMARK_LAG = Metric(
    "pipeline_watermark_lag_seconds",
    "gauge",
    ("pipeline",),
    "How far the watermark lay behind the clock when the last run ended.",
    unit="s",
)
LAST_SUCCESS = Metric(
    "pipeline_last_success_timestamp_seconds",
    "gauge",
    ("pipeline",),
    "When a run last succeeded, in seconds since 1970.",
    unit="s",
)

METRICS = (RUNS, DURATION, ATTEMPT, STEP_DURATION, ROWS, BYTES, WATERMARK_LAG, LAST_SUCCESS)
OUTCOMES = ("success", "failure", "skipped", "dispatched", "dispatch_failed", "lease_expired", "tick_error")
DIRECTIONS = ("in", "out", "rejected")
SCHEDULER = "_scheduler"
"""The pipeline label of the scheduler's own counts."""
