"""Changes of Delta tables without Spark, through the library delta-rs, for the Sail engine.

Sail reads Delta and supports its SQL, but silently drops the commit token of a load and cannot alter a table's columns.
So on Sail this library creates, alters and commits; every commit of a load contains its token.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.delta.delta_rs import is_addressable, refuse_concurrent_commits
from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.dataplane.type_mapping import spark_type
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.strategy import Merge, Scd2
from ematix_flow.declare.types import Column
from ematix_flow.families.lake.table_change import ACTION
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import Unsupported
from ematix_flow.foundation.lazy_imports import pa, t
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import LakeRoot, engine_uri, require_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_load_deltalake = partial(
    require_driver, "deltalake", needed_by='a Delta table on engine="sail"', package="deltalake", extra="native"
)
_PLAIN = {"appendOnly", "invariants", "timestampNtz"}
# Sail opens no Delta table below a path with other characters; delta-rs fails on some of them as well.
_ADDRESS = re.compile(r"[A-Za-z0-9_./=+:,@()-]+")
_NAMES = {"SMALLINT": "short", "INT": "integer", "BIGINT": "long"}
_COMMENT = "comment"
_WITH_NAN = ("float", "double")


def sail_limitation(connection: Any, load: LoadSpec | None) -> str | None:
    """Return why Sail cannot run a load, None where it can; raise MissingDriver where deltalake is not installed."""
    library = _load_deltalake()
    if load is None:
        return None
    path = require_local(LakeRoot.of(connection).table(load.table.schema, load.table.name))
    if not is_addressable(path):
        return f"the library that commits there takes no [ ] ^ | % and backslash in a path, and it is {path}"
    delta_table = library.DeltaTable(str(path)) if library.DeltaTable.is_deltatable(str(path)) else None
    strange = _unsupported_features(delta_table) if delta_table is not None else []
    if strange:
        return f"the table has features that only Spark writes ({', '.join(strange)})"
    partitions = load.write_options.get("partition_by") or (
        delta_table is not None and delta_table.metadata().partition_columns
    )
    if partitions and isinstance(load.strategy, (Merge, Scd2)):
        return "it cannot read partitions after rows in them have changed"
    return None


def location(path: Path) -> str:
    """Return the table's address for the Sail engine; raise Unsupported where Sail cannot open such a path."""
    if not _ADDRESS.fullmatch(str(path)):
        raise Unsupported(
            f'engine="sail" cannot open the Delta table {path}: it takes letters, digits and _ . = + : , @ ( ) - only',
            hint='use engine="local", or move the lake',
        )
    return f"file://{path}"


def open_table(path: Path) -> Any:
    """Return the table, opened by the library at its newest version."""
    return _load_deltalake().DeltaTable(str(path))


def schema_of(path: Path) -> Any:
    """Return the columns as a PySpark schema with their comments, which Sail's own schema omits."""
    return t.StructType.fromJson(json.loads(open_table(path).schema().to_json()))


def read(path: Path, columns: str) -> DataFrame:
    """Return every row of the newest version, read from the Parquet files that the log lists.

    Sail's own Delta reader is wrong in two cases: a filter on a column with NaN loses rows or keeps too many, and
    NOT NULL columns of files that this library has merged cannot be read. It is used only for tables that need it.
    """
    table = open_table(path)
    if table.metadata().partition_columns or _unsupported_features(table):
        if any(getattr(field.type, "type", "") in _WITH_NAN for field in table.schema().fields):
            raise Unsupported(
                f'engine="sail" reads no partitions and no features of {path.name} beside doubles: it would lose NaN',
                hint='use engine="local"',
            )
        return active_session().read.format("delta").load(location(path))
    files = [engine_uri(Path(file)) for file in table.file_uris()]
    if not files:
        return active_session().createDataFrame([], columns)
    return active_session().read.schema(columns).parquet(*files)


def create(
    path: Path, columns: Sequence[tuple[Column, str]], *, partition_by: Sequence[str] = (), anew: bool = False
) -> None:
    """Create a table of these columns, each with its comment; `anew` replaces an empty table."""
    from deltalake import DeltaTable, Schema

    schema = Schema(
        [_field(column, comment, nullable=column.nullable and not column.primary_key) for column, comment in columns]
    )
    with translated_os_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    if anew:
        DeltaTable.create(str(path), schema=schema, mode="overwrite", partition_by=list(partition_by) or None)
        _list_features(path)
    elif any(column.type.kind == "timestamp" for column, _ in columns):
        _create_with_features(path, schema, partition_by)
    else:
        DeltaTable.create(str(path), schema=schema, mode="ignore", partition_by=list(partition_by) or None)


def _create_with_features(path: Path, schema: Any, partition_by: Sequence[str]) -> None:
    """Create a table whose protocol lists its features, including the basic ones.

    The library lists those by a second commit. Both are made in a temporary folder and merged into one commit.
    """
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as beside, translated_os_errors(path):
        DeltaTable.create(beside, schema=schema, partition_by=list(partition_by) or None)
        _list_features(Path(beside))
        log = Path(beside) / "_delta_log"
        created, listed = (log / f"{version:020}.json" for version in (0, 1))
        (protocol,) = _actions(listed, "protocol")
        lines = [protocol if line in _actions(created, "protocol") else line for line in _actions(created)]
        created.write_text("\n".join(lines) + "\n", encoding="utf-8")
        listed.unlink()
        try:
            log.rename(path / "_delta_log")
        except OSError:  # the folder exists and is not empty
            if not DeltaTable.is_deltatable(str(path)):
                raise


def _actions(commit: Path, kind: str = "") -> list[str]:
    """Return the lines of a commit file, only those of one action `kind` where it is given."""
    lines = commit.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(f'{{"{kind}')]


def _list_features(path: Path) -> None:
    """Add the basic features to a table that lists its features: Spark refuses a table that lists only some of them."""
    from deltalake import TableFeatures

    table = open_table(path)
    if "timestampNtz" in (table.protocol().writer_features or ()):
        listed = table.protocol().writer_features or ()
        usual = {"appendOnly": TableFeatures.AppendOnly, "invariants": TableFeatures.Invariants}
        missing = [feature for name, feature in usual.items() if name not in listed]
        if missing:
            table.alter.add_feature(missing)


def add_column(path: Path, column: Column, comment: str) -> None:
    """Add a nullable column."""
    from deltalake import TableFeatures

    table = open_table(path)
    if column.type.kind == "timestamp" and "timestampNtz" not in (table.protocol().writer_features or ()):
        table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
        _list_features(path)
        table = open_table(path)
    table.alter.add_columns([_field(column, comment, nullable=True)])


def change_comment(path: Path, name: str, comment: str) -> None:
    """Replace the comment of a column, which holds the declared type and key."""
    open_table(path).alter.set_column_metadata(name, {_COMMENT: comment})


def drop_not_null(path: Path, name: str) -> None:
    """Make a column nullable."""
    open_table(path).alter.drop_column_not_null(name)


def layout_of(path: Path) -> tuple[list[str], int]:
    """Return the partition columns and the number of files."""
    table = open_table(path)
    return list(table.metadata().partition_columns), len(table.file_uris())


def write(path: Path, rows: Path, how: str, *, token: tuple[str, int] | None = None, note: str = "") -> bool:
    """Append the rows of a folder of Parquet, or overwrite the table with them; return False for a known token."""
    from deltalake import write_deltalake

    table = open_table(path)
    if _is_committed(table, token):
        return False
    with refuse_concurrent_commits(path):
        # The library has separate signatures for overwrite and append, and `how` is either.
        write_deltalake(table, _reader(table, rows), mode=how, commit_properties=_properties(token, note))  # type: ignore[call-overload]
    return True


def merge(
    path: Path, actions: Path, names: Sequence[str], match: Sequence[str], *, token: tuple[str, int], note: str
) -> bool:
    """Apply the actions in a folder of Parquet files to these columns; return False for a known token."""
    table = open_table(path)
    if _is_committed(table, token):
        return False
    if not any(actions.rglob("*.parquet")):
        return _commit_nothing(table, token, note)
    source, on = _reader(table, actions, more=(ACTION,), only=names), _match_condition(table, match)
    into = {_quoted(name): f"s.{_quoted(name)}" for name in names}
    updates = {_quoted(name): into[_quoted(name)] for name in names if name not in match}
    with refuse_concurrent_commits(path):
        merger = table.merge(source, on, source_alias="s", target_alias="t", commit_properties=_properties(token, note))
        merger = merger.when_matched_delete(f"s.{ACTION} = 'delete'")
        if updates:  # a table of key columns only has none
            merger = merger.when_matched_update(updates)
        merger.when_not_matched_insert(into, f"s.{ACTION} = 'write'").execute()
    return True


def delete(path: Path, condition: str) -> None:
    """Delete the rows that match the condition."""
    open_table(path).delete(condition)


def delete_missing_keys(path: Path, keys: Path, match: Sequence[str]) -> None:
    """Delete rows whose key is not in a folder of Parquet files."""
    table = open_table(path)
    merger = table.merge(
        _reader(table, keys, only=match), _match_condition(table, match), source_alias="s", target_alias="t"
    )
    merger.when_not_matched_by_source_delete().execute()


def _match_condition(table: Any, match: Sequence[str]) -> str:
    nullable = {field.name: field.nullable for field in table.schema().fields}
    return " AND ".join(
        f"(t.{_quoted(key)} {'IS NOT DISTINCT FROM' if nullable[key] else '='} s.{_quoted(key)})" for key in match
    )


def _unsupported_features(table: Any) -> list[str]:
    """Return the table's features beyond those of plain columns; reader version 2 implies column mapping."""
    protocol = table.protocol()
    unsupported = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _PLAIN
    if protocol.min_reader_version == 2:
        unsupported.add("columnMapping")
    return sorted(unsupported)


def _field(column: Column, comment: str, *, nullable: bool) -> Any:
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    spark_name = spark_type(column.type)
    kind = PrimitiveType(_NAMES.get(spark_name, spark_name.lower()))
    return Field(column.name, kind, nullable=nullable, metadata={_COMMENT: comment})


def _commit_nothing(table: Any, token: tuple[str, int], note: str) -> bool:
    """Commit without changing a row, so that the table contains the load's token; return True."""
    table.create_write_transaction(
        [], "append", table.schema(), partition_by=[], commit_properties=_properties(token, note)
    )
    return True


def _is_committed(table: Any, token: tuple[str, int] | None) -> bool:
    known = table.transaction_version(token[0]) if token else None
    return known is not None and token is not None and known >= token[1]


def _properties(token: tuple[str, int] | None, note: str) -> Any:
    from deltalake import CommitProperties, Transaction

    metadata: Mapping[str, Any] = {"userMetadata": note} if note else {}
    return CommitProperties(custom_metadata=dict(metadata), app_transactions=[Transaction(*token)] if token else None)


def _reader(table: Any, folder: Path, *, more: Sequence[str] = (), only: Sequence[str] = ()) -> Any:
    """Return the files of a folder as batches in the table's own types; table columns that they lack are NULL."""
    import pyarrow.dataset as ds

    fields = [field for field in pa.schema(table.schema().to_arrow()) if not only or field.name in only]
    schema = pa.schema(
        [*(pa.field(field.name, field.type) for field in fields), *(pa.field(name, pa.string()) for name in more)]
    )
    files = sorted(str(file) for file in folder.rglob("*.parquet"))
    if not files:
        return pa.RecordBatchReader.from_batches(schema, [])
    return ds.dataset(files, format="parquet", schema=schema).scanner(batch_size=65_536).to_reader()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
