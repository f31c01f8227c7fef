"""A source's query, wrapped in normalizers and pre-transforms, as one SELECT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ematix_flow.declare.normalizers.normalizers import Derive, check_chain
from ematix_flow.declare.normalizers.pre_transforms import (
    DeduplicateBy,
    FilterWhere,
    Limit,
    PreTransform,
    SamplePct,
    check_transforms,
)
from ematix_flow.sql.expressions.build import build_expression
from ematix_flow.sql.expressions.dialects.duckdb import DuckDBRenderer
from ematix_flow.sql.expressions.dialects.mysql import MySQLRenderer
from ematix_flow.sql.expressions.dialects.postgres import PostgresRenderer
from ematix_flow.sql.expressions.dialects.renderer import Renderer
from ematix_flow.sql.expressions.dialects.spark import SparkRenderer
from ematix_flow.sql.expressions.dialects.sqlite import SQLiteRenderer
from ematix_flow.sql.expressions.literals import known_dialect, quote
from ematix_flow.sql.expressions.tree import CannotRender, ColumnExpr, known_kind
from ematix_flow.sql.expressions.user_sql import order_terms, transpile

_RENDERERS: dict[str, Renderer] = {
    renderer.dialect: renderer
    for renderer in (SparkRenderer(), PostgresRenderer(), MySQLRenderer(), SQLiteRenderer(), DuckDBRenderer())
}
_RANDOM = {
    "spark": "RAND()", "postgres": "RANDOM()", "mysql": "RAND()", "duckdb": "RANDOM()",
    "sqlite": "ABS(RANDOM() / 9223372036854775808.0)",
}  # fmt: skip
_RANK = "_flow_rank"


def renderer_for(dialect: str) -> Renderer:
    """Return the renderer of a dialect."""
    return _RENDERERS[known_dialect(dialect)]


def render_chain(
    markers: Sequence[object],
    column: str | None,
    *,
    dialect: str,
    column_sql: str | None = None,
    column_kind: str | None = None,
) -> str:
    """Return a column's normalizers as one SQL expression around the column, or around `column_sql` if given.

    `column_kind` is the kind of the source's type where it is known (`timestamp_tz`, `numeric` …): `to_timezone` of a
    local time needs it, and a column that already is a time or date is then not parsed from its text.

    >>> from ematix_flow.declare.normalizers.functions import empty_to_null, trim
    >>> render_chain([trim(), empty_to_null()], "name", dialect="spark")
    "NULLIF(TRIM(CAST(`name` AS STRING)), '')"
    """
    written = column_sql if column_sql is not None else None if column is None else quote(column, dialect)
    source = None if written is None else ColumnExpr(written, known_kind(column_kind))
    return renderer_for(dialect).render(build_expression(markers, source))


def normalized_select(
    columns: Sequence[tuple[str, Sequence[object]]],
    source_sql: str,
    *,
    pre_transforms: Sequence[object] = (),
    dialect: str,
    kinds: Mapping[str, str] | None = None,
) -> str:
    """Return the query of the rows to load, with CTEs `_src_user`, `_src_normalized`, `_src_pre_1` and so on.

    `columns` are the table's columns that the load writes, with their markers; if it is empty, all columns of the
    source are selected unchanged. `kinds` are the known types of the source's columns.
    """
    dialect = known_dialect(dialect)
    transforms = check_transforms(pre_transforms)
    chains = [(name, check_chain(markers)) for name, markers in columns]
    steps = [("_src_user", source_sql.strip().rstrip(";").rstrip())]
    if any(chain for _, chain in chains):
        expressions = [_named(name, chain, dialect, kinds or {}) for name, chain in chains]
        steps.append(("_src_normalized", f"SELECT {', '.join(expressions)}\nFROM _src_user"))
    names = [quote(name, dialect) for name, _ in chains]
    for number, transform in enumerate(transforms, start=1):
        steps.append((f"_src_pre_{number}", _transformed(transform, steps[-1][0], number, dialect, bool(names))))
    if len(steps) == 1 and not names:
        return steps[0][1]
    ctes = ",\n".join(f"{name} AS (\n{body}\n)" for name, body in steps)
    return f"WITH {ctes}\nSELECT {', '.join(names) or '*'} FROM {steps[-1][0]}"


def _named(name: str, chain: Sequence[object], dialect: str, kinds: Mapping[str, str]) -> str:
    column = None if chain and isinstance(chain[0], Derive) else name
    expression = render_chain(chain, column, dialect=dialect, column_kind=kinds.get(name))
    return expression if not chain else f"{expression} AS {quote(name, dialect)}"


def _transformed(transform: PreTransform, before: str, number: int, dialect: str, names_known: bool) -> str:
    match transform:
        case FilterWhere(condition):
            return f"SELECT * FROM {before} WHERE {transpile(condition, dialect)}"
        case Limit(n):
            return f"SELECT * FROM {before} LIMIT {n}"
        case SamplePct(p):
            return _sampled(p, before, dialect)
        case DeduplicateBy():
            return _deduplicated(transform, before, number, dialect, names_known)
    raise TypeError(f"{transform!r} is no pre-transform")


def _sampled(p: float, before: str, dialect: str) -> str:
    if p >= 1:
        return f"SELECT * FROM {before}"
    if p <= 0:
        return f"SELECT * FROM {before} WHERE 1 = 0"
    # MySQL and SQLite would draw inside the source's joins, not once per row; a LIMIT prevents them from merging.
    rows = f"(SELECT * FROM {before} LIMIT {2**63 - 1}) AS _flow_rows" if dialect in ("mysql", "sqlite") else before
    return f"SELECT * FROM {rows} WHERE {_RANDOM[dialect]} < {p:.17f}"


def _deduplicated(transform: DeduplicateBy, before: str, number: int, dialect: str, names_known: bool) -> str:
    keys = [_key(key, dialect) for key in transform.keys]
    order = order_terms(transform.order_by, dialect) if transform.order_by else ", ".join(keys)
    if not names_known and dialect in ("postgres", "duckdb"):
        listed = ", ".join(keys)
        return f"SELECT DISTINCT ON ({listed}) * FROM {before} ORDER BY {listed}, {order}"
    rank = f"{_RANK}_{number}"  # a name per step: the rank of an earlier step is still among the columns
    ranked = (
        f"SELECT _flow_rows.*, ROW_NUMBER() OVER (PARTITION BY {', '.join(keys)} ORDER BY {order}) AS {rank}\n"
        f"FROM {before} AS _flow_rows"
    )
    if names_known:
        return f"SELECT * FROM (\n{ranked}\n) AS _flow_ranked WHERE {rank} = 1"
    if dialect == "spark":
        return f"SELECT * EXCEPT ({rank}) FROM (\n{ranked}\n) AS _flow_ranked WHERE {rank} = 1"
    raise CannotRender("deduplicate_by", dialect, "the columns have to be named there")


def _key(name: str, dialect: str) -> str:
    quoted = quote(name, dialect)
    if dialect == "mysql":
        return f"CAST({quoted} AS BINARY)"  # a collation would treat different keys as equal
    return f"{quoted} COLLATE BINARY" if dialect == "sqlite" else quoted
