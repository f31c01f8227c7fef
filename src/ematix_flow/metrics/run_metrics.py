"""Conversion of a run record to metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from ematix_flow.metrics.sinks import MetricsSink, Sink
from ematix_flow.metrics.step_times import TimedStep
from ematix_flow.run_log.records import RunRecord

_WRITTEN = ("rows_inserted", "rows_updated", "rows_closed", "rows_deleted")


def record_run(sink: MetricsSink, record: RunRecord, *, steps: Sequence[TimedStep] = ()) -> None:
    """Record the metrics of one run that has ended."""
    succeeded = record.status == "succeeded"
    name = record.pipeline
    sink.inc_runs(name, "success" if succeeded else "failure")
    if record.duration_ms is not None:
        sink.observe_duration(name, record.duration_ms / 1000)
    sink.set_attempt(name, 0 if succeeded else record.attempt)
    if not isinstance(sink, Sink):  # a user-defined sink, which may have only the methods above
        return
    for step, seconds in [(step.name, step.seconds) for step in steps] or _recorded_steps(record.extras):
        sink.observe_step(name, step, seconds)
    ended = record.finished_at or record.started_at
    if succeeded:
        sink.set_last_success(name, ended.timestamp())
    _record_targets(sink, name, record.extras, ended)


def _record_targets(sink: Sink, name: str, extras: Mapping[str, Any], ended: datetime) -> None:
    targets = listed_mappings(extras.get("targets"))
    if not targets:
        return
    # Every target of a fan-out records the rows of the one common read.
    for direction, add, words, fold in (
        ("in", sink.add_rows, ("rows_read",), max),
        ("out", sink.add_rows, _WRITTEN, sum),
        ("rejected", sink.add_rows, ("rows_rejected",), sum),
        ("in", sink.add_bytes, ("bytes_read",), max),
        ("out", sink.add_bytes, ("bytes_staged",), sum),
    ):
        counted = [_number(target, words) for target in targets]
        known = [count for count in counted if count is not None]
        if known:
            add(name, direction, fold(known))
    lags = [lag for target in targets if (lag := watermark_lag(target.get("watermark"), ended)) is not None]
    if lags:
        sink.set_watermark_lag(name, max(lags))


def _recorded_steps(extras: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the steps of a run record, for a run whose progress was not observed."""
    steps = listed_mappings(extras.get("steps"))
    return [(str(step.get("step")), float(step.get("seconds") or 0)) for step in steps]


def listed_mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings in a list of a run record; records of other versions may have none."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, Sequence) else []


def watermark_lag(watermark: object, now: datetime) -> float | None:
    """Return the seconds by which a watermark is behind a moment; None for a watermark that is not a time.

    >>> watermark_lag("2026-01-31 23:59:00", datetime(2026, 2, 1, tzinfo=timezone.utc))
    60.0
    """
    if not isinstance(watermark, str) or watermark.isdigit():
        return None
    try:
        at = datetime.fromisoformat(watermark.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (now - (at if at.tzinfo else at.replace(tzinfo=timezone.utc))).total_seconds()


def _number(target: Mapping[str, Any], words: Sequence[str]) -> int | None:
    numbers = [target[word] for word in words if isinstance(target.get(word), int)]
    return sum(numbers) if numbers else None
