"""Delta tables as declared: Spark's types, with the declared type beside them in the table's properties."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ematix_flow.backends.delta.table import DeltaTable, property_sql
from ematix_flow.contract.ddl import AddColumn, ChangeType, ColumnState, CreateTable, DdlStep, DropNotNull, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Column, ColumnType, Numeric
from ematix_flow.families.frames import spark_type
from ematix_flow.families.lake.errors import translating
from ematix_flow.families.lake.place import Place
from ematix_flow.families.lake.session import active, exactly, quote
from ematix_flow.families.lake.types import from_spec, type_of
from ematix_flow.foundation.errors import Unsupported

if TYPE_CHECKING:
    from ematix_flow.declare.connections import DeltaLocalConnection

COLUMNS = "ematix_flow.columns"
PRIMARY_KEY = "ematix_flow.primary_key"
_WIDER = {
    "SMALLINT": ("INT", "BIGINT", "DOUBLE"), "INT": ("BIGINT", "DOUBLE"), "FLOAT": ("DOUBLE",), "DATE": ("TIMESTAMP_NTZ",),
}  # fmt: skip
_DIGITS = {"small_int": 5, "integer": 10, "big_int": 19}


class DeltaDdl:
    """Inspects and changes Delta tables below one path."""

    def __init__(self, connection: DeltaLocalConnection) -> None:
        self._place = Place.of(connection.resolved().path)

    def _table(self, shape: TargetShape) -> DeltaTable:
        return DeltaTable(self._place.table(shape.table.schema, shape.table.name))

    def inspect(self, shape: TargetShape) -> TableState | None:
        """The table as it is; a declared type counts as long as the column still has the Spark type made for it."""
        table = self._table(shape)
        if not table.exists:
            return None
        with translating(f"looking at {shape.table.qualified}"):
            schema, properties = table.read().schema, table.properties()
        declared = {name: from_spec(spec) for name, spec in json.loads(properties.get(COLUMNS, "{}")).items()}
        states = []
        for field in schema.fields:
            native = field.dataType.simpleString()
            kept = declared.get(field.name)
            known = kept if kept is not None and spark_type(kept).lower() == native else type_of(field.dataType, field.metadata)
            states.append(ColumnState(field.name, native, known, field.nullable))
        return TableState(tuple(states), tuple(json.loads(properties.get(PRIMARY_KEY, "[]"))))

    def stored_type(self, shape: TargetShape, column: Column) -> ColumnType | None:
        """Every declared type is kept as it was declared."""
        return column.type

    def apply(self, shape: TargetShape, steps: Sequence[DdlStep]) -> None:
        """Carry the steps out."""
        with translating(f"changing {shape.table.qualified}"), exactly(active()):
            for statement in self.statements(shape, steps):
                active().sql(statement)

    def statements(self, shape: TargetShape, steps: Sequence[DdlStep]) -> list[str]:
        """The steps in Spark SQL."""
        table = self._table(shape)
        made: list[str] = []
        for step in steps:
            made += self._statements(table, step)
        changed = {step.column.name: step.column for step in steps if isinstance(step, (AddColumn, ChangeType))}
        if changed:
            known = {name: spec for name, spec in self._declared(shape).items() if name not in changed}
            known |= {name: column.type.to_spec() for name, column in changed.items()}
            made.append(_set(table, {COLUMNS: json.dumps(known)}))
        return made

    def _declared(self, shape: TargetShape) -> Mapping[str, object]:
        state = self.inspect(shape)
        columns = state.columns if state else ()
        return {column.name: column.type.to_spec() for column in columns if column.type is not None}

    def _statements(self, table: DeltaTable, step: DdlStep) -> list[str]:
        match step:
            case CreateTable(spec):
                return [create_statement(table, spec)]
            case AddColumn(column):
                enable = [_set(table, {"delta.feature.timestampNtz": "supported"})] if column.type.kind == "timestamp" else []
                return [*enable, f"ALTER TABLE {table.relation} ADD COLUMNS ({quote(column.name)} {spark_type(column.type)})"]
            case ChangeType(column, before):
                return self._change(table, column, before)
            case DropNotNull(state):
                return [f"ALTER TABLE {table.relation} ALTER COLUMN {quote(state.name)} DROP NOT NULL"]

    def _change(self, table: DeltaTable, column: Column, before: ColumnState) -> list[str]:
        wanted = spark_type(column.type)
        if wanted.lower() == before.native:
            return []  # only the declared type changes
        if not _can_widen(before, column.type):
            raise Unsupported(
                f"Delta cannot change {column.name} from {before.native} to {column.type} in place",
                hint="copy the table by hand, or declare what is there",
            )
        return [
            _set(table, {"delta.enableTypeWidening": "true"}),
            f"ALTER TABLE {table.relation} ALTER COLUMN {quote(column.name)} TYPE {wanted}",
        ]


def create_statement(table: DeltaTable, spec: TableSpec, *, partition_by: Sequence[str] = (), replace: bool = False) -> str:
    """The statement that creates a table; `replace` lays an empty one out anew."""
    lines = [
        f"{quote(column.name)} {spark_type(column.type)}"
        f"{'' if column.nullable and not column.primary_key else ' NOT NULL'}"
        for column in spec.columns
    ]
    properties = {
        COLUMNS: json.dumps({column.name: column.type.to_spec() for column in spec.columns}),
        PRIMARY_KEY: json.dumps(spec.primary_key),
    }
    create = "CREATE OR REPLACE TABLE" if replace else "CREATE TABLE IF NOT EXISTS"
    parts = f" PARTITIONED BY ({', '.join(quote(name) for name in partition_by)})" if partition_by else ""
    return f"{create} {table.relation} ({', '.join(lines)}) USING DELTA{parts} TBLPROPERTIES ({property_sql(properties)})"


def _set(table: DeltaTable, properties: Mapping[str, str]) -> str:
    return f"ALTER TABLE {table.relation} SET TBLPROPERTIES ({property_sql(properties)})"


def _can_widen(before: ColumnState, after: ColumnType) -> bool:
    """What Delta widens without writing a file anew."""
    if isinstance(after, Numeric):
        if isinstance(before.type, Numeric):
            whole = before.type.precision - before.type.scale
            return after.scale >= before.type.scale and after.precision - after.scale >= whole
        return before.type is not None and after.precision - after.scale >= _DIGITS.get(before.type.kind, 99)
    return spark_type(after) in _WIDER.get(before.native.upper(), ())
