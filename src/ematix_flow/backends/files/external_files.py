"""Reads files that ematix-flow did not write: names from the header, types inferred from the values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.codec import EMPTY, SPARK_FORMATS
from ematix_flow.backends.files.csv_headers import plain_header
from ematix_flow.backends.files.inference import Stamp, keep_types, kinds_of, recall_types, with_types
from ematix_flow.backends.files.sail_limits import refuse_external
from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.declare.endpoints import CSV_READ_OPTIONS, JSON_READ_OPTIONS, check_read_options
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.storage.paths import LakePath, engine_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CSV_SHORT_ROWS = "truncated_rows_ok"


def check_options(file_format: str, options: Mapping[str, Any]) -> None:
    """Raise where options are given that the format does not have."""
    known = {"csv": CSV_READ_OPTIONS, "json_lines": JSON_READ_OPTIONS}.get(file_format, ())
    check_read_options(f"{file_format} read options", options, known)


_SAMPLED = "raise schema_infer_max_records, or leave it out: then all rows are looked at"
_CHANGED = "the file changed while it was read: run it again"


def read_external(file_format: str, path: LakePath, options: Mapping[str, Any], stamp: Stamp) -> DataFrame:
    """Return the rows of a file or folder; types cached for the same files (`stamp`) need no inference pass."""
    refuse_external(file_format, path)
    if file_format == "csv":
        return _with_inferred_types(read_texts(path, options), options, stamp)
    if file_format == "json_lines":
        return _json(path, options)
    return active_session().read.format(SPARK_FORMATS[file_format]).option("mergeSchema", "true").load(engine_uri(path))


def _with_inferred_types(frame: DataFrame, options: Mapping[str, Any], stamp: Stamp) -> DataFrame:
    limit = options.get("schema_infer_max_records")
    kinds = recall_types(stamp, options, frame.columns)
    if kinds is not None:
        return with_types(frame, kinds, hint=_SAMPLED if limit else _CHANGED)
    kinds = kinds_of(frame, limit)
    keep_types(stamp, options, kinds)
    return with_types(frame, kinds, hint=_SAMPLED if limit else None)


def read_texts(path: LakePath, options: Mapping[str, Any]) -> DataFrame:
    """Return the columns of CSV files as texts."""
    refuse_external("csv", path)
    reader = active_session().read.format("csv").options(**csv_options(options))
    names = plain_header(path, options)
    if names is not None:  # else Spark reads the header, by a job of its own
        reader = reader.schema(", ".join(f"{quote(name)} STRING" for name in names))
    raw = reader.load(engine_uri(path))
    return raw.selectExpr(*(cleaned_text(name, options.get("null_regex")) for name in raw.columns))


def csv_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return Spark's CSV options for the read options of a connection."""
    mark = str(options.get("quote") or '"')
    result = {
        "header": str(options.get("has_header", True)).lower(),
        "sep": str(options.get("delimiter") or ","),
        "quote": mark,
        "escape": str(options.get("escape") or mark),
        "multiLine": "true",
        "emptyValue": EMPTY,
        # Rows of another length are an error unless short ones are allowed; so is a different header.
        "mode": "PERMISSIVE" if options.get(CSV_SHORT_ROWS) else "FAILFAST",
        "columnPruning": "false",
        "enforceSchema": "false",
        "inferSchema": "false",
    }
    if options.get("comment"):
        result["comment"] = str(options["comment"])
    if options.get("terminator"):
        result["lineSep"] = str(options["terminator"])
    return result


def cleaned_text(name: str, null_regex: str | None) -> str:
    """Return the SQL of a text column in which empty text is not NULL."""
    column = quote(name)
    value = f"IF({column} = {text_literal(EMPTY)}, '', {column})"
    if null_regex:
        value = f"IF({value} RLIKE {text_literal(null_regex)}, NULL, {value})"
    return f"{value} AS {column}"


def _json(path: LakePath, options: Mapping[str, Any]) -> DataFrame:
    reader = active_session().read.format("json").option("mode", "FAILFAST")
    limit = options.get("schema_infer_max_records")
    if limit:
        lines = [row[0] for row in active_session().read.text(engine_uri(path)).limit(int(limit)).collect()]
        reader = reader.schema(_schema_of(lines))
    return reader.load(engine_uri(path))


def _schema_of(lines: Sequence[str]) -> str:
    """Return the columns of some JSON records, as a DDL schema."""
    records = [json.loads(line) for line in lines if line.strip()]
    sample = text_literal(json.dumps(records))
    described = active_session().sql(f"SELECT schema_of_json({sample}) AS kind").collect()[0]["kind"]
    schema = active_session().sql(f"SELECT inline(from_json('[]', {text_literal(described)}))").schema
    return ", ".join(f"{quote(field.name)} {field.dataType.simpleString()}" for field in schema.fields)
