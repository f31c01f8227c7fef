"""The ends of a pipeline or stream: `Source` and `Target`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.table import ManagedTable
from ematix_flow.foundation.errors import DeclarationError, check_choice
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.signatures import at_callers_line

if TYPE_CHECKING:
    from ematix_flow.declare.connections import Connection

PARQUET_COMPRESSIONS = ("uncompressed", "snappy", "gzip", "zstd")
CSV_READ_OPTIONS = (
    "has_header", "delimiter", "quote", "escape", "terminator", "comment", "null_regex", "truncated_rows_ok",
    "schema_infer_max_records",
)  # fmt: skip
JSON_READ_OPTIONS = ("schema_infer_max_records", "batch_size")
_DIALECT = {"csv_delimiter": "delimiter", "csv_header": "has_header", "csv_quote": "quote", "csv_escape": "escape"}
"""The options of `Target` for writing CSV, with the read options of the same meaning."""


@dataclass(frozen=True)
class Source:
    """A query on a connection; for streams, the topic, queue or prefix."""

    connection: Connection | str | Any
    query: str
    csv_read_options: Mapping[str, Any] | None = None
    """Options for CSV files that a stream reads: delimiter, quote, escape, comment, has_header …"""
    json_read_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_read_options("csv_read_options", self.csv_read_options, CSV_READ_OPTIONS)
        check_read_options("json_read_options", self.json_read_options, JSON_READ_OPTIONS)

    @classmethod
    def sql(cls, connection: Any, query: str) -> Source:
        """Return a source that runs a query on any connection."""
        return cls(connection, query)

    postgres_query = snowflake_query = bigquery_query = redshift_query = sql

    @classmethod
    def table(cls, connection: Any, schema: str, table: str, columns: Iterable[str] | None = None) -> Source:
        """Return a source that reads a table, or some of its columns."""
        chosen = ", ".join(columns) if columns else "*"
        return cls(connection, f"SELECT {chosen} FROM {schema}.{table}")

    postgres_table = table


@dataclass(frozen=True)
class Target:
    """One target of a pipeline or stream, with its own strategy and write options."""

    connection: Connection | str | Any = None
    table: type[ManagedTable] | tuple[str, str] | None = None
    topic: str | None = None
    queue: str | None = None
    partition_key_prefix: str | None = None
    prefix: str | None = None
    message_key_column: str | None = None
    partition_by: Sequence[str] | None = None
    parquet_compression: str | None = None
    csv_delimiter: str | None = None
    csv_header: bool | None = None
    csv_quote: str | None = None
    csv_escape: str | None = None
    csv_null_value: str | None = None
    csv_read_options: Mapping[str, Any] | None = None
    json_read_options: Mapping[str, Any] | None = None
    primary_key: Sequence[str] | None = None
    mode: str | None = None
    keys: Sequence[str] | None = None
    update_columns: Sequence[str] | None = None
    compare_columns: Sequence[str] | None = None
    event_timestamp_column: str | None = None
    handle_deletes: str | None = None
    column_map: Mapping[str, str] | None = None

    @at_callers_line
    def __post_init__(self) -> None:
        _check_file_options(self)

    @property
    def target_class(self) -> type[ManagedTable] | None:
        """The declared table; None if the target is not a table class."""
        return self.table if isinstance(self.table, type) else None

    @property
    def target_connection(self) -> Any:
        """An alias of `connection`."""
        return self.connection

    @property
    def write_options(self) -> dict[str, Any]:
        """The file options that are set; unset CSV options take the values of `csv_read_options`."""
        names = ("partition_by", "parquet_compression", "csv_delimiter", "csv_header", "csv_quote", "csv_escape",
                 "csv_null_value")  # fmt: skip
        options = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        reading = (self.csv_read_options or {}) if _format_of(self) in (None, "csv") else {}
        return {**{name: reading[key] for name, key in _DIALECT.items() if key in reading}, **options}


def _check_file_options(target: Target) -> None:
    file_format = _format_of(target)
    if target.parquet_compression is not None:
        check_choice("parquet_compression", target.parquet_compression, PARQUET_COMPRESSIONS)
        _only_for("parquet_compression", "parquet", file_format)
    for name in ("csv_delimiter", "csv_quote", "csv_escape"):
        value = getattr(target, name)
        if value is not None and not _is_one_character(value):
            raise DeclarationError(f"{name} takes one ASCII character, not {value!r}")
    for name in ("csv_delimiter", "csv_header", "csv_quote", "csv_escape", "csv_null_value", "csv_read_options"):
        if getattr(target, name) is not None:
            _only_for(name, "csv", file_format)
    if target.json_read_options is not None:
        _only_for("json_read_options", "json_lines", file_format)
    check_read_options("csv_read_options", target.csv_read_options, CSV_READ_OPTIONS)
    check_read_options("json_read_options", target.json_read_options, JSON_READ_OPTIONS)
    _check_dialect(target)


def _format_of(target: Target) -> str | None:
    # The format of a connection given by name is only available when the run is planned.
    return None if isinstance(target.connection, str) else getattr(target.connection, "format", None)


def _check_dialect(target: Target) -> None:
    reading = target.csv_read_options or {}
    for name, key in _DIALECT.items():
        written = getattr(target, name)
        if written is not None and key in reading and reading[key] != written:
            raise DeclarationError(
                f"{name}={written!r} writes files that csv_read_options, with {key}={reading[key]!r}, cannot read back",
                hint="say the same in both, or leave one of them out",
            )


def _only_for(option: str, wanted: str, file_format: str | None) -> None:
    # A Target may have both csv and json read options; only a known format rules one of them out.
    if file_format is not None and file_format != wanted and not option.endswith("read_options"):
        raise DeclarationError(f"{option} is for {wanted} files, and this connection holds {file_format}")
    if file_format == "parquet" and option.endswith("read_options"):
        raise DeclarationError(f"{option} is for {wanted} files, and this connection holds parquet")


def check_read_options(what: str, options: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """Raise DeclarationError for unknown or mistyped read options, suggesting the nearest name."""
    for key, value in (options or {}).items():
        if key not in known:
            raise DeclarationError(f"{what} does not know {key!r}", hint=did_you_mean(key, known))
        if key in ("schema_infer_max_records", "batch_size") and (not isinstance(value, int) or value <= 0):
            raise DeclarationError(f"{what}[{key!r}] takes a positive whole number, not {value!r}")
        if key in ("has_header", "truncated_rows_ok") and not isinstance(value, bool):
            raise DeclarationError(f"{what}[{key!r}] is True or False, not {value!r}")
        if key in ("delimiter", "quote", "escape", "comment") and not _is_one_character(value):
            raise DeclarationError(f"{what}[{key!r}] takes one ASCII character, not {value!r}")


def _is_one_character(value: object) -> bool:
    return isinstance(value, str) and len(value) == 1 and value.isascii()
