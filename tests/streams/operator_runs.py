"""Drives an operator as a stream does: partials in files, a watermark that never goes back, now and then one part of many."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from ematix_flow.dataplane.spark_session import session_settings
from ematix_flow.streaming.state.operator import AT, BATCH, Operator, WatermarkChange
from tests.streams.sql_session import spark
from tests.streams.window_oracle import Out, Row

SCHEMA = f"{AT} BIGINT, who STRING, bit BIGINT"
SECOND = 1_000_000
FAR = 10_000 * SECOND
SEEDS = strategies.integers(0, 10**6)
few = hypothesis.settings(
    max_examples=2, deadline=None, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)  # fmt: skip
"""Each example is a stream of hundreds of rows."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Batch = Sequence[Row]
_SMALL = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}


@pytest.fixture(scope="module")
def small(spark: Any) -> Iterator[Any]:
    """The session, for many jobs of a few rows."""
    with session_settings(spark, _SMALL):
        yield spark


@dataclass
class OperatorRun:
    """One stream: its state, its watermark, and what it outputs."""

    spark: Any
    operator: Operator
    folder: Path
    lateness: int = 0
    mark: int | None = None
    number: int = -1
    late: int = 0
    parts: list[str] = field(default_factory=list)
    schema: Any = None
    written: int = 0

    def rows(self, given: Batch) -> Any:
        return self.spark.createDataFrame([(row.at, row.key, row.bit) for row in given], SCHEMA)

    def step(self, rows: Any, newest: int | None, *, compact: bool = False, count: bool = False) -> list[Any]:
        """What comes out after a micro-batch."""
        self.number += 1
        before = self.mark
        if before is not None:
            self.late += rows.where(self.operator.late(before)).count() if count else 0
            rows = rows.where(f"NOT ({self.operator.late(before)})")
        self._write(self.operator.partials([rows], before).selectExpr("*", f"{self.number}L AS {BATCH}"), "batch")
        if newest is not None:
            self.mark = newest - self.lateness if before is None else max(before, newest - self.lateness)
        out: list[Any] = self.operator.emitted(self.state, WatermarkChange(before, self.mark), self.number).collect()
        if compact:
            self.compact()
        return out

    def compact(self) -> None:
        """Make one part of all."""
        state = self.state
        kept = self.operator.compacted(state, self.mark)
        assert kept.dtypes == state.dtypes
        self._write(kept, "kept")
        self.parts = self.parts[-1:]

    def out(self) -> Any:
        """What would come out now, if the watermark were far ahead."""
        return self.operator.emitted(self.state, WatermarkChange(self.mark, FAR), self.number + 1)

    @property
    def state(self) -> Any:
        frames = [self.spark.read.schema(self.schema).parquet(part) for part in self.parts]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _write(self, frame: Any, name: str) -> None:
        self.written += 1
        part = str(self.folder / f"{self.written}_{name}")
        assert self.schema is None or frame.dtypes == [
            (item.name, item.dataType.simpleString()) for item in self.schema
        ]
        self.schema = frame.schema
        frame.coalesce(1).write.parquet(part)
        self.parts.append(part)


def outputs(rows: Sequence[Any]) -> list[Out]:
    """What came out, of an operator with the columns of these tests."""
    return [
        Out(row["who"], _moment(row["window_start"]), _moment(row["window_end"]), row["n"], row["bits"]) for row in rows
    ]


def _moment(local: datetime) -> int:
    return (local.astimezone(timezone.utc) - _EPOCH) // timedelta(microseconds=1)


def rows_of(dice: random.Random, *, keys: int, each: int, moments: Callable[[], int]) -> list[Row]:
    """Rows of many keys, one of them NULL."""
    names = [None, *(f"k{number}" for number in range(1, keys))]
    return [Row(name, moments(), 1 << number) for name in names for number in range(dice.randint(1, each))]


def batched(dice: random.Random, rows: Sequence[Row], *, jitter: int, batches: int) -> list[list[Row]]:
    """Rows in an order that is off by up to `jitter`, cut anywhere."""
    ordered = sorted(rows, key=lambda row: (row.at + dice.randint(0, jitter), dice.random()))
    even = len(rows) // batches
    cuts = [number * even + dice.randint(-even // 2, even // 2) for number in range(1, batches)]
    return [ordered[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


__all__ = ["FAR", "SECOND", "SEEDS", "OperatorRun", "batched", "few", "outputs", "rows_of", "small", "spark"]
