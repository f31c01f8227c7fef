"""DDL of Delta tables: Spark's types, with the declared type and primary key in the comment of every column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ematix_flow.backends.delta import sail_tables
from ematix_flow.backends.delta.delta_rs import can_create
from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.contract.ddl import AddColumn, ChangeType, ColumnState, CreateTable, DdlStep, DropNotNull, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.dataplane.spark_session import active_session, exact_settings, is_active_session_sail
from ematix_flow.dataplane.spark_types import type_of
from ematix_flow.dataplane.type_mapping import spark_type
from ematix_flow.declare.connections import DeltaLocalConnection, DeltaS3Connection
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import PLAIN_TYPES, Column, ColumnType, Numeric, String
from ematix_flow.families.lake.errors import translated_errors
from ematix_flow.foundation.errors import Unsupported
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.storage.paths import LakeRoot

_KEY = ", primary key"
_DEFAULTS = "spark.databricks.delta.properties.defaults."
# Not in table properties: Spark redacts those whose name or value looks like a secret (key, token).
_COMMENT = re.compile(rf"(\w+)(?:\[(\d+)(?:, (\d+))?\])?({_KEY})?")
_PLAIN = {kind.__name__: kind() for kind in PLAIN_TYPES}
_WIDER = {
    "SMALLINT": ("INT", "BIGINT", "DOUBLE"), "INT": ("BIGINT", "DOUBLE"), "FLOAT": ("DOUBLE",), "DATE": ("TIMESTAMP_NTZ",),
}  # fmt: skip
_DIGITS = {"small_int": 5, "integer": 10, "big_int": 19}


class DeltaDdl:
    """Inspection and changes of the Delta tables below one path."""

    def __init__(self, connection: DeltaLocalConnection | DeltaS3Connection) -> None:
        self._place = LakeRoot.of(connection)

    def _table(self, shape: TargetShape) -> DeltaTable:
        return DeltaTable(self._place.table(shape.table.schema, shape.table.name))

    def inspect(self, shape: TargetShape) -> TableState | None:
        """Return the table or None; a declared type counts while the Spark type made for it is unchanged."""
        table = self._table(shape)
        if not table.exists:
            return None
        with translated_errors(f"looking at {shape.table.qualified}"):
            fields = table.schema().fields
        states, key = [], []
        for field in fields:
            native = field.dataType.simpleString()
            kept, is_key = _from_comment(field.metadata.get("comment"))
            known = (
                kept
                if kept is not None and spark_type(kept).lower() == native
                else type_of(field.dataType, field.metadata)
            )
            states.append(ColumnState(field.name, native, known, field.nullable))
            key += [field.name] if is_key else []
        return TableState(tuple(states), tuple(key))

    def stored_type(self, shape: TargetShape, column: Column) -> ColumnType | None:
        """Return the declared type: the column comment keeps every declared type exactly."""
        return column.type

    def apply(self, shape: TargetShape, steps: Sequence[DdlStep]) -> None:
        """Apply the steps to the table."""
        table = self._table(shape)
        with translated_errors(f"changing {shape.table.qualified}"):
            for step in steps:
                if is_active_session_sail():
                    _apply_on_sail(table, step)
                elif isinstance(step, CreateTable):
                    create_table(table, step.table)
                else:
                    _execute(self._statements(table, step))

    def unique_groups(self, shape: TargetShape) -> None:
        """Return None: a lake has no UNIQUE constraints."""

    def statements(self, shape: TargetShape, steps: Sequence[DdlStep]) -> list[str]:
        """Return the steps as Spark SQL."""
        table = self._table(shape)
        return [statement for step in steps for statement in self._statements(table, step)]

    def _statements(self, table: DeltaTable, step: DdlStep) -> list[str]:
        alter = f"ALTER TABLE {table.relation}"
        match step:
            case CreateTable(spec):
                return [create_statement(table, spec)]
            case AddColumn(column):
                enable = f"{alter} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"
                add = f"{alter} ADD COLUMNS ({quote(column.name)} {spark_type(column.type)} COMMENT {text_literal(_comment(column))})"
                return [enable, add] if column.type.kind == "timestamp" else [add]
            case ChangeType(column, before):
                return self._change(alter, column, before)
            case DropNotNull(state):
                return [f"{alter} ALTER COLUMN {quote(state.name)} DROP NOT NULL"]

    def _change(self, alter: str, column: Column, before: ColumnState) -> list[str]:
        wanted, name = spark_type(column.type), quote(column.name)
        comment = f"{alter} ALTER COLUMN {name} COMMENT {text_literal(_comment(column))}"
        if wanted.lower() == before.native:
            return [comment]  # only the declared type changes
        if not _can_widen(before, column.type):
            raise Unsupported(
                f"Delta cannot change {column.name} from {before.native} to {column.type} in place",
                hint="copy the table by hand, or declare what is there",
            )
        enable = f"{alter} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
        return [enable, f"{alter} ALTER COLUMN {name} TYPE {wanted}", comment]


def create_statement(table: DeltaTable, spec: TableSpec, *, partition_by: Sequence[str] = ()) -> str:
    """Return the statement that creates a table; with `partition_by`, one that replaces an empty table."""
    lines = [
        f"{quote(column.name)} {spark_type(column.type)}"
        f"{'' if column.nullable and not column.primary_key else ' NOT NULL'} COMMENT {text_literal(_comment(column))}"
        for column in spec.columns
    ]
    create, parts = "CREATE TABLE IF NOT EXISTS", ""
    if partition_by:
        create, parts = "REPLACE TABLE", f" PARTITIONED BY ({', '.join(quote(name) for name in partition_by)})"
    return f"{create} {table.relation} ({', '.join(lines)}) USING DELTA{parts}"


def create_table(table: DeltaTable, spec: TableSpec, *, partition_by: Sequence[str] = ()) -> None:
    """Create a table, or with `partition_by` replace an empty one; without Spark where a log entry is enough."""
    columns = [(column, _comment(column)) for column in spec.columns]
    if is_active_session_sail():
        sail_tables.create(table.folder, columns, partition_by=partition_by, anew=bool(partition_by))
    elif partition_by or not can_create(table.path) or _has_defaults():
        _execute([create_statement(table, spec, partition_by=partition_by)])
    else:
        sail_tables.create(table.folder, columns)


def _execute(statements: Sequence[str]) -> None:
    with exact_settings(active_session()):
        for statement in statements:
            active_session().sql(statement)


def _has_defaults() -> bool:
    """Return whether the session sets default properties for new Delta tables."""
    return any(name.startswith(_DEFAULTS) for name in active_session().conf.getAll)


def _apply_on_sail(table: DeltaTable, step: DdlStep) -> None:
    match step:
        case CreateTable(spec):
            create_table(table, spec)
        case AddColumn(column):
            sail_tables.add_column(table.folder, column, _comment(column))
        case ChangeType(column, before):
            if spark_type(column.type).lower() != before.native:
                raise Unsupported(
                    f'engine="sail" cannot change {column.name} from {before.native} to {column.type}',
                    hint='use engine="local" for this load, or declare what is there',
                )
            sail_tables.change_comment(table.folder, column.name, _comment(column))
        case DropNotNull(state):
            sail_tables.drop_not_null(table.folder, state.name)


def _comment(column: Column) -> str:
    return f"{column.type}{_KEY if column.primary_key else ''}"


def _from_comment(comment: Any) -> tuple[ColumnType | None, bool]:
    """Return the declared type and whether the column is in the primary key; (None, False) for any other comment."""
    match = _COMMENT.fullmatch(str(comment or ""))
    if match is None:
        return None, False
    name, first, second, key = match.groups()
    if name == "String" and first:
        return String(int(first)), bool(key)
    if name == "Numeric" and second:
        return Numeric(int(first), int(second)), bool(key)
    return _PLAIN.get(name), bool(key)


def _can_widen(before: ColumnState, after: ColumnType) -> bool:
    """Return whether Delta can widen the type without rewriting files."""
    if isinstance(after, Numeric):
        if isinstance(before.type, Numeric):
            whole = before.type.precision - before.type.scale
            return after.scale >= before.type.scale and after.precision - after.scale >= whole
        return before.type is not None and after.precision - after.scale >= _DIGITS.get(before.type.kind, 99)
    return spark_type(after) in _WIDER.get(before.native.upper(), ())
