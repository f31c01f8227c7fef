"""The rows of new files, in columns that grow with them; a row that cannot be read has the reason in `_error`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.codec import SPARK_FORMATS
from ematix_flow.backends.files.csv_headers import by_header
from ematix_flow.backends.files.external_files import CSV_SHORT_ROWS, cleaned_text, csv_options
from ematix_flow.backends.files.inference import kinds_of, read_value, wrong_value
from ematix_flow.backends.files.learned_columns import LearnedColumns
from ematix_flow.backends.files.row_origins import envelope_of, source_of
from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.foundation.lazy_imports import f, t
from ematix_flow.messages.decode import ERROR, RAW, SOURCE
from ematix_flow.messages.type_widening import project_value
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.storage.paths import LakePath, engine_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

BROKEN = "_flow_broken"
_OWN = (ERROR, RAW, SOURCE)
_BOM = "\ufeff"


@dataclass(frozen=True)
class NewFiles:
    """Some files below a folder, possibly in folders of partitions."""

    file_format: str
    below: LakePath
    names: Sequence[str]
    options: Mapping[str, Any]

    @property
    def partitions(self) -> list[str]:
        """Return the partition columns in the paths: `day` for day=2026-01-01/part.csv."""
        folders = [part for name in self.names for part in name.split("/")[:-1]]
        return list(dict.fromkeys(part.partition("=")[0] for part in folders if "=" in part))

    @property
    def _files(self) -> list[str]:
        where = engine_uri(self.below)
        return [f"{where}/{name}" for name in self.names]

    def _reader(self, file_format: str, **options: str) -> Any:
        return active_session().read.format(file_format).options(basePath=engine_uri(self.below), **options)

    # Parquet and ORC: typed files

    def stored(self, known: LearnedColumns) -> DataFrame:
        """Return the rows of typed files (Parquet, ORC) in all columns known so far."""
        frames = self._loaded()
        for frame in frames:
            wide = known.widened(frame.schema)
        widened = [_in_columns(frame, wide, self.file_format, strictly=known.are_declared) for frame in frames]
        return reduce(lambda one, other: one.unionByName(other), widened)

    def _loaded(self) -> list[DataFrame]:
        """Return all files in one frame; one frame per file where Spark cannot merge the types of a column."""
        reader = self._reader(SPARK_FORMATS[self.file_format], mergeSchema="true")
        try:
            return [reader.load(self._files)]
        except Exception as exc:
            if "CANNOT_MERGE" not in str(exc) or len(self.names) < 2:
                raise
            return [reader.load(file) for file in self._files]

    # CSV: texts

    def csv(self, known: LearnedColumns) -> DataFrame:
        """Return the rows of CSV files; new columns get the type of all their values, the others keep theirs."""
        frames = [frame for group in by_header(self._files, self.options) for frame in self._texts(group)]
        if not frames:
            return no_rows(known)
        columns, texts = self._typed(frames, known), _union(frames)
        return in_types(texts, columns, [name for name in texts.columns if name not in (*_OWN, *self.partitions)])

    def _texts(self, files: Sequence[str]) -> list[DataFrame]:
        """Return the columns of files with one header as texts; an empty list where the files are empty."""
        reader = self._reader("csv", **csv_options(self.options) | {"mode": "PERMISSIVE"})
        names = [name for name in reader.load(files).columns if name not in self.partitions]
        if not names:
            return []
        schema = ", ".join(f"{quote(name)} STRING" for name in (*names, BROKEN))
        raw = reader.schema(schema).option("columnNameOfCorruptRecord", BROKEN).load(files)
        values, wrong = row_errors(names, self.options)
        line = f"to_csv(struct({', '.join(values)}), {self._spelling})"
        return [
            raw.selectExpr(
                *values,
                *map(quote, self.partitions),
                f"{wrong} AS {ERROR}",
                f"CAST(coalesce({BROKEN}, {line}) AS BINARY) AS {RAW}",
                source_of(self.file_format),
            )
        ]

    def columns(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each file, in their order; empty for an empty file."""
        result: dict[str, tuple[str, ...]] = {}
        named = dict(zip(self._files, self.names, strict=True))
        for group in by_header(self._files, self.options):
            read = self._reader("csv", **csv_options(self.options) | {"mode": "PERMISSIVE"}).load(group)
            own = tuple(name for name in read.columns if name not in self.partitions)
            result.update((named[file], own) for file in group)
        return result

    @property
    def _spelling(self) -> str:
        options = csv_options(self.options)
        return f"map({', '.join(f'{text_literal(name)}, {text_literal(options[name])}' for name in ('sep', 'quote', 'escape'))})"

    def _typed(self, frames: Sequence[DataFrame], known: LearnedColumns) -> StructType:
        """Return the known columns with the new ones added; only frames with new columns are read for inference."""
        before = known.load() or t.StructType([])
        known_names = {name.lower() for name in (*before.fieldNames(), *_OWN)}
        newer = [frame for frame in frames if any(name.lower() not in known_names for name in frame.columns)]
        if known.are_declared or not newer:
            return before
        texts = _union(newer)
        new = [name for name in texts.columns if name.lower() not in known_names]
        unknown = [quote(name) for name in new if name not in self.partitions]
        whole = texts.where(f"{ERROR} IS NULL").select(*unknown)
        kinds = kinds_of(whole, self.options.get("schema_infer_max_records"))
        types = {name: t.DataType.fromDDL(kind) for name, kind in kinds.items()}
        types |= {name: texts.schema[name].dataType for name in new if name in self.partitions}
        return known.widened(t.StructType([t.StructField(name, types[name]) for name in new]))

    # JSON lines: messages

    def lines(self) -> DataFrame:
        """Return every line as a message; the partition values of its path are in the headers."""
        raw: DataFrame = self._reader("text").load(self._files)
        line = f"IF(startswith(value, {text_literal(_BOM)}), substr(value, 2), value)"
        headers = ", ".join(
            f"named_struct('key', {text_literal(name)}, 'value', CAST(CAST({quote(name)} AS STRING) AS BINARY))"
            for name in self.partitions
        )
        columns = envelope_of(self.file_format, f"CAST({line} AS BINARY)", f"array({headers})" if headers else None)
        return raw.where("trim(value) <> ''").selectExpr(*columns)

    def folders_of(self, known: LearnedColumns) -> StructType:
        """Return the types of the partition columns."""
        schema = self._reader("text").load(self._files).drop("value").schema if self.partitions else None
        return known.widened(schema) if schema is not None else known.widened(no_columns())


def in_folders(rows: DataFrame, folders: StructType) -> DataFrame:
    """Add the partition columns, whose values are in the headers of the messages."""
    for field in folders.fields:
        value = f"element_at(filter({SOURCE}.headers, one -> one.key = {text_literal(field.name)}), 1).value"
        cast = f"CAST(CAST({value} AS STRING) AS {field.dataType.simpleString()})"
        rows = rows.selectExpr(
            *(quote(name) for name in rows.columns if name.lower() != field.name.lower()),
            f"{cast} AS {quote(field.name)}",
        )
    return rows


def row_errors(names: Sequence[str], options: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the values of a row that was read as texts, and the error for a wrong number of fields."""
    wrong = f"{BROKEN} IS NOT NULL"
    if options.get(CSV_SHORT_ROWS):
        wrong += f" AND {quote(names[-1])} IS NOT NULL"
    # The message contains a value because Spark reads no file for the corrupt-record column alone.
    reason = f"the row has more or fewer than the {len(names)} fields of its file, and begins with "
    values = [cleaned_text(name, options.get("null_regex")) for name in names]
    return (
        values,
        f"CASE WHEN {wrong} THEN concat({text_literal(reason)}, left(coalesce({quote(names[0])}, ''), 80)) END",
    )


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def no_rows(known: LearnedColumns) -> DataFrame:
    """Return no rows, in the columns known so far."""
    return active_session().createDataFrame([], known.load() or no_columns())


def no_columns() -> StructType:
    """Return a schema without columns."""
    return t.StructType([])


def _in_columns(frame: DataFrame, wide: StructType, file_format: str, *, strictly: bool) -> DataFrame:
    """Return the rows in all columns; with `strictly`, a value that does not fit its type fails the batch."""
    kinds = {field.name.lower(): field.dataType for field in frame.schema.fields}

    def one(name: str, kind: DataType) -> Any:
        actual = kinds.get(name.lower())
        if actual is None:
            return f.lit(None).cast(kind)
        return f.col(quote(name)).cast(kind) if strictly else project_value(f.col(quote(name)), actual, kind)

    selected = [one(field.name, field.dataType).alias(field.name) for field in wide.fields]
    return frame.select(*selected, f.expr(source_of(file_format)))


def in_types(texts: DataFrame, columns: StructType, unsure: Sequence[str], *, keeps_raw: bool = False) -> DataFrame:
    """Return the texts in their types; in a row with a value that does not fit, all columns are NULL."""
    existing = {name.lower() for name in texts.columns}
    tested = {name.lower() for name in unsure}
    kinds = {field.name: field.dataType.simpleString().upper() for field in columns.fields}
    wrong = [wrong_value(name, kind) for name, kind in kinds.items() if name.lower() in tested]
    kept = [quote(name) for name in texts.columns if name not in (ERROR, RAW)]
    whole = texts.selectExpr(*kept, f"coalesce({', '.join([ERROR, *filter(None, wrong)])}) AS {ERROR}", RAW)
    values = [
        read_value(name, kind, unless=f"{ERROR} IS NOT NULL")
        if name.lower() in existing
        else f"CAST(NULL AS {kind}) AS {quote(name)}"
        for name, kind in kinds.items()
    ]
    line = RAW if keeps_raw else f"CASE WHEN {ERROR} IS NOT NULL THEN {RAW} END AS {RAW}"
    return whole.selectExpr(*values, SOURCE, ERROR, line)
