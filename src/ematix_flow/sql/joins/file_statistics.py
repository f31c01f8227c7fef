"""Statistics of Parquet files: ranges from their footers or the table's log, the rest from a bounded sample."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ematix_flow.foundation.cache import ContentCache, Stamp
from ematix_flow.foundation.lazy_imports import pa, pq
from ematix_flow.sql.joins import table_statistics
from ematix_flow.sql.joins.table_statistics import ColumnStats, TableStats, Value, plain_value

_SHELF = ContentCache("statistics", rules=1)
MOST_FILES = 512  # this many footers are read in about a second
_GROUPS = 12
_ROWS_OF_A_GROUP = 8192
_SAMPLE = 1000
_SAFE_DIGITS = 18
"""Decimals with more digits have a kind per precision: Spark may fail to find a common type for two of them."""


@dataclass(frozen=True)
class ValueRange:
    """The minimum and maximum of a column and its number of NULLs; None means unknown."""

    low: Value | None = None
    high: Value | None = None
    nulls: int | None = None
    is_empty: bool = False
    """Whether there are only NULLs, so that there are no bounds."""


@dataclass(frozen=True)
class LoggedStatistics:
    """Statistics from a table's log, which save reading the footers."""

    rows: int
    range_of: Callable[[str], ValueRange]


@dataclass(frozen=True)
class TableFiles:
    """The Parquet files of a table, with the stamp that identifies their state."""

    stamp: Stamp
    files: tuple[Path, ...]
    names: tuple[str, ...] | None = None
    """The columns, None where they are read from the files."""
    logged: LoggedStatistics | None = None

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(int(item[-1]) for item in self.stamp)


def table_stats(table: TableFiles, wanted: Collection[str]) -> TableStats | None:
    """Return statistics with at least these columns, from the cache if the files have not changed.

    None if reading that many files costs too much.
    """
    known = TableStats.from_plain(_SHELF.load(table.stamp, {}))
    missing = [name for name in wanted if known is None or name not in known.columns]
    if known is not None and not missing:
        return known
    if table.logged is None and len(table.files) > MOST_FILES:
        return None
    statistics = _collected(table, missing)
    if known is not None:
        statistics = replace(statistics, columns={**known.columns, **statistics.columns})
    _SHELF.store(table.stamp, {}, statistics.to_plain())
    return statistics


@dataclass
class _Footers:
    """The opened files; each is opened once."""

    table: TableFiles
    opened: dict[Path, Any] = field(default_factory=dict)

    def of(self, file: Path) -> Any:
        if file not in self.opened:
            self.opened[file] = pq.ParquetFile(file)
        return self.opened[file]

    @cached_property
    def sampled_files(self) -> Sequence[Path]:
        return self.table.files if self.table.logged is None else _evenly_spaced(self.table.files, _GROUPS)

    @cached_property
    def groups(self) -> list[tuple[Any, int]]:
        """Return the row groups to sample."""
        every = [
            (self.of(file), number) for file in self.sampled_files for number in range(self.of(file).num_row_groups)
        ]
        return _evenly_spaced([item for item in every if item[0].metadata.row_group(item[1]).num_rows], _GROUPS)

    def close(self) -> None:
        for file in self.opened.values():
            file.close()


def _collected(table: TableFiles, wanted: Sequence[str]) -> TableStats:
    with closing(_Footers(table)) as footers:
        kinds = _kinds(table, [footers.of(file).schema_arrow for file in footers.sampled_files])
        if table.logged is not None:
            rows = table.logged.rows
        else:
            rows = sum(footers.of(file).metadata.num_rows for file in table.files)
        columns = {name: _column(footers, name, kinds[name], rows) for name in wanted if name in kinds}
        return TableStats(rows, table.size, kinds, columns)


def _kinds(table: TableFiles, schemas: Sequence[Any]) -> dict[str, str]:
    """Return the kind of each column's values; a column whose kind differs between files is OTHER."""
    names = table.names or tuple(dict.fromkeys(name for schema in schemas for name in schema.names))
    kinds_by_name = {
        name: {_kind(schema.field(name).type) for schema in schemas if name in schema.names} for name in names
    }
    return {name: kinds.pop() if len(kinds) == 1 else table_statistics.OTHER for name, kinds in kinds_by_name.items()}


def _column(footers: _Footers, name: str, kind: str, rows: int) -> ColumnStats:
    if kind == table_statistics.OTHER:
        return ColumnStats(kind)
    logged = footers.table.logged
    value_range = logged.range_of(name) if logged else _range(footers, name)
    parts = [_first_values(opened, group, name) for opened, group in footers.groups]
    distinct = distinct_estimate(parts, rows)
    if kind in table_statistics.DISCRETE and isinstance(value_range.low, int) and isinstance(value_range.high, int):
        distinct = min(distinct, value_range.high - value_range.low + 1) if distinct is not None else None
    return ColumnStats(kind, value_range.low, value_range.high, value_range.nulls, distinct, _sample(parts))


def _first_values(opened: Any, group: int, name: str) -> list[Value | None]:
    """Return the first values of a row group."""
    rows = min(_ROWS_OF_A_GROUP, opened.metadata.row_group(group).num_rows)
    if name not in opened.schema_arrow.names:
        return [None] * rows
    batch = next(opened.iter_batches(rows, row_groups=[group], columns=[name], use_threads=False))
    return [plain_value(value) for value in _comparable(batch.column(0)).to_pylist()]


def _comparable(values: Any) -> Any:
    """Return the values in types that convert quickly to Python objects."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(pa.int64())
    return values.cast(pa.float64(), safe=False) if pa.types.is_decimal(values.type) else values


def _sample(parts: Sequence[Sequence[Value | None]]) -> tuple[Value | None, ...]:
    return tuple(_evenly_spaced([value for part in parts for value in part], _SAMPLE))


def distinct_estimate(parts: Sequence[Sequence[Value | None]], rows: int) -> float | None:
    """Estimate the number of distinct values of a column with `rows` rows from samples; None without any value.

    Samples with hardly any common value are extrapolated linearly: the column is sorted, or nearly unique. Otherwise
    the values seen once determine how many are unseen (the estimator Duj1 of Haas and Stokes).
    """
    seen: dict[Value, int] = {}
    apart = number = 0
    for part in parts if len(parts) > 1 else _halves(parts):
        values = [value for value in part if value is not None]
        number += len(values)
        apart += len(set(values))
        for value in values:
            seen[value] = seen.get(value, 0) + 1
    if not seen:
        return None
    total = max(rows, number)
    if len(seen) > 0.95 * apart:
        return max(1.0, len(seen) * total / number)
    once = sum(1 for count in seen.values() if count == 1)
    return min(float(total), number * len(seen) / (number - once + once * number / total))


def _halves(parts: Sequence[Sequence[Value | None]]) -> list[Sequence[Value | None]]:
    whole = parts[0] if parts else ()
    return [whole[: len(whole) // 2], whole[len(whole) // 2 :]]


def _range(footers: _Footers, name: str) -> ValueRange:
    """Return the range of a column from the footers of all files."""
    ranges = [
        part
        for file in footers.table.files
        for opened in [footers.of(file)]
        for place in [_place(opened, name)]
        for number in range(opened.num_row_groups)
        for part in [_group_range(opened.metadata.row_group(number), place)]
    ]
    return merged(ranges)


def merged(parts: Sequence[ValueRange]) -> ValueRange:
    """Return the combined range of several parts; a bound or count that is unknown in one of them is unknown."""
    nulls = [part.nulls for part in parts]
    non_empty = [part for part in parts if not part.is_empty]
    return ValueRange(
        _extreme([part.low for part in non_empty], min),
        _extreme([part.high for part in non_empty], max),
        None if None in nulls else sum(number for number in nulls if number is not None),
    )


def _extreme(values: Sequence[Value | None], choose: Callable[[Any], Any]) -> Value | None:
    if not values or None in values:
        return None
    try:
        return choose(values)  # type: ignore[no-any-return]
    except TypeError:  # files with different types
        return None


def _place(opened: Any, name: str) -> int | None:
    """Return the index of a flat column among the leaves of the schema, None if there is none."""
    columns = opened.metadata.schema
    return next((number for number in range(len(columns)) if columns.column(number).path == name), None)


def _group_range(group: Any, place: int | None) -> ValueRange:
    if place is None:
        return ValueRange()
    try:
        about = group.column(place).statistics
        if about is None:
            return ValueRange()
        nulls = int(about.null_count) if about.has_null_count else None
        if not about.has_min_max:
            return ValueRange(nulls=nulls, is_empty=nulls == group.num_rows)
        return ValueRange(plain_value(about.min), plain_value(about.max), nulls)
    except Exception:  # bounds of a type that pyarrow does not support
        return ValueRange()


def _kind(stored: Any) -> str:
    of = pa.types
    if of.is_dictionary(stored):
        stored = stored.value_type
    if of.is_decimal(stored) and stored.precision > _SAFE_DIGITS:
        return str(stored)
    known = (
        (of.is_boolean, table_statistics.BOOLEAN), (of.is_integer, table_statistics.INTEGER), (of.is_floating, table_statistics.REAL),
        (of.is_decimal, table_statistics.DECIMAL), (of.is_date, table_statistics.DATE), (of.is_timestamp, table_statistics.TIMESTAMP),
        (of.is_string, table_statistics.TEXT), (of.is_large_string, table_statistics.TEXT),
    )  # fmt: skip
    if str(stored) == "string_view":  # older pyarrow versions lack this type
        return table_statistics.TEXT
    return next((kind for test, kind in known if test(stored)), table_statistics.OTHER)


def _evenly_spaced(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` of the items, at equal distances."""
    if len(items) <= most:
        return list(items)
    return [items[number * len(items) // most] for number in range(most)]
