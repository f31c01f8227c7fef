"""SQL building blocks of every strategy; the target is referred to by its full name, the stage by the alias `s`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ematix_flow.contract.shape import BATCH_ID, LOADED_AT
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.declare.types import Column
from ematix_flow.families.sql.dialect import SqlDialect
from ematix_flow.families.sql.session import SqlSession


@dataclass(frozen=True)
class JobSql:
    """SQL of a job in one dialect: names and conditions, without execution."""

    dialect: SqlDialect
    job: WriteJob
    stage: str

    @property
    def target(self) -> str:
        """Return the target's full name."""
        table = self.job.shape.table
        return self.dialect.relation(table.schema, table.name)

    @property
    def declared(self) -> tuple[str, ...]:
        """Return the names of the columns that the source provides."""
        return self.job.shape.declared.column_names

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        return self.job.shape.column(name)

    def columns(self, names: Iterable[str]) -> list[Column]:
        """Return the columns of those names."""
        return [self.column(name) for name in names]

    def t(self, name: str) -> str:
        """Return a column of the target as SQL."""
        return f"{self.target}.{self.dialect.quote(name)}"

    def s(self, name: str) -> str:
        """Return a column of the stage as SQL."""
        return f"s.{self.dialect.quote(name)}"

    def match(self, keys: Iterable[str], *, left: str | None = None, right: str = "s") -> str:
        """Return the condition that the keys are equal, NULL-safe for nullable columns."""
        side = left or self.target
        quote = self.dialect.quote
        return " AND ".join(
            self.dialect.equal(f"{side}.{quote(key)}", f"{right}.{quote(key)}", self.column(key)) for key in keys
        )

    def differ(self, columns: Sequence[str], *, left: str | None = None, right: str = "s") -> str:
        """Return the condition that at least one of the columns differs."""
        side = left or self.target
        quote = self.dialect.quote
        tests = [
            self.dialect.differs(f"{side}.{quote(name)}", f"{right}.{quote(name)}", self.column(name))
            for name in columns
        ]
        return " OR ".join(tests) if tests else "1 = 0"

    def metadata(self) -> dict[str, str]:
        """Return values of the metadata columns that the table has and the source does not provide."""
        values = {
            LOADED_AT: self.dialect.instant(self.job.started_at),
            BATCH_ID: self.dialect.uuid(self.job.run_id),
        }
        own = {column.name for column in self.job.shape.added}
        return {name: value for name, value in values.items() if name in own}

    def insert(self, values: dict[str, str], *, source: str | None = None, where: str | None = None) -> str:
        """Return an INSERT from the stage (or from `source`, with the alias `s`)."""
        condition = f" WHERE {where}" if where else ""
        return (
            f"INSERT INTO {self.target} ({self.dialect.names(tuple(values))}) "
            f"SELECT {', '.join(values.values())} FROM {source or self.stage} AS s{condition}"
        )

    def from_stage(self, columns: Iterable[str]) -> dict[str, str]:
        """Return the columns, each with its stage column as value."""
        return {name: self.s(name) for name in columns}

    def row_hash(self, columns: Sequence[str], *, alias: str = "s") -> str:
        """Return the SHA-256 over the columns as text; NULL and '' differ, and no value can imitate a separator."""
        dialect = self.dialect
        parts: list[str] = []
        for name in columns:
            column = self.column(name)
            raw = f"{alias}.{dialect.quote(name)}"
            value = dialect.as_text(raw, column.type)
            if column.type.kind in ("text", "string", "json", "jsonb"):
                value = f"REPLACE({value}, '|', '||')"
            marked = dialect.concat(["'v'", value, "'|;'"])
            parts.append(f"CASE WHEN {raw} IS NULL THEN 'n|;' ELSE {marked} END")
        return dialect.sha256(dialect.concat(parts) if len(parts) > 1 else parts[0])


def create_temporary_result(
    session: SqlSession, dialect: SqlDialect, name: str, query: str, *, looked_up_by: Sequence[Column] = ()
) -> None:
    """Store a query's result in a temporary table, indexed by the columns of `looked_up_by`."""
    session.execute(dialect.create_temporary(name, query, looked_up_by=looked_up_by))
    index = dialect.index_temporary(name, [column.name for column in looked_up_by]) if looked_up_by else None
    if index:
        session.execute(index)


def narrow_stage(stage: Stage, dialect: SqlDialect, columns: Sequence[str], where: str) -> Stage:
    """Return a stage of these columns and matching rows; its relation is a query, which `FROM … AS s` accepts."""
    is_query = stage.relation.lstrip().upper().startswith("SELECT")
    whole = f"({stage.relation})" if is_query else stage.relation
    return replace(stage, relation=f"(SELECT {dialect.names(tuple(columns))} FROM {whole} AS whole WHERE {where})")
