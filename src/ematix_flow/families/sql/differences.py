"""The differences of a stage and its table: two conditions on the table, or the kept result of one join."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql, create_temporary_result

_NAME, _PRESENT = "flow_differences", "flow_present"


@dataclass(frozen=True)
class StageDifferences:
    """Conditions on the rows `s` of `writing.stage`: differs from its table row (`changed`), has none (`absent`)."""

    writing: JobSql
    changed: str
    absent: str
    is_exact: bool = False
    """Whether the stage holds only changed and absent rows."""


def find_differences(session: SqlSession, job_sql: JobSql, *, on: str, changed: str) -> StageDifferences:
    """Return the differences of stage and table.

    The joins of an update and of an insert cost more than their writes when little has changed. Where a row address
    shows the matches of an outer join, one join serves both; a database may run a query in parallel, unlike an update.
    """
    address_query = job_sql.dialect.row_address(job_sql.target)
    address = session.scalar(address_query) if address_query else None
    if address is None:
        return StageDifferences(job_sql, changed, f"NOT EXISTS (SELECT 1 FROM {job_sql.target} WHERE {on})")
    if session.scalar(f"SELECT 1 FROM {job_sql.target} LIMIT 1") is None:
        return StageDifferences(job_sql, "1 = 0", "1 = 1", is_exact=True)
    names = ", ".join(job_sql.s(name) for name in job_sql.declared)
    address_column = f"{job_sql.target}.{address}"
    create_temporary_result(
        session,
        job_sql.dialect,
        _NAME,
        f"SELECT {names}, {address_column} IS NOT NULL AS {_PRESENT} FROM {job_sql.stage} AS s "
        f"LEFT JOIN {job_sql.target} ON {on} WHERE {address_column} IS NULL OR {changed}",
    )
    narrowed = replace(job_sql, stage=job_sql.dialect.temporary(_NAME))
    return StageDifferences(narrowed, f"s.{_PRESENT}", f"NOT s.{_PRESENT}", is_exact=True)
