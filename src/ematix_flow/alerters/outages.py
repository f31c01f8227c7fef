"""Deduplication of alerts: one for each outage and kind, until the pipeline works again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from ematix_flow.alerters.event import FAILED, GAVE_UP, QUALITY_FAILED, RECOVERED, AlertEvent
from ematix_flow.alerters.sources import failure_alert, was_notified
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import RunRecord


@dataclass(frozen=True)
class Outage:
    """An outage of a pipeline: its start, the kinds of alerts still open, and all kinds that were sent."""

    since: datetime
    open: tuple[str, ...]
    reported: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "reported", tuple(dict.fromkeys((*self.reported, *self.open))))


Outages = Mapping[str, Outage]
RECENT = 200


def update_outages(known: Outages, event: AlertEvent) -> tuple[dict[str, Outage], AlertEvent | None]:
    """Return the outages after this event, and the event with the start of its outage; None if it is a duplicate.

    >>> from datetime import datetime
    >>> event = AlertEvent("failed", "orders", datetime(2026, 1, 31))
    >>> known, first = update_outages({}, event)
    >>> first is not None, update_outages(known, event)[1]
    (True, None)
    """
    return _outage_ended(known, event) if event.kind == RECOVERED else _outage_begun(known, event)


def _outage_begun(known: Outages, event: AlertEvent) -> tuple[dict[str, Outage], AlertEvent | None]:
    outage = known.get(event.pipeline)
    if outage is None:
        since = event.since or event.timestamp
        return {**known, event.pipeline: Outage(since, (event.kind,))}, replace(event, since=since)
    if event.kind in outage.open:
        return dict(known), None
    after = {**known, event.pipeline: replace(outage, open=(*outage.open, event.kind))}
    return after, replace(event, since=outage.since)


def _outage_ended(known: Outages, event: AlertEvent) -> tuple[dict[str, Outage], AlertEvent | None]:
    outage = known.get(event.pipeline)
    if outage is None:
        return dict(known), None
    left = tuple(kind for kind in outage.open if event.recovers and kind not in event.recovers)
    if left:  # the pipeline runs, but its data is still late or wrong: no recovery yet
        return {**known, event.pipeline: replace(outage, open=left)}, None
    after = {name: other for name, other in known.items() if name != event.pipeline}
    return after, replace(event, since=outage.since, recovers=outage.reported)


def outages_in_run_log(run_log: RunLog | None) -> dict[str, Outage]:
    """Return the outages according to the newest runs of a run log."""
    recent = run_log.list_runs(limit=RECENT)[0] if run_log is not None else []
    # Past windows have an outcome of their own, which does not describe the present state of the pipeline.
    return outages_from_history(record for record in recent if not record.extras.get("backfill"))


def outages_from_history(records: Iterable[RunRecord]) -> dict[str, Outage]:
    """Return the outages according to run records, in any order, for a process that has just started."""
    by_pipeline: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.status in ("failed", "succeeded"):
            by_pipeline.setdefault(record.pipeline, []).append(record)
    outages = {}
    for name, runs in by_pipeline.items():
        outage = _open_outage(sorted(runs, key=lambda run: run.started_at, reverse=True))
        if outage is not None:
            outages[name] = outage
    return outages


def _open_outage(newest_first: Iterable[RunRecord]) -> Outage | None:
    """Return the outage since the last run without an alert; a load with failed checks ends the failures before it."""
    still: list[str] = []
    reported_kinds: list[str] = []
    since: datetime | None = None
    has_loaded = False
    for record in newest_first:
        succeeded = record.status == "succeeded"
        if succeeded and not was_notified(record):
            break
        kind = QUALITY_FAILED if succeeded else failure_alert(record).kind
        kinds = [FAILED, kind] if kind == GAVE_UP else [kind]
        reported_kinds[:0] = kinds
        if not has_loaded:
            still[:0] = kinds
        has_loaded = has_loaded or succeeded
        since = record.finished_at or record.started_at
    if since is None:
        return None
    return Outage(since, tuple(dict.fromkeys(still)), tuple(dict.fromkeys(reported_kinds)))
