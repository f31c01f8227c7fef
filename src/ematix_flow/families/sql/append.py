"""append and truncate; an incremental append loads a row at or before the watermark only if it is not there yet."""

from __future__ import annotations

from ematix_flow.contract.write import Counts
from ematix_flow.declare.types import Bytes, Column
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql, create_temporary_result


def append(session: SqlSession, job_sql: JobSql, *, staged: int, watermark: str | None) -> Counts:
    """Insert the stage; with a watermark, only its new rows."""
    values = job_sql.from_stage(job_sql.declared) | job_sql.metadata()
    incremental = job_sql.job.incremental
    if incremental is None or watermark is None:
        inserted = session.execute(job_sql.insert(values))
        return Counts(read=staged, inserted=inserted)
    seen = _seen_before(job_sql, incremental.column, watermark)
    if job_sql.job.shape.declared.primary_key:
        inserted = session.execute(job_sql.insert(values, where=f"NOT ({seen} AND {_exists_by_key(job_sql)})"))
    else:
        inserted = session.execute(job_sql.insert(values, where=f"NOT {seen}"))
        inserted += _insert_new_copies(session, job_sql, seen)
    return Counts(read=staged, inserted=inserted, unchanged=staged - inserted)


def truncate(session: SqlSession, job_sql: JobSql, *, staged: int) -> Counts:
    """Replace every row."""
    deleted = int(session.scalar(f"SELECT COUNT(*) FROM {job_sql.target}"))
    session.execute(job_sql.dialect.truncate(job_sql.target))
    inserted = session.execute(job_sql.insert(job_sql.from_stage(job_sql.declared) | job_sql.metadata()))
    return Counts(read=staged, inserted=inserted, deleted=deleted)


def _seen_before(job_sql: JobSql, column: str, watermark: str) -> str:
    mark = job_sql.dialect.watermark_literal(watermark, job_sql.column(column).type)
    return f"({job_sql.s(column)} IS NULL OR {job_sql.s(column)} <= {mark})"


def _exists_by_key(job_sql: JobSql) -> str:
    keys = job_sql.job.shape.declared.primary_key
    return f"EXISTS (SELECT 1 FROM {job_sql.target} WHERE {job_sql.match(keys)})"


def _insert_new_copies(session: SqlSession, job_sql: JobSql, seen: str) -> int:
    """Insert as many copies of each row as the target lacks: without a key, equal rows are counted."""
    hashed = job_sql.row_hash(job_sql.declared)
    names = ", ".join(job_sql.s(name) for name in job_sql.declared)
    create_temporary_result(
        session,
        job_sql.dialect,
        "flow_boundary",
        f"SELECT {names}, {hashed} AS flow_hash, ROW_NUMBER() OVER (PARTITION BY {hashed} ORDER BY {hashed}) AS flow_copy "
        f"FROM {job_sql.stage} AS s WHERE {seen}",
    )
    quote = job_sql.dialect.quote
    target_hash = job_sql.row_hash(job_sql.declared, alias=job_sql.target)
    create_temporary_result(
        session,
        job_sql.dialect,
        "flow_present",
        f"SELECT {target_hash} AS flow_hash, COUNT(*) AS flow_copies FROM {job_sql.target} "
        f"WHERE {target_hash} IN (SELECT flow_hash FROM {job_sql.dialect.temporary('flow_boundary')}) GROUP BY {target_hash}",
        looked_up_by=[Column(Bytes(), name="flow_hash")],
    )
    values = {name: f"s.{quote(name)}" for name in job_sql.declared} | job_sql.metadata()
    present = (
        f"SELECT 1 FROM {job_sql.dialect.temporary('flow_present')} AS p "
        "WHERE p.flow_hash = s.flow_hash AND p.flow_copies >= s.flow_copy"
    )
    source = job_sql.dialect.temporary("flow_boundary")
    inserted = session.execute(job_sql.insert(values, source=source, where=f"NOT EXISTS ({present})"))
    for name in ("flow_boundary", "flow_present"):
        session.execute(job_sql.dialect.drop_temporary(name))
    return inserted
