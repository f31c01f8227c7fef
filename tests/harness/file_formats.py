"""Parquet, ORC, CSV and JSON lines by readers and writers that know nothing of the product or of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pyorc

from ematix_flow.dataplane.type_mapping import arrow_schema, pairs, spark_type
from ematix_flow.declare.table import TableSpec
from tests.harness.base import Row

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Format(NamedTuple):
    """How files of one format end, and how they are read and written."""

    ending: str
    read: Callable[[Path], list[Row]]
    write: Callable[[Path, TableSpec, Sequence[Row]], None]


class HybridDays:
    """ORC counts days before 15 October 1582 in the Julian calendar, as its Java writers do; pyorc does not know that."""

    switch = date(1582, 10, 15)
    switched = (switch - EPOCH.date()).days

    @classmethod
    def from_orc(cls, days: int) -> date:
        if days >= cls.switched:
            return EPOCH.date() + timedelta(days=days)
        c = days + 2440588 + 32082
        d = (4 * c + 3) // 1461
        e = c - 1461 * d // 4
        m = (5 * e + 2) // 153
        return date(d - 4800 + m // 10, m + 3 - 12 * (m // 10), e - (153 * m + 2) // 5 + 1)

    @classmethod
    def to_orc(cls, day: date) -> int:
        if day >= cls.switch:
            return (day - EPOCH.date()).days
        a = (14 - day.month) // 12
        y, m = day.year + 4800 - a, day.month + 12 * a - 3
        return day.day + (153 * m + 2) // 5 + 365 * y + y // 4 - 32083 - 2440588


class HybridMoments:
    """Whole microseconds; pyorc's own way goes through a float."""

    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, zone: Any) -> datetime:
        days, rest = divmod(seconds, 86400)
        midnight = datetime.combine(HybridDays.from_orc(days), time(tzinfo=timezone.utc))
        return midnight + timedelta(seconds=rest, microseconds=nanoseconds // 1000)

    @staticmethod
    def to_orc(moment: datetime, zone: Any) -> tuple[int, int]:
        clock = timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second)
        return HybridDays.to_orc(moment.date()) * 86400 + clock.seconds, moment.microsecond * 1000


MOMENTS = {
    pyorc.TypeKind.DATE: HybridDays,
    pyorc.TypeKind.TIMESTAMP: HybridMoments,
    pyorc.TypeKind.TIMESTAMP_INSTANT: HybridMoments,
}


def read_orc(path: Path) -> list[Row]:
    with path.open("rb") as file:
        found: Iterator[Any] = pyorc.Reader(file, struct_repr=pyorc.StructRepr.DICT, converters=MOMENTS)
        return [dict(row) for row in found]


def write_orc(path: Path, table: TableSpec, rows: Sequence[Row]) -> None:
    kinds = [(column.name, spark_type(column.type).lower()) for column in table.columns]
    schema = ",".join(f"{name}:{kind.removesuffix('_ntz')}" for name, kind in kinds)
    with path.open("wb") as file, pyorc.Writer(file, f"struct<{schema}>", converters=MOMENTS) as writer:
        writer.writerows(tuple(row[name] for name in table.column_names) for row in rows)


def read_csv(path: Path) -> list[Row]:
    found = duckdb.connect().execute(
        "SELECT * FROM read_csv(?, all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', "
        "allow_quoted_nulls = false, hive_partitioning = false)",
        [str(path)],
    )
    names = [item[0] for item in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _arrow(table: TableSpec, rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(pairs(table.columns)))


def write_csv(path: Path, table: TableSpec, rows: Sequence[Row]) -> None:
    pyarrow.csv.write_csv(_arrow(table, rows), path)


def write_json(path: Path, table: TableSpec, rows: Sequence[Row]) -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, (date, datetime)):
            return value.isoformat()
        if isinstance(value, bytes):
            return value.decode()
        return str(value) if isinstance(value, Decimal) else value

    lines = [json.dumps({name: plain(row[name]) for name in table.column_names}, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines), encoding="utf-8")


FORMATS = {
    "parquet": Format(
        "parquet",
        lambda path: pyarrow.parquet.ParquetFile(path).read().to_pylist(),
        lambda path, table, rows: pyarrow.parquet.write_table(_arrow(table, rows), path),
    ),
    "orc": Format("orc", read_orc, write_orc),
    "csv": Format("csv", read_csv, write_csv),
    "json_lines": Format("json", lambda path: [json.loads(line) for line in path.open(encoding="utf-8")], write_json),
}
