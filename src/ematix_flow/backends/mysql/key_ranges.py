"""Splits a query of one table by ranges of its integer primary key, as evenly as the index statistics allow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from ematix_flow.backends.mysql.dialect import MySqlDialect
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import FlowError
from ematix_flow.sql.linear_query import LinearQuery, parse_linear

LARGEST_PART_ROWS = 200_000  # a task holds at most one part in memory
LARGEST_PART_BYTES = 64 * 1024 * 1024
SMALLEST_PART_ROWS = 50_000  # below that, another connection costs more than it saves
_QUESTIONS = 1_000
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_DIALECT = MySqlDialect()


@dataclass(frozen=True)
class _IntegerKey:
    table: str
    column: str
    row_bytes: int


def parts_of(session: SqlSession, query: str, parallelism: int) -> tuple[tuple[str, ...], str]:
    """Return the queries of the parts, and the reason for this split."""
    parsed = parse_linear(query, "mysql")
    if parsed is None:
        return (query,), "not a plain query of one table"
    key = _leading_key(session, parsed)
    if key is None:
        return (query,), f"{parsed.table} has no integer primary key"
    low, high = session.rows(f"SELECT MIN({key.column}), MAX({key.column}) FROM {key.table}")[0]
    if low is None:
        return (query,), "empty"
    edges = _range_boundaries(session, key, int(low), int(high), parallelism)
    if not edges:
        return (query,), "too small to split"
    column = f"{_DIALECT.quote(parsed.alias)}.{key.column}"
    starts, stops = [None, *edges], [*edges, None]  # open at both ends: rows added meanwhile belong to a part
    parts = tuple(
        parsed.where(" AND ".join(_conditions(column, start, stop))) for start, stop in zip(starts, stops, strict=True)
    )
    return parts, f"{len(parts)} ranges of {parsed.table}.{key.column.strip('`')}"


def _conditions(column: str, start: int | None, stop: int | None) -> list[str]:
    return [f"{column} {sign} {edge}" for sign, edge in ((">=", start), ("<", stop)) if edge is not None]


def _leading_key(session: SqlSession, parsed: LinearQuery) -> _IntegerKey | None:
    schema = _DIALECT.text_literal(parsed.schema) if parsed.schema else "DATABASE()"
    rows = session.rows(
        "SELECT k.column_name, c.data_type, t.avg_row_length FROM information_schema.statistics AS k "
        "JOIN information_schema.columns AS c ON c.table_schema = k.table_schema AND c.table_name = k.table_name "
        "AND c.column_name = k.column_name "
        "JOIN information_schema.tables AS t ON t.table_schema = k.table_schema AND t.table_name = k.table_name "
        f"WHERE k.table_schema = {schema} AND k.table_name = {_DIALECT.text_literal(parsed.table)} "
        "AND k.index_name = 'PRIMARY' AND k.seq_in_index = 1 AND t.engine = 'InnoDB'"
    )
    if not rows or str(rows[0][1]).lower() not in _INTEGERS:
        return None
    column, _, row_bytes = rows[0]
    return _IntegerKey(_DIALECT.relation(parsed.schema, parsed.table), _DIALECT.quote(str(column)), int(row_bytes or 0))


def _range_boundaries(session: SqlSession, key: _IntegerKey, low: int, high: int, parallelism: int) -> list[int]:
    """Return the range boundaries, by halving the key range until the index expects few enough rows in each range."""

    def expected(start: int, stop: int) -> int:
        return _rows_expected(
            session, f"SELECT 1 FROM {key.table} WHERE {key.column} >= {start} AND {key.column} < {stop}"
        )

    total = expected(low, high + 1)
    largest = min(LARGEST_PART_ROWS, LARGEST_PART_BYTES // max(key.row_bytes, 1))
    wanted = max(1, min(max(total // max(parallelism, 1), SMALLEST_PART_ROWS), largest))
    waiting, leaves, estimates = [(low, high + 1, total)], [], 0
    while waiting:
        start, stop, rows = waiting.pop()
        if rows <= wanted or stop - start < 2 or estimates > _QUESTIONS:
            leaves.append((start, rows))
            continue
        middle = (start + stop) // 2
        estimates += 2
        waiting += [(middle, stop, expected(middle, stop)), (start, middle, expected(start, middle))]
    return _merge_small_ranges(leaves, wanted)


def _merge_small_ranges(leaves: list[tuple[int, int]], wanted: int) -> list[int]:
    """Return the first key of each part except the first one; small neighbouring ranges are merged."""
    edges: list[int] = []
    filled = 0
    for index, (start, rows) in enumerate(leaves):
        if index and filled + rows > wanted:
            edges.append(start)
            filled = 0
        filled += rows
    return edges


def estimate_rows(session: SqlSession, query: str) -> int | None:
    """Return the optimizer's row estimate for a query, None where it has none."""
    with suppress(FlowError):  # EXPLAIN of a view requires more privileges than reading it
        return _rows_expected(session, query) or None
    return None


def _rows_expected(session: SqlSession, query: str) -> int:
    names, lines = session.query(f"EXPLAIN FORMAT=TRADITIONAL {query}")
    rows, share = names.index("rows"), names.index("filtered") if "filtered" in names else None
    product = 1.0
    for line in lines:
        if int(line[0] or 0) == 1 and line[rows] is not None:
            product *= int(line[rows]) * (float(line[share] or 100) / 100 if share is not None else 1)
    return round(product) if any(line[rows] is not None for line in lines) else 0
