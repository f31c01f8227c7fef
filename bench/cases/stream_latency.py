"""How long a message takes to its row, and how much of that is ours."""

from __future__ import annotations

from bench.cases.watched import watched
from bench.model import Case, Goal

_MOST = 150.0

CASE: Case = watched(
    "latency",
    title="one message, Kafka → PostgreSQL",
    goals=(Goal(at_most_more=_MOST, said=f"≤ {_MOST:g} ms more than"),),
    unit="ms",
    note="From before a message is sent until another client sees its row: the median of 30 messages, one about every second; "
    "default settings.",
)
