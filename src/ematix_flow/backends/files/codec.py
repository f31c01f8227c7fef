"""Rows into files and back, exactly: what a format has no type for goes as text with one meaning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.layout import BATCH, Layout
from ematix_flow.declare.types import Column
from ematix_flow.families.frames import pairs, spark_schema, spark_type
from ematix_flow.families.lake.place import uri
from ematix_flow.families.lake.session import active, quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK_FORMATS = {"parquet": "parquet", "orc": "orc", "csv": "csv", "json_lines": "json"}
# Spark reads an empty quoted text as NULL where NULL is empty too; read as this, it can be told apart.
EMPTY = "\u0001flow-empty\u0001"
_NATIVE_IN_JSON = (
    "small_int",
    "integer",
    "big_int",
    "float",
    "double",
    "boolean",
    "text",
    "string",
    "json",
    "jsonb",
    "uuid",
)
_NO_MARKER = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def write_files(frame: DataFrame, layout: Layout, folder: Path, options: Mapping[str, Any]) -> None:
    """Every column of the layout, in its order; partition columns become folders."""
    encoded = frame.selectExpr(*(_encoded(column, layout) for column in layout.columns))
    writer = encoded.write.mode("overwrite").format(SPARK_FORMATS[layout.format]).options(**_NO_MARKER)
    if layout.format == "csv":
        writer = writer.options(**csv_options(layout.options), emptyValue=_quote(layout.options) * 2)
    elif layout.format == "json_lines":
        writer = writer.option("ignoreNullFields", "false")
    elif options.get("parquet_compression"):
        writer = writer.option("compression", str(options["parquet_compression"]))
    if layout.partition_by:
        writer = writer.partitionBy(*layout.partition_by)
    writer.save(uri(folder))


def read_table(layout: Layout, table: Path) -> DataFrame:
    """Every published row of a table; none when there is no batch yet."""
    if not any(table.glob(f"{BATCH}=*")):
        return active().createDataFrame([], spark_schema(pairs(layout.columns)))
    return _read(layout, table, f", {BATCH} STRING")


def read_files(layout: Layout, folder: Path) -> DataFrame:
    """The rows of one folder of files."""
    return _read(layout, folder, "")


def csv_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Spark's CSV options for the options of a target, the same for writing and reading."""
    escape = str(options.get("csv_escape") or _quote(options))
    made = {
        "sep": str(options.get("csv_delimiter") or ","),
        "header": str(options.get("csv_header", True)).lower(),
        "quote": _quote(options),
        "escape": escape,
        "nullValue": str(options.get("csv_null_value") or ""),
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "multiLine": "true",
        "encoding": "UTF-8",
    }
    return made if escape == _quote(options) else made | {"charToEscapeQuoteEscaping": escape}


def _read(layout: Layout, folder: Path, more: str) -> DataFrame:
    reader = active().read.format(SPARK_FORMATS[layout.format])
    if layout.format == "csv":
        reader = reader.options(**csv_options(layout.options), emptyValue=EMPTY, mode="PERMISSIVE")
    elif layout.format == "json_lines":
        reader = reader.option("mode", "FAILFAST")
    # Columns of a partition come last when Spark reads them, and CSV goes by position: so they are named last.
    ordered = sorted(layout.columns, key=lambda column: column.name in layout.partition_by)
    stored = ", ".join(f"{quote(column.name)} {_stored_type(column, layout)}" for column in ordered)
    found = reader.schema(stored + more).load(uri(folder))
    return found.selectExpr(*(_decoded(column, layout) for column in layout.columns))


def _stored_type(column: Column, layout: Layout) -> str:
    return "STRING" if _goes_as_text(column, layout) else spark_type(column.type)


def _goes_as_text(column: Column, layout: Layout) -> bool:
    if layout.format == "csv" or (layout.format == "json_lines" and column.name in layout.partition_by):
        return True
    return layout.format == "json_lines" and column.type.kind not in _NATIVE_IN_JSON


def _encoded(column: Column, layout: Layout) -> str:
    name, kind = quote(column.name), column.type.kind
    if not _goes_as_text(column, layout):
        return name
    if kind == "bytes":
        return f"base64({name}) AS {name}"
    if kind == "timestamp":
        return f"date_format({name}, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\") AS {name}"
    if kind == "timestamp_tz":
        return f"date_format({name}, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'\") AS {name}"
    return f"CAST({name} AS STRING) AS {name}"


def _decoded(column: Column, layout: Layout) -> str:
    name = quote(column.name)
    if not _goes_as_text(column, layout):
        return name
    value = f"IF({name} = {text(EMPTY)}, '', {name})" if layout.format == "csv" else name
    if column.type.kind == "bytes":
        return f"unbase64({value}) AS {name}"
    return f"CAST({value} AS {spark_type(column.type)}) AS {name}"


def _quote(options: Mapping[str, Any]) -> str:
    return str(options.get("csv_quote") or '"')


def batch_folder(table: Path, run_id: str) -> Path:
    """Where the rows of one published run are."""
    return table / f"{BATCH}={run_id}"
