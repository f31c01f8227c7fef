"""Drives an operator as a stream does: partials in files, a watermark that never goes back, now and then one part of many."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ematix_flow.engine.streams.stateful.operator import AT, BATCH, Marks, Operator
from tests.streams.window_oracle import Out, Row

SCHEMA = f"{AT} BIGINT, who STRING, bit BIGINT"
Batch = Sequence[Row]


@dataclass
class Fold:
    """One stream: its state, its watermark, and what it told."""

    spark: Any
    operator: Operator
    folder: Path
    lateness: int = 0
    mark: int | None = None
    number: int = -1
    late: int = 0
    parts: list[str] = field(default_factory=list)

    def rows(self, given: Batch) -> Any:
        return self.spark.createDataFrame([(row.at, row.key, row.bit) for row in given], SCHEMA)

    def step(self, rows: Any, newest: int | None, *, compact: bool = False) -> Any:
        """What comes out after a micro-batch."""
        self.number += 1
        before = self.mark
        if before is not None:
            self.late += rows.where(self.operator.late(before)).count()
            rows = rows.where(f"NOT ({self.operator.late(before)})")
        self._write(self.operator.partials([rows], before).selectExpr("*", f"{self.number}L AS {BATCH}"), "batch")
        if newest is not None:
            self.mark = newest - self.lateness if before is None else max(before, newest - self.lateness)
        out = self.operator.emitted(self.state, Marks(before, self.mark), self.number)
        out = self.spark.createDataFrame(out.collect(), out.schema)
        if compact:
            self.compact()
        return out

    def compact(self) -> None:
        """Make one part of all."""
        state = self.state
        kept = self.operator.kept(state, self.mark)
        assert kept.dtypes == state.dtypes
        self._write(kept, f"kept{len(self.parts)}")
        self.parts = self.parts[-1:]

    @property
    def state(self) -> Any:
        frame = self.spark.read.parquet(self.parts[0])
        for part in self.parts[1:]:
            frame = frame.unionByName(self.spark.read.parquet(part))
        return frame

    def _write(self, frame: Any, name: str) -> None:
        part = str(self.folder / f"{self.number}_{name}")
        frame.coalesce(1).write.parquet(part)
        self.parts.append(part)


def told(frame: Any) -> list[Out]:
    """What came out, of an operator with the columns of these tests."""
    micros = frame.selectExpr("who", "unix_micros(window_start)", "unix_micros(window_end)", "n", "bits")
    return [Out(*row) for row in micros.collect()]


def rows_of(dice: random.Random, *, keys: int, each: int, moments: Callable[[], int]) -> list[Row]:
    """Rows of many keys, one of them NULL."""
    names = [None, *(f"k{number}" for number in range(1, keys))]
    return [Row(name, moments(), 1 << number) for name in names for number in range(dice.randint(1, each))]


def batched(dice: random.Random, rows: Sequence[Row], *, jitter: int, batches: int) -> list[list[Row]]:
    """Rows in an order that is off by up to `jitter`, cut anywhere."""
    ordered = sorted(rows, key=lambda row: (row.at + dice.randint(0, jitter), dice.random()))
    cuts = sorted(dice.randint(0, len(rows)) for _ in range(batches - 1))
    return [ordered[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
