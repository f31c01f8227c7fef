"""Reading files that somebody else wrote: names from the header, types from the values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.codec import EMPTY, SPARK_FORMATS
from ematix_flow.backends.files.inference import typed
from ematix_flow.backends.files.native import refuse_foreign
from ematix_flow.declare.endpoints import CSV_READ_OPTIONS, JSON_READ_OPTIONS, check_read_options
from ematix_flow.families.lake.place import LakePath, uri
from ematix_flow.families.lake.session import active, quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CSV_SHORT_ROWS = "truncated_rows_ok"


def check_options(file_format: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the format does not have."""
    known = {"csv": CSV_READ_OPTIONS, "json_lines": JSON_READ_OPTIONS}.get(file_format, ())
    check_read_options(f"{file_format} read options", options, known)


def read_foreign(file_format: str, path: LakePath, options: Mapping[str, Any]) -> DataFrame:
    """The rows of a file or folder."""
    refuse_foreign(file_format, path)
    if file_format == "csv":
        return typed(_texts(uri(path), options), options.get("schema_infer_max_records"))
    if file_format == "json_lines":
        return _json(path, options)
    return active().read.format(SPARK_FORMATS[file_format]).option("mergeSchema", "true").load(uri(path))


def _texts(where: str, options: Mapping[str, Any]) -> DataFrame:
    """The columns of CSV files as texts."""
    raw = active().read.format("csv").options(**csv_options(options)).load(where)
    return raw.selectExpr(*(cleaned(name, options.get("null_regex")) for name in raw.columns))


def csv_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Spark's CSV options for the read options of a connection."""
    mark = str(options.get("quote") or '"')
    made = {
        "header": str(options.get("has_header", True)).lower(),
        "sep": str(options.get("delimiter") or ","),
        "quote": mark,
        "escape": str(options.get("escape") or mark),
        "multiLine": "true",
        "emptyValue": EMPTY,
        # Rows of another length are an error, unless the short ones are said to be fine; and so are other headers.
        "mode": "PERMISSIVE" if options.get(CSV_SHORT_ROWS) else "FAILFAST",
        "columnPruning": "false",
        "enforceSchema": "false",
        "inferSchema": "false",
    }
    if options.get("comment"):
        made["comment"] = str(options["comment"])
    if options.get("terminator"):
        made["lineSep"] = str(options["terminator"])
    return made


def cleaned(name: str, null_regex: str | None) -> str:
    """A column of texts, in which an empty one is not NULL."""
    column = quote(name)
    value = f"IF({column} = {text(EMPTY)}, '', {column})"
    if null_regex:
        value = f"IF({value} RLIKE {text(null_regex)}, NULL, {value})"
    return f"{value} AS {column}"


def _json(path: LakePath, options: Mapping[str, Any]) -> DataFrame:
    reader = active().read.format("json").option("mode", "FAILFAST")
    limit = options.get("schema_infer_max_records")
    if limit:
        lines = [row[0] for row in active().read.text(uri(path)).limit(int(limit)).collect()]
        reader = reader.schema(_schema_of(lines))
    return reader.load(uri(path))


def _schema_of(lines: Sequence[str]) -> str:
    """The columns of some records, as a DDL schema."""
    records = [json.loads(line) for line in lines if line.strip()]
    sample = text(json.dumps(records))
    described = active().sql(f"SELECT schema_of_json({sample}) AS kind").collect()[0]["kind"]
    schema = active().sql(f"SELECT inline(from_json('[]', {text(described)}))").schema
    return ", ".join(f"{quote(field.name)} {field.dataType.simpleString()}" for field in schema.fields)
