"""scd2 by processing time: a version starts when the load detects the change."""

from __future__ import annotations

from ematix_flow.contract.shape import IS_CURRENT, ROW_HASH, VALID_FROM, VALID_TO
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Deletes, Scd2
from ematix_flow.families.sql.differences import find_differences
from ematix_flow.families.sql.integrity import check_keys
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql
from ematix_flow.families.violations import check_deletes, check_forgotten


def scd2(session: SqlSession, job_sql: JobSql, strategy: Scd2, *, staged: int) -> Counts:
    """Close changed versions, insert new ones and update the columns that are not compared."""
    check_keys(session, job_sql, strategy.keys)
    match = job_sql.match(strategy.keys)
    current = f"{match} AND {_is_current(job_sql)}"
    closed, deleted = _retire_missing(session, job_sql, strategy, match, staged=staged)
    refreshed = _refresh(session, job_sql, strategy, current)
    differences = find_differences(session, job_sql, on=current, changed=job_sql.differ(strategy.compare))
    closed += session.execute(
        job_sql.dialect.update_from(
            job_sql.target, differences.writing.stage, on=current, sets=_closing(job_sql), where=differences.changed
        )
    )
    every = differences.is_exact and strategy.ttl is None
    where = None if every else _needs_version(job_sql, strategy, current)
    inserted = session.execute(differences.writing.insert(_opening(job_sql, strategy), where=where))
    closed += expire_versions(session, job_sql, strategy)
    unchanged = max(staged - inserted - refreshed, 0)
    return Counts(
        read=staged, inserted=inserted, updated=refreshed, unchanged=unchanged, closed=closed, deleted=deleted
    )


def expire_versions(session: SqlSession, job_sql: JobSql, strategy: Scd2) -> int:
    """Close the versions that are older than their TTL, each at the moment its TTL ended; return their number."""
    if strategy.ttl is None:
        return 0
    ends = job_sql.dialect.plus(job_sql.t(VALID_FROM), strategy.ttl)
    now = job_sql.dialect.instant(job_sql.job.started_at)
    quote = job_sql.dialect.quote
    return session.execute(
        f"UPDATE {job_sql.target} SET {quote(VALID_TO)} = {ends}, {quote(IS_CURRENT)} = {job_sql.dialect.boolean(False)} "
        f"WHERE {_is_current(job_sql)} AND {ends} <= {now}"
    )


def missing_keys(session: SqlSession, writing: JobSql, strategy: Scd2, *, staged: int) -> int:
    """Return the number of rows that are to be closed or deleted for missing keys; raise `Brake` if it is too large."""
    gone = f"NOT EXISTS (SELECT 1 FROM {writing.stage} AS s WHERE {writing.match(strategy.keys)})"
    current = _is_current(writing)

    def count(*conditions: str) -> int:
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return int(session.scalar(f"SELECT COUNT(*) FROM {writing.target}{where}"))

    if strategy.deletes is Deletes.SOFT:
        missing = count(current, gone)
        check_deletes(writing.job, staged=staged, existing=count(current) if missing else 0, missing=missing)
        return missing
    deleted = count(gone)
    if deleted:
        check_forgotten(
            writing.job, staged=staged, current=lambda: count(current), missing=count(current, gone),
            versions=count, deleted=deleted,
        )  # fmt: skip
    return deleted


def _is_current(job_sql: JobSql) -> str:
    return f"{job_sql.t(IS_CURRENT)} = {job_sql.dialect.boolean(True)}"


def _closing(job_sql: JobSql) -> dict[str, str]:
    return {VALID_TO: job_sql.dialect.instant(job_sql.job.started_at), IS_CURRENT: job_sql.dialect.boolean(False)}


def _opening(job_sql: JobSql, strategy: Scd2) -> dict[str, str]:
    versioned = {
        VALID_FROM: job_sql.dialect.instant(job_sql.job.started_at),
        VALID_TO: "NULL",
        IS_CURRENT: job_sql.dialect.boolean(True),
        ROW_HASH: job_sql.row_hash(strategy.compare),
    }
    return job_sql.from_stage(job_sql.declared) | versioned | job_sql.metadata()


def _needs_version(job_sql: JobSql, strategy: Scd2, current: str) -> str:
    absent = f"NOT EXISTS (SELECT 1 FROM {job_sql.target} WHERE {current})"
    if strategy.ttl is None:
        return absent
    # A version closed only by its TTL is opened again when its values change, not because the source still has the row.
    ended = job_sql.dialect.plus(f"l.{job_sql.dialect.quote(VALID_FROM)}", strategy.ttl)
    quote = job_sql.dialect.quote
    expired = (
        f"SELECT 1 FROM {job_sql.target} AS l WHERE {job_sql.match(strategy.keys, left='l')} "
        f"AND l.{quote(VALID_TO)} = {ended} AND NOT ({job_sql.differ(strategy.compare, left='l')}) "
        f"AND NOT EXISTS (SELECT 1 FROM {job_sql.target} AS n WHERE {job_sql.match(strategy.keys, left='n')} "
        f"AND n.{quote(VALID_FROM)} > l.{quote(VALID_FROM)})"
    )
    return f"{absent} AND NOT EXISTS ({expired})"


def _refresh(session: SqlSession, job_sql: JobSql, strategy: Scd2, current: str) -> int:
    others = [name for name in job_sql.declared if name not in (*strategy.keys, *strategy.compare)]
    if not others:
        return 0
    where = f"NOT ({job_sql.differ(strategy.compare)}) AND ({job_sql.differ(others)})"
    sets = job_sql.from_stage(others) | job_sql.metadata()
    return session.execute(
        job_sql.dialect.update_from(job_sql.target, job_sql.stage, on=current, sets=sets, where=where)
    )


def _retire_missing(
    session: SqlSession, job_sql: JobSql, strategy: Scd2, match: str, *, staged: int
) -> tuple[int, int]:
    if strategy.deletes is None:
        return 0, 0
    gone = f"NOT EXISTS (SELECT 1 FROM {job_sql.stage} AS s WHERE {match})"
    missing = missing_keys(session, job_sql, strategy, staged=staged)
    if missing == 0:
        return 0, 0
    if strategy.deletes is Deletes.HARD:
        return 0, session.execute(f"DELETE FROM {job_sql.target} WHERE {gone}")
    current = _is_current(job_sql)
    sets = ", ".join(f"{job_sql.dialect.quote(name)} = {value}" for name, value in _closing(job_sql).items())
    return session.execute(f"UPDATE {job_sql.target} SET {sets} WHERE {current} AND {gone}"), 0
