"""What a stream costs while nothing comes."""

from __future__ import annotations

from bench.cases.watched import watched
from bench.model import Case, Goal

_MOST = 5.0

CASE: Case = watched(
    "idle",
    title="a quiet stream, Kafka → PostgreSQL",
    goals=(Goal(at_most=_MOST, said=f"≤ {_MOST:g} % of a core"),),
    unit="% of a core",
    note="Processor time of all processes of the stream over 30 seconds without a message, 10 seconds after the last one; "
    "default settings.",
)
