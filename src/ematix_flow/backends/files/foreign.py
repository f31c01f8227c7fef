"""Reading files that somebody else wrote: names from the header, types from the values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.codec import EMPTY, SPARK_FORMATS
from ematix_flow.backends.files.inference import cast_to, typed
from ematix_flow.backends.files.native import refuse_foreign
from ematix_flow.declare.endpoints import CSV_READ_OPTIONS, JSON_READ_OPTIONS, check_read_options
from ematix_flow.families.lake.place import LakePath, uri
from ematix_flow.families.lake.session import active, quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


def read_files_of(
    file_format: str, below: LakePath, names: Sequence[str], options: Mapping[str, Any], kept: str | None
) -> DataFrame:
    """The rows of some files below a folder, with columns as `kept` says in Spark's words, or as they show it."""
    where = uri(below)
    files = [f"{where}/{name}" for name in names]
    base = {"basePath": where}
    if file_format == "csv":
        texts = _texts(files, options, **base)
        return (
            typed(texts, options.get("schema_infer_max_records")) if kept is None else cast_to(texts, columns_of(kept))
        )
    reader = active().read.format(SPARK_FORMATS[file_format]).options(**base)
    if file_format == "json_lines":
        reader = reader.option("mode", "FAILFAST")
        return reader.load(files) if kept is None else reader.schema(kept).load(files)
    found = reader.option("mergeSchema", "true").load(files)
    return found if kept is None else _conformed(found, kept)


def _conformed(frame: DataFrame, kept: str) -> DataFrame:
    """These columns in these types; one that the frame lacks is NULL."""
    there = set(frame.columns)
    made = [
        f"CAST({quote(name) if name in there else 'NULL'} AS {kind}) AS {quote(name)}"
        for name, kind in columns_of(kept)
    ]
    return frame.selectExpr(*made)


def columns_of(kept: str) -> list[tuple[str, str]]:
    """Names and types of a schema in Spark's words."""
    schema = active().createDataFrame([], kept).schema
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _texts(where: str | list[str], options: Mapping[str, Any], **more: str) -> DataFrame:
    """The columns of CSV files as texts."""
    raw = active().read.format("csv").options(**_csv_options(options), **more).load(where)
    return raw.selectExpr(*(_cleaned(name, options.get("null_regex")) for name in raw.columns))


def _csv_options(options: Mapping[str, Any]) -> dict[str, str]:
    mark = str(options.get("quote") or '"')
    made = {
        "header": str(options.get("has_header", True)).lower(),
        "sep": str(options.get("delimiter") or ","),
        "quote": mark,
        "escape": str(options.get("escape") or mark),
        "multiLine": "true",
        "emptyValue": EMPTY,
        # Rows of another length are an error, unless the short ones are said to be fine; and so are other headers.
        "mode": "PERMISSIVE" if options.get("truncated_rows_ok") else "FAILFAST",
        "columnPruning": "false",
        "enforceSchema": "false",
        "inferSchema": "false",
    }
    if options.get("comment"):
        made["comment"] = str(options["comment"])
    if options.get("terminator"):
        made["lineSep"] = str(options["terminator"])
    return made


def _cleaned(name: str, null_regex: str | None) -> str:
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
