"""Preparation of rows on Sail: what its functions would compute differently runs on Arrow batches, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.lane import Carried
from ematix_flow.dataplane.arrow_normalize import added_columns, column_adding_query, is_exact, normalize_batches
from ematix_flow.dataplane.spark_types import type_of
from ematix_flow.dataplane.task_errors import to_carried_error
from ematix_flow.dataplane.type_mapping import arrow_schema, spark_schema
from ematix_flow.declare.normalizers.normalizers import (
    Clamp,
    Default,
    Derive,
    NullIf,
    ParseNumeric,
    RegexReplace,
    Round,
    Sql,
)
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Column
from ematix_flow.foundation.errors import RunFailed, Unsupported
from ematix_flow.foundation.lazy_imports import pa
from ematix_flow.sql.expressions import quote, render_chain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXTS = ("text", "string")


def normalized_frame(frame: DataFrame, table: TableSpec, kinds: Mapping[str, str]) -> DataFrame:
    """Return exactly the table's columns: exact normalizers on Arrow batches, letter case and SQL by the engine."""
    able = {f"__flow_{place}": column for place, column in enumerate(table.columns) if _runs_on_arrow(column)}
    for column in table.columns:
        if column.normalizers and not _runs_on_arrow(column):
            _refuse_differing(column)
    if able:
        carried = _carried_columns(frame, table)
        chains = {name: (column.name, column.normalizers) for name, column in able.items()}
        query = column_adding_query(chains, carried)
        schema = spark_schema([*carried, *added_columns(query, carried)])
        frame = frame.select(*(name for name, _ in carried)).mapInArrow(_task(query, carried), schema)
    names = {column.name: name for name, column in able.items()}
    return frame.selectExpr(*(_expression(column, names.get(column.name), kinds) for column in table.columns))


def refuse_casts(table: TableSpec, types: Mapping[str, str]) -> None:
    """Raise Unsupported for casts to text whose result differs from Spark's."""
    for column in table.columns:
        kind = types.get(column.name, "")
        if kind in ("double", "float") and column.type.kind in _TEXTS:
            raise _differs_error(f"{column.name}, a {kind}, is written as text in another way than by Spark")
        if kind.startswith(("struct", "array", "map")) and "decimal" in kind:
            raise _differs_error(f"decimals inside of {column.name} may lose their sign as JSON")


def _runs_on_arrow(column: Column) -> bool:
    return bool(column.normalizers) and is_exact(column.normalizers)


def _expression(column: Column, ready: str | None, kinds: Mapping[str, str]) -> str:
    name = quote(column.name, "spark")
    if ready is not None:
        return f"{ready} AS {name}"
    if not column.normalizers:
        return name
    source = None if isinstance(column.normalizers[0], Derive) else column.name
    rendered = render_chain(column.normalizers, source, dialect="spark", column_kind=kinds.get(column.name))
    return f"{rendered} AS {name}"


def _carried_columns(frame: DataFrame, table: TableSpec) -> Carried:
    """Return the columns of the Arrow batches: all that are not nested, because the user's SQL may name any of them."""
    fields = [(field.name, type_of(field.dataType)) for field in frame.schema.fields]
    nested = [name for name, kind in fields if kind is None or kind.kind == "json"]
    asks = any(isinstance(marker, (Sql, Derive)) for column in table.columns for marker in column.normalizers)
    needed = [name for name in nested if asks or name in table.column_names]
    if needed:
        raise _differs_error(f"{needed[0]} is nested, and normalizers run on plain columns")
    return tuple((name, kind) for name, kind in fields if kind is not None and name not in nested)


def _refuse_differing(column: Column) -> None:
    for marker in column.normalizers:
        if _differs_on_sail(marker):
            raise _differs_error(f"{marker!r} of {column.name} is not exact beside SQL and letter case")


def _differs_on_sail(marker: object) -> bool:
    """Return whether Sail's result differs from Spark's.

    Long digit strings become NULL, 1.005 is rounded down, a double beside 0.5 becomes a decimal, and not every \\ and
    $ of a replacement is kept.
    """
    if isinstance(marker, (ParseNumeric, Round)):
        return True
    if isinstance(marker, RegexReplace):
        return any(sign in marker.replacement for sign in "\\$")
    if isinstance(marker, (Clamp, Default, NullIf)):
        return any(isinstance(value, (float, Decimal)) for value in vars(marker).values())
    return False


def _task(query: str, carried: Carried) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def work(batches: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(list(carried))

        def typed() -> Iterator[Any]:
            for batch in batches:
                columns = [
                    column if column.type == field.type else column.cast(field.type)
                    for column, field in zip(batch.columns, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        try:
            yield from normalize_batches(typed(), query, carried)
        except Exception as exc:
            raise to_carried_error(exc, _translate) from exc

    return work


def _translate(exc: Exception) -> RunFailed:
    lines = str(exc).splitlines()
    return RunFailed(f"the normalizers failed: {lines[0] if lines else type(exc).__name__}", hint="look at the values")


def _differs_error(reason: str) -> Unsupported:
    return Unsupported(f'engine="sail" is not for this load: {reason}', hint='use engine="local"')
