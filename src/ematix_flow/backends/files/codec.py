"""Writes rows to files and reads them back exactly: types that a format lacks are stored as text with one meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files import orc_limits
from ematix_flow.backends.files.layout import BATCH, FileLayout, write_layout
from ematix_flow.backends.files.sail_limits import finite, refuse_layout
from ematix_flow.dataplane.spark_session import active_session, is_active_session_sail
from ematix_flow.dataplane.type_mapping import spark_type
from ematix_flow.declare.types import Column
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.storage.paths import LakePath, engine_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader

SPARK_FORMATS = {"parquet": "parquet", "orc": "orc", "csv": "csv", "json_lines": "json"}
# Spark reads an empty quoted text as NULL where the NULL text is empty too; this value marks it.
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


def write_files(frame: DataFrame, layout: FileLayout, folder: LakePath, options: Mapping[str, Any]) -> None:
    """Write every column of the layout, in its order, and its layout file; partition columns become folders."""
    _write(frame, layout, folder, options)
    write_layout(folder, layout)


def write_batches(frame: DataFrame, layout: FileLayout, folder: LakePath, options: Mapping[str, Any]) -> None:
    """Write rows of several batches, each into the folder of its own batch."""
    _write(frame, layout, folder, options, above=(BATCH,))


def read_files(layout: FileLayout, folder: LakePath) -> DataFrame:
    """Return the rows of one folder of files."""
    return _reader(layout).load(engine_uri(folder)).selectExpr(*(_decoded(column, layout) for column in layout.columns))


def read_batches(layout: FileLayout, table: LakePath, batches: Sequence[LakePath] = (), *more: str) -> DataFrame:
    """Return the rows of some or all batches of a table, with the batch name and `more` expressions on the files."""
    reader = _reader(layout, f", {BATCH} STRING")
    if is_active_session_sail():  # Sail has no basePath option, and skips folders by a filter on their name
        frame = reader.load(engine_uri(table))
        if batches:
            names = ", ".join(text_literal(batch.name.partition("=")[2]) for batch in batches)
            frame = frame.where(f"{BATCH} IN ({names})")
    else:
        where = engine_uri(table)
        frame = reader.option("basePath", where).load([f"{where}/{batch.name}" for batch in batches] or where)
    return frame.selectExpr(*(_decoded(column, layout) for column in layout.columns), BATCH, *more)


def in_column_types(frame: DataFrame, columns: Iterable[Column], *more: str) -> DataFrame:
    """Return these columns in these types; columns that the frame lacks are NULL."""
    types_by_name = dict(frame.dtypes)
    selected = list(more)
    for column in columns:
        name, wanted = quote(column.name), spark_type(column.type)
        if types_by_name.get(column.name) == wanted.lower():
            selected.append(name)
        else:
            selected.append(f"CAST({name if column.name in types_by_name else 'NULL'} AS {wanted}) AS {name}")
    return frame.selectExpr(*selected)


def stored_form(column: Column, layout: FileLayout) -> str:
    """Return the form in which the files store a column: one reader cannot read columns of two forms."""
    if column.name in layout.partition_by or _goes_as_text(column, layout):
        return "text"
    return "plain" if layout.format == "json_lines" else _stored_type(column, layout)


def csv_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return Spark's CSV options for the options of a target, the same for writing and reading."""
    escape = str(options.get("csv_escape") or _quote(options))
    result = {
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
    return result if escape == _quote(options) else result | {"charToEscapeQuoteEscaping": escape}


def _write(
    frame: DataFrame, layout: FileLayout, folder: LakePath, options: Mapping[str, Any], above: tuple[str, ...] = ()
) -> None:
    _check(layout)
    whole = in_column_types(frame, layout.columns, *above)
    encoded = whole.selectExpr(*above, *(_encoded(column, layout) for column in layout.columns))
    writer = encoded.write.mode("overwrite").format(SPARK_FORMATS[layout.format]).options(**_NO_MARKER)
    if layout.format == "csv":
        writer = writer.options(**csv_options(layout.options), emptyValue=_quote(layout.options) * 2)
    elif layout.format == "json_lines":
        writer = writer.option("ignoreNullFields", "false")
    elif options.get("parquet_compression"):
        writer = writer.option("compression", str(options["parquet_compression"]))
    if above or layout.partition_by:
        writer = writer.partitionBy(*above, *layout.partition_by)
    writer.save(engine_uri(folder))


def _reader(layout: FileLayout, more: str = "") -> DataFrameReader:
    _check(layout)
    reader = active_session().read.format(SPARK_FORMATS[layout.format])
    if layout.format == "csv":
        reader = reader.options(**csv_options(layout.options), emptyValue=EMPTY, mode="PERMISSIVE")
    elif layout.format == "json_lines":
        reader = reader.option("mode", "FAILFAST")
    # Spark reads partition columns last, and CSV goes by position: so the schema names them last.
    ordered = sorted(layout.columns, key=lambda column: column.name in layout.partition_by)
    stored = ", ".join(f"{quote(column.name)} {_stored_type(column, layout)}" for column in ordered)
    return reader.schema(stored + more)


def _check(layout: FileLayout) -> None:
    refuse_layout(layout.format, layout.partition_by)
    if layout.format == "orc" and any(column.type.kind in orc_limits.MOMENTS for column in layout.columns):
        orc_limits.require_utc()


def _stored_type(column: Column, layout: FileLayout) -> str:
    if _goes_as_text(column, layout):
        return "STRING"
    return "TIMESTAMP" if _goes_as_instant(column, layout) else spark_type(column.type)


def _goes_as_instant(column: Column, layout: FileLayout) -> bool:
    """Return whether ORC stores an instant in UTC: Spark would write a timestamp without a zone as a number."""
    return layout.format == "orc" and column.type.kind == "timestamp" and column.name not in layout.partition_by


def _goes_as_text(column: Column, layout: FileLayout) -> bool:
    if layout.format == "csv" or (layout.format == "json_lines" and column.name in layout.partition_by):
        return True
    return layout.format == "json_lines" and column.type.kind not in _NATIVE_IN_JSON


def _encoded(column: Column, layout: FileLayout) -> str:
    name, kind = quote(column.name), column.type.kind
    if not _goes_as_text(column, layout):
        if layout.format == "json_lines" and kind in ("float", "double") and is_active_session_sail():
            return f"{finite(column)} AS {name}"
        if layout.format != "orc" or column.name in layout.partition_by:
            return name
        return f"CAST({orc_limits.refusing_inexact(column)} AS {_stored_type(column, layout)}) AS {name}"
    if kind == "bytes":
        return f"base64({name}) AS {name}"
    if kind == "timestamp":
        return f"date_format({name}, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\") AS {name}"
    if kind == "timestamp_tz":
        return f"date_format({name}, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'\") AS {name}"
    return f"CAST({name} AS STRING) AS {name}"


def _decoded(column: Column, layout: FileLayout) -> str:
    name = quote(column.name)
    if _goes_as_instant(column, layout):
        return f"CAST({name} AS TIMESTAMP_NTZ) AS {name}"
    if not _goes_as_text(column, layout):
        return name
    value = f"IF({name} = {text_literal(EMPTY)}, '', {name})" if layout.format == "csv" else name
    if column.type.kind == "bytes":
        return f"unbase64({value}) AS {name}"
    return f"CAST({value} AS {spark_type(column.type)}) AS {name}"


def _quote(options: Mapping[str, Any]) -> str:
    return str(options.get("csv_quote") or '"')
