"""DDL of a database: inspect a table, translate steps into statements and execute them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ematix_flow.contract.ddl import AddColumn, ChangeType, CreateTable, DdlStep, DropNotNull, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.types import Column, ColumnType
from ematix_flow.families.sql.dialect import SqlDialect
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import Unsupported


class SqlDdl(ABC):
    """Inspection and changes of the tables of one database."""

    dialect: SqlDialect

    @abstractmethod
    def connect(self) -> SqlSession:
        """Return a new session."""

    @abstractmethod
    def inspect(self, shape: TargetShape) -> TableState | None:
        """Return the current state of the table, None when it does not exist."""

    def unique_groups(self, shape: TargetShape) -> list[tuple[str, ...]]:
        """Return the columns of every UNIQUE constraint of an existing table, without its primary key."""
        d, table = self.dialect, shape.table
        schema = d.text_literal(table.schema) if table.schema else d.current_schema
        with self.connect() as session:
            rows = session.rows(
                "SELECT c.constraint_name, k.column_name FROM information_schema.table_constraints c "
                "JOIN information_schema.key_column_usage k ON k.constraint_schema = c.constraint_schema "
                "AND k.constraint_name = c.constraint_name AND k.table_name = c.table_name "
                f"WHERE c.constraint_type = 'UNIQUE' AND c.table_schema = {schema} "
                f"AND c.table_name = {d.text_literal(table.name)} ORDER BY c.constraint_name, k.ordinal_position"
            )
        groups: dict[str, list[str]] = {}
        for name, column in rows:
            groups.setdefault(str(name), []).append(str(column))
        return [tuple(columns) for columns in groups.values()]

    def stored_type(self, shape: TargetShape, column: Column) -> ColumnType | None:
        """Return the type that `inspect` reports for a column created from this declaration."""
        keyed = {name for group in (shape.table.primary_key, *shape.table.unique) for name in group}
        return self.dialect.parse_type(self.dialect.type_sql(column, key=column.name in keyed))

    def statements(self, shape: TargetShape, steps: Sequence[DdlStep]) -> list[str]:
        """Return the steps as SQL."""
        relation = self.dialect.relation(shape.table.schema, shape.table.name)
        statements: list[str] = []
        for step in steps:
            statements += self._statements(relation, step)
        return statements

    def _statements(self, relation: str, step: DdlStep) -> list[str]:
        d = self.dialect
        match step:
            case CreateTable(table):
                schema = d.create_schema(table.schema)
                create = d.create_table(relation, table.columns, primary_key=table.primary_key, unique=table.unique)
                return [schema, create] if schema else [create]
            case AddColumn(column):
                return [f"ALTER TABLE {relation} ADD COLUMN {d.quote(column.name)} {d.type_sql(column)}"]
            case ChangeType(column):
                return self._offered(d.change_type(relation, column), step)
            case DropNotNull(column):
                return self._offered(d.drop_not_null(relation, column.name, column.native), step)

    def _offered(self, statements: list[str] | None, step: DdlStep) -> list[str]:
        if statements is None:
            raise Unsupported(f"{self.dialect.name} cannot do this to a table that holds data: {step}",
                              hint="copy the table by hand, or declare what is there")  # fmt: skip
        return statements

    def apply(self, shape: TargetShape, steps: Sequence[DdlStep]) -> None:
        """Execute the steps."""
        if not steps:
            return
        creates = any(isinstance(step, CreateTable) for step in steps)
        with self.connect() as session, session.creating(self.dialect.creation_lock if creates else None):
            for statement in self.statements(shape, steps):
                session.execute(statement)
