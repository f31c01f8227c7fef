"""Delta tables changed without Spark, through the library delta-rs.

The native engine reads Delta and knows its SQL, but leaves out the token of a load without a word and cannot change a
table's columns. So there this library creates, alters and commits; every commit of a load carries its token.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.delta.library import is_addressable, refusing_others
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.strategy import Merge, Scd2
from ematix_flow.declare.types import Column
from ematix_flow.families.frames import spark_type
from ematix_flow.families.lake.change import ACTION
from ematix_flow.families.lake.place import Place, explained, local, uri
from ematix_flow.families.lake.session import active
from ematix_flow.foundation.errors import MissingDriver, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLAIN = {"appendOnly", "invariants", "timestampNtz"}
# The engine opens no Delta table below a path with other characters, and the library not below some of them.
_ADDRESS = re.compile(r"[A-Za-z0-9_./=+:,@()-]+")
_NAMES = {"SMALLINT": "short", "INT": "integer", "BIGINT": "long"}
_COMMENT = "comment"
_WITH_NAN = ("float", "double")


def lacks(connection: Any, load: LoadSpec | None) -> str | None:
    """Why a load is not for the native engine; the library that commits there must be installed."""
    library = _library()
    if load is None:
        return None
    path = local(Place.of(connection).table(load.table.schema, load.table.name))
    if not is_addressable(path):
        return f"the library that commits there takes no [ ] ^ | % and backslash in a path, and it is {path}"
    there = library.DeltaTable(str(path)) if library.DeltaTable.is_deltatable(str(path)) else None
    strange = _strange(there) if there is not None else []
    if strange:
        return f"the table has features that only Spark writes ({', '.join(strange)})"
    partitions = load.write_options.get("partition_by") or (there is not None and there.metadata().partition_columns)
    if partitions and isinstance(load.strategy, (Merge, Scd2)):
        return "it cannot read partitions after rows in them have changed"
    return None


def location(path: Path) -> str:
    """The table as the engine must be told, where it opens the table itself."""
    if not _ADDRESS.fullmatch(str(path)):
        raise Unsupported(
            f'engine="sail" cannot open the Delta table {path}: it takes letters, digits and _ . = + : , @ ( ) - only',
            hint='use engine="local", or move the lake',
        )
    return f"file://{path}"


def opened(path: Path) -> Any:
    """The table as the library sees it."""
    return _library().DeltaTable(str(path))


def _library() -> Any:
    try:
        import deltalake
    except ImportError as exc:
        raise MissingDriver(
            'Delta tables on engine="sail" need the package deltalake, which is not installed',
            hint='pip install "ematix-flow-spark[native]"',
        ) from exc
    return deltalake


def schema_of(path: Path) -> Any:
    """The columns in PySpark's words, comments included: the engine leaves these out."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(opened(path).schema().to_json()))


def read(path: Path, columns: str) -> DataFrame:
    """Every row of the newest version, from the files that the log names.

    The engine's own reader bends tables: a condition on a column with NaN loses rows or keeps too many, and NOT NULL
    columns of files that this library has merged cannot be read. It is left to tables that need it.
    """
    table = opened(path)
    if table.metadata().partition_columns or _strange(table):
        if any(getattr(field.type, "type", "") in _WITH_NAN for field in table.schema().fields):
            raise Unsupported(
                f'engine="sail" reads no partitions and no features of {path.name} beside doubles: it would lose NaN',
                hint='use engine="local"',
            )
        return active().read.format("delta").load(location(path))
    files = [uri(Path(file)) for file in table.file_uris()]
    if not files:
        return active().createDataFrame([], columns)
    return active().read.schema(columns).parquet(*files)


def create(
    path: Path, columns: Sequence[tuple[Column, str]], *, partition_by: Sequence[str] = (), anew: bool = False
) -> None:
    """A table of these columns, each with its comment; an empty one may be laid out anew."""
    from deltalake import DeltaTable, Schema

    schema = Schema(
        [_field(column, comment, nullable=column.nullable and not column.primary_key) for column, comment in columns]
    )
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)
    if anew:
        DeltaTable.create(str(path), schema=schema, mode="overwrite", partition_by=list(partition_by) or None)
        _list_features(path)
    elif any(column.type.kind == "timestamp" for column, _ in columns):
        _create_with_features(path, schema, partition_by)
    else:
        DeltaTable.create(str(path), schema=schema, mode="ignore", partition_by=list(partition_by) or None)


def _create_with_features(path: Path, schema: Any, partition_by: Sequence[str]) -> None:
    """Create a table whose protocol lists its features, the usual ones too.

    The library lists those by a second commit. Both are made beside the table, and become its first one.
    """
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as beside, explained(path):
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
        except OSError:  # a folder that is not empty is in the way
            if not DeltaTable.is_deltatable(str(path)):
                raise


def _actions(commit: Path, kind: str = "") -> list[str]:
    """The lines of a commit, those of one kind where it is given."""
    lines = commit.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(f'{{"{kind}')]


def _list_features(path: Path) -> None:
    """Add to a table that lists its features those that older tables have without a word: Spark refuses it without them."""
    from deltalake import TableFeatures

    table = opened(path)
    if "timestampNtz" in (table.protocol().writer_features or ()):
        there = table.protocol().writer_features or ()
        usual = {"appendOnly": TableFeatures.AppendOnly, "invariants": TableFeatures.Invariants}
        missing = [feature for name, feature in usual.items() if name not in there]
        if missing:
            table.alter.add_feature(missing)


def add_column(path: Path, column: Column, comment: str) -> None:
    """A nullable column more."""
    from deltalake import TableFeatures

    table = opened(path)
    if column.type.kind == "timestamp" and "timestampNtz" not in (table.protocol().writer_features or ()):
        table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
        _list_features(path)
        table = opened(path)
    table.alter.add_columns([_field(column, comment, nullable=True)])


def change_comment(path: Path, name: str, comment: str) -> None:
    """The declared type and key of a column, as its comment tells them."""
    opened(path).alter.set_column_metadata(name, {_COMMENT: comment})


def drop_not_null(path: Path, name: str) -> None:
    """The column may be NULL from now on."""
    opened(path).alter.drop_column_not_null(name)


def layout_of(path: Path) -> tuple[list[str], int]:
    """The columns of its partitions, and how many files the table has."""
    table = opened(path)
    return list(table.metadata().partition_columns), len(table.file_uris())


def write(path: Path, rows: Path, how: str, *, token: tuple[str, int] | None = None, note: str = "") -> bool:
    """Append the rows of a folder of Parquet, or replace all by them; False when a commit with the token is there."""
    from deltalake import write_deltalake

    table = opened(path)
    if _is_known(table, token):
        return False
    with refusing_others(path):
        # An overwrite and an append are of different signatures, and `how` is either.
        write_deltalake(table, _reader(table, rows), mode=how, commit_properties=_properties(token, note))  # type: ignore[call-overload]
    return True


def merge(
    path: Path, actions: Path, names: Sequence[str], match: Sequence[str], *, token: tuple[str, int], note: str
) -> bool:
    """Carry out the actions of a folder of Parquet on these columns; False when a commit with the token is there."""
    table = opened(path)
    if _is_known(table, token):
        return False
    if not any(actions.rglob("*.parquet")):
        return _commit_nothing(table, token, note)
    source, on = _reader(table, actions, more=(ACTION,), only=names), _same(table, match)
    into = {_quoted(name): f"s.{_quoted(name)}" for name in names}
    updates = {_quoted(name): into[_quoted(name)] for name in names if name not in match}
    with refusing_others(path):
        merger = table.merge(source, on, source_alias="s", target_alias="t", commit_properties=_properties(token, note))
        merger = merger.when_matched_delete(f"s.{ACTION} = 'delete'")
        if updates:  # a table of keys has none
            merger = merger.when_matched_update(updates)
        merger.when_not_matched_insert(into, f"s.{ACTION} = 'write'").execute()
    return True


def delete(path: Path, condition: str) -> None:
    """Remove rows."""
    opened(path).delete(condition)


def keep_keys(path: Path, keys: Path, match: Sequence[str]) -> None:
    """Remove rows whose key is not in a folder of Parquet."""
    table = opened(path)
    merger = table.merge(_reader(table, keys, only=match), _same(table, match), source_alias="s", target_alias="t")
    merger.when_not_matched_by_source_delete().execute()


def _same(table: Any, match: Sequence[str]) -> str:
    nullable = {field.name: field.nullable for field in table.schema().fields}
    return " AND ".join(
        f"(t.{_quoted(key)} {'IS NOT DISTINCT FROM' if nullable[key] else '='} s.{_quoted(key)})" for key in match
    )


def _strange(table: Any) -> list[str]:
    """Features beside those of plain columns; the second reader version is the older word for mapped columns."""
    protocol = table.protocol()
    found = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _PLAIN
    if protocol.min_reader_version == 2:
        found.add("columnMapping")
    return sorted(found)


def _field(column: Column, comment: str, *, nullable: bool) -> Any:
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    made = spark_type(column.type)
    kind = PrimitiveType(_NAMES.get(made, made.lower()))
    return Field(column.name, kind, nullable=nullable, metadata={_COMMENT: comment})


def _commit_nothing(table: Any, token: tuple[str, int], note: str) -> bool:
    """A load that changes no row is a commit all the same: it carries the token."""
    table.create_write_transaction(
        [], "append", table.schema(), partition_by=[], commit_properties=_properties(token, note)
    )
    return True


def _is_known(table: Any, token: tuple[str, int] | None) -> bool:
    known = table.transaction_version(token[0]) if token else None
    return known is not None and token is not None and known >= token[1]


def _properties(token: tuple[str, int] | None, note: str) -> Any:
    from deltalake import CommitProperties, Transaction

    metadata: Mapping[str, Any] = {"userMetadata": note} if note else {}
    return CommitProperties(custom_metadata=dict(metadata), app_transactions=[Transaction(*token)] if token else None)


def _reader(table: Any, folder: Path, *, more: Sequence[str] = (), only: Sequence[str] = ()) -> Any:
    """The files of a folder as batches in the table's own types; a column of the table that they lack is NULL."""
    import pyarrow as pa
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
