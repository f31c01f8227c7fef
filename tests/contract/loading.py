"""Small words the contract tests are written in: declare a table, load rows into it, compare what is there."""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ematix_flow import ManagedTable, ObjectStoreLocalConnection, ematix
from ematix_flow.dataplane.type_mapping import arrow_schema, pairs, spark_schema
from ematix_flow.declare.table import TableSpec, table
from ematix_flow.engine.batch.result import Result
from tests.harness.base import Harness, Row

ROWS_OF_ONE_TASK = 8
_numbers = itertools.count(1)
_loads: dict[type[ManagedTable], int] = {}


def unique(prefix: str) -> str:
    """A name nobody else has, also in another worker."""
    return f"{prefix}_{secrets.token_hex(3)}{next(_numbers)}"


def declare(
    annotations: dict[str, Any], *, schema: str | None = None, name: str | None = None, **dunders: Any
) -> type[ManagedTable]:
    """A table class out of annotations."""
    body = {"__annotations__": annotations, "__module__": __name__, **dunders}
    return table(schema=schema or unique("s"), name=name or unique("t"))(type("Declared", (), body))


def load(
    harness: Harness, target: type[ManagedTable], rows: Iterable[Row], *, name: str | None = None, **options: Any
) -> Result:
    """Load these rows; the lanes take turns, so that each finds the tables of the others."""
    lane = _next_lane(target)
    if lane == "spark":
        return pipeline_of(harness, target, rows, name=name, **options).sync()
    pipeline = parquet_pipeline_of(harness, target, rows, name=name, **options)
    return pipeline.sync()


def _next_lane(target: type[ManagedTable]) -> str:
    """CONTRACT_LANE=arrow or spark keeps to one lane."""
    loads = _loads[target] = _loads.get(target, 0) + 1
    lanes = (os.environ.get("CONTRACT_LANE") or "spark,arrow").split(",")
    return lanes[loads % len(lanes)]


def pipeline_of(
    harness: Harness, target: type[ManagedTable], rows: Iterable[Row], *, name: str | None = None, **options: Any
) -> Any:
    """A pipeline whose source is a dataframe of these rows; one name per target unless told."""
    spec = target.spec()
    kept = list(rows)

    def source(spark: Any) -> Any:
        return frame(spark, spec, kept)

    decorate = ematix.pipeline(
        target=target, target_connection=harness.connection, name=name or f"load_{spec.schema}_{spec.name}", **options
    )
    return decorate(source)


def parquet_pipeline_of(
    harness: Harness, target: type[ManagedTable], rows: Iterable[Row], *, name: str | None = None, **options: Any
) -> Any:
    """A pipeline whose source is a Parquet file of these rows, which the Arrow lane takes where types allow it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    spec = target.spec()
    folder = Path(tempfile.mkdtemp(prefix="contract-rows-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    table = pa.Table.from_pylist(list(rows), schema=arrow_schema(pairs(spec.columns)))
    pq.write_table(table, folder / "given.parquet")
    decorate = ematix.pipeline(
        target=target, target_connection=harness.connection, name=name or f"load_{spec.schema}_{spec.name}",
        source_connection=ObjectStoreLocalConnection(name="rows_in_parquet", path=str(folder), format="parquet"),
        **options,
    )  # fmt: skip
    return decorate(lambda: "SELECT * FROM given")


def frame(spark: Any, spec: TableSpec, rows: Sequence[Row]) -> Any:
    """A dataframe with the declared types; a handful of rows is one task, more are several."""
    data = [tuple(row[name] for name in spec.column_names) for row in rows]
    made = spark.createDataFrame(data, spark_schema(pairs(spec.columns)))
    return made if len(data) > ROWS_OF_ONE_TASK else made.coalesce(1)


def columns(rows: Iterable[Row], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows as sorted tuples of some columns; NULL sorts first."""
    picked = [tuple(row[name] for name in names) for row in rows]
    return sorted(picked, key=lambda item: tuple((value is not None, str(value)) for value in item))


def day(number: int, hour: int = 0) -> datetime:
    """An instant in January 2026."""
    return datetime(2026, 1, number, hour, tzinfo=timezone.utc)


def counts(result: Result) -> dict[str, int]:
    """The counts of a single-target run that are not zero."""
    target = result.targets[0]
    names = ("inserted", "updated", "unchanged", "closed", "deleted")
    return {name: getattr(target, f"rows_{name}") for name in names if getattr(target, f"rows_{name}")}
