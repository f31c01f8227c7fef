"""DDL for databases that cannot change a column in place: the table is copied in one transaction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ematix_flow.contract.ddl import AddColumn, ChangeType, ColumnState, CreateTable, DdlStep, DropNotNull
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.types import Column
from ematix_flow.families.sql.ddl import SqlDdl
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import Unsupported


@dataclass(frozen=True)
class TableLayout:
    """A table to copy: columns, keys, statements for dependent objects, and names of what a copy would lose."""

    columns: tuple[ColumnState, ...]
    primary_key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    attached: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class RebuildingDdl(SqlDdl):
    """DDL that copies the table for the steps the database cannot execute."""

    @abstractmethod
    def layout(self, session: SqlSession, shape: TargetShape) -> TableLayout:
        """Return the current layout of the table."""

    @abstractmethod
    def can_alter(self, step: ChangeType | DropNotNull, layout: TableLayout) -> bool:
        """Return whether the database has a statement for the step."""

    @abstractmethod
    def converted(self, name: str, column: Column, before: ColumnState) -> str:
        """Return the column's old value, converted to its new type."""

    @abstractmethod
    def rename(self, shape: TargetShape, temporary: str) -> str:
        """Return the statement that renames the copy to the table's name."""

    def unique_groups(self, shape: TargetShape) -> list[tuple[str, ...]]:
        """Return the columns of every UNIQUE constraint of an existing table."""
        with self.connect() as session:
            return list(self.layout(session, shape).unique)

    def statements(self, shape: TargetShape, steps: Sequence[DdlStep]) -> list[str]:
        """Return the steps as SQL, as a copy of the table where a step needs one."""
        changes = [step for step in steps if isinstance(step, (ChangeType, DropNotNull))]
        if not changes or any(isinstance(step, CreateTable) for step in steps):
            return super().statements(shape, steps)
        with self.connect() as session:
            layout = self.layout(session, shape)
        if all(self.can_alter(step, layout) for step in changes):
            return super().statements(shape, steps)
        if layout.lost:
            raise Unsupported(
                f"{self.dialect.name} has to copy {shape.table.qualified} for this, and would lose {', '.join(layout.lost)}: "
                + "; ".join(str(step) for step in changes),
                hint="change the table by hand, or declare what is there",
            )
        return self._copy(shape, steps, layout)

    def apply(self, shape: TargetShape, steps: Sequence[DdlStep]) -> None:
        """Execute all steps in one transaction."""
        statements = self.statements(shape, steps) if steps else []
        if statements:
            with self.connect() as session:
                self.before_copy(session)
                session.execute_all(statements)

    def before_copy(self, session: SqlSession) -> None:
        """Set the session's options before a copy."""

    def _copy(self, shape: TargetShape, steps: Sequence[DdlStep], layout: TableLayout) -> list[str]:
        d = self.dialect
        relation = d.relation(shape.table.schema, shape.table.name)
        temporary = f"flow_rebuild_{shape.table.name}"
        copy = d.relation(shape.table.schema, temporary)
        changed = {step.column.name: step.column for step in steps if isinstance(step, ChangeType)}
        relaxed = {step.column.name for step in steps if isinstance(step, DropNotNull)}
        kept = [replace(column, nullable=column.nullable or column.name in relaxed) for column in layout.columns]
        natives = [d.type_sql(changed[column.name]) if column.name in changed else column.native for column in kept]
        lines = [_line(d.quote(column.name), native, column) for column, native in zip(kept, natives, strict=True)]
        lines += [
            f"{d.quote(step.column.name)} {d.type_sql(step.column)}" for step in steps if isinstance(step, AddColumn)
        ]
        if layout.primary_key:
            lines.append(f"PRIMARY KEY ({d.names(layout.primary_key)})")
        lines += [f"UNIQUE ({d.names(group)})" for group in layout.unique]
        values = [
            self.converted(d.quote(column.name), changed[column.name], column)
            if column.name in changed
            else d.quote(column.name)
            for column in layout.columns
        ]
        names = d.names([column.name for column in kept])
        return [
            f"CREATE TABLE {copy} ({', '.join(lines)})",
            f"INSERT INTO {copy} ({names}) SELECT {', '.join(values)} FROM {relation}",
            f"DROP TABLE {relation}",
            self.rename(shape, temporary),
            *layout.attached,
        ]


def _line(name: str, native: str, column: ColumnState) -> str:
    return f"{name} {native}{'' if column.nullable else ' NOT NULL'}"
