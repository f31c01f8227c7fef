"""Conversion of source rows to exactly the declared columns: normalizers, pre-transforms, strict casts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.spark_session import is_active_session_sail, is_sail_session
from ematix_flow.dataplane.task_errors import strict_value
from ematix_flow.dataplane.type_mapping import JSON_AS_IT_IS, spark_type
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Column
from ematix_flow.engine.sail import sail_prepare
from ematix_flow.foundation.errors import PlanError
from ematix_flow.sql.expressions import normalized_select
from ematix_flow.sql.spark_text import text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INTEGERS = ("smallint", "int", "bigint", "tinyint")
_NESTED = ("struct", "array", "map", "variant")
_KINDS = {"timestamp": "timestamp_tz", "timestamp_ntz": "timestamp", "date": "date"}
_numbers = itertools.count(1)


def prepare_frame(
    frame: DataFrame, table: TableSpec, pre_transforms: Sequence[Any], open_until: ExitStack
) -> DataFrame:
    """Return the declared columns in order, with the types of the target's frame."""
    normalizes, native = any(column.normalizers for column in table.columns), is_sail_session(frame.sparkSession)
    if normalizes and native:
        frame, normalizes = sail_prepare.normalized_frame(frame, table, _kinds(frame)), False
    if pre_transforms or normalizes:
        frame = _normalized(frame, table, pre_transforms, open_until, normalizes=normalizes)
    types = dict(frame.dtypes)
    if native:
        sail_prepare.refuse_casts(table, types)
    return frame.selectExpr(
        *(f"{strict_cast(column, types[column.name])} AS {_quote(column.name)}" for column in table.columns)
    )


def _normalized(frame: DataFrame, table: TableSpec, pre_transforms: Sequence[Any], open_until: ExitStack, *,
                normalizes: bool = True) -> DataFrame:  # fmt: skip
    view = f"flow_source_{next(_numbers)}"
    frame.createOrReplaceTempView(view)
    spark = frame.sparkSession
    open_until.callback(spark.catalog.dropTempView, view)
    columns = [(column.name, column.normalizers if normalizes else ()) for column in table.columns]
    query = f"SELECT * FROM {view}"
    return spark.sql(
        normalized_select(columns, query, pre_transforms=pre_transforms, dialect="spark", kinds=_kinds(frame))
    )


def _kinds(frame: DataFrame) -> dict[str, str]:
    return {name: _KINDS[kind] for name, kind in frame.dtypes if kind in _KINDS}


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Cast:
    """An SQL cast to the declared type; `valid` is the condition for valid values, None if all values are valid."""

    value: str
    valid: str | None = None


def strict_cast(column: Column, source_type: str) -> str:
    """Return a cast that fails with the column's name and the value instead of changing the value."""
    cast = cast_of(column, source_type)
    return cast.value if cast.valid is None else strict_value(column, cast.valid, cast.value)


def cast_of(column: Column, source_type: str) -> Cast:
    """Return the cast of a column from its type in a frame; raise PlanError where no cast is allowed."""
    name = _quote(column.name)
    wanted = spark_type(column.type)
    kind = column.type.kind
    if source_type in ("void", "null"):
        return Cast(f"CAST(NULL AS {wanted})")
    if kind in ("json", "jsonb"):
        return _json(name, source_type)
    if kind == "uuid":
        return Cast(f"lower({name})", f"{name} RLIKE '^[0-9a-fA-F]{{8}}(-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}$'")
    if source_type.upper().replace(" ", "") == wanted.replace(" ", ""):
        return Cast(name)
    if wanted == "STRING":
        return Cast(_text(name, source_type))
    if source_type.startswith(_NESTED):
        raise PlanError(
            f"column {column.name!r} is {source_type}, and the table declares {column.type}", hint="declare it JSONB"
        )
    tried = f"try_cast({name} AS {wanted})"
    if kind in ("small_int", "integer", "big_int") and source_type.startswith(("double", "float", "decimal")):
        return Cast(tried, f"{name} = floor({name}) AND {tried} IS NOT NULL")
    if kind == "boolean" and source_type in _INTEGERS:
        return Cast(f"CAST({name} AS BOOLEAN)", f"{name} IN (0, 1)")
    if kind in ("date", "timestamp", "timestamp_tz") and source_type.startswith(
        (*_INTEGERS, "double", "float", "decimal", "boolean")
    ):
        raise PlanError(
            f"column {column.name!r} is {source_type}, and the table declares {column.type}",
            hint="convert it in the source's SQL",
        )
    return Cast(tried, f"{tried} IS NOT NULL")


def _text(name: str, source_type: str) -> str:
    if source_type.startswith(_NESTED):
        return _document(name, source_type)
    if source_type == "binary":
        return f"decode({name}, 'UTF-8')"
    return f"CAST({name} AS STRING)"


def _document(name: str, source_type: str) -> str:
    """Return a nested value as complete JSON, including NULL fields and all digits of timestamps."""
    if is_active_session_sail() or source_type.startswith(
        "variant"
    ):  # these have their own JSON format and take no options
        return f"to_json({name})"
    options = ", ".join(f"{text_literal(option)}, {text_literal(value)}" for option, value in JSON_AS_IT_IS.items())
    return f"to_json({name}, map({options}))"


def _json(name: str, source_type: str) -> Cast:
    if source_type.startswith(_NESTED):
        return Cast(_document(name, source_type))
    as_text = name if source_type == "string" else f"CAST({name} AS STRING)"
    return Cast(as_text, f"try_parse_json({as_text}) IS NOT NULL")
